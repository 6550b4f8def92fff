#pragma once
// Which chunks of growable memory are shown at several addresses, so that nobody zeroes what is in use elsewhere.

#include <weir/version.hpp>

#include <memory>
#include <mutex>
#include <unordered_map>

namespace weir::detail {

/// The addresses of chunks that `alias` showed at a second place. Thread-safe. Only `add` allocates host memory.
class chunk_views {
 public:
  /// `to` will show what `from` shows. May throw `std::bad_alloc`, and counts no view then.
  void add(void* to, void* from) {
    std::lock_guard const lock(mutex_);
    auto const known = views_.find(from);
    auto const count = known == views_.end() ? std::make_shared<unsigned>(1) : known->second;
    views_.insert_or_assign(to, count);
    views_.insert_or_assign(from, count);
    ++*count;
  }
  /// The chunk at `p` is about to be unmapped; true if no other address shows it then. `stay` or `forget` has to
  /// follow.
  bool leave(void* p) noexcept {
    std::lock_guard const lock(mutex_);
    auto const found = views_.find(p);
    return found == views_.end() || --*found->second == 0;
  }
  /// It stayed mapped.
  void stay(void* p) noexcept {
    std::lock_guard const lock(mutex_);
    if (auto const found = views_.find(p); found != views_.end()) ++*found->second;
  }
  /// It is unmapped.
  void forget(void* p) noexcept {
    std::lock_guard const lock(mutex_);
    views_.erase(p);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<void*, std::shared_ptr<unsigned>> views_;  // to how many addresses show the same chunk
};

}  // namespace weir::detail
