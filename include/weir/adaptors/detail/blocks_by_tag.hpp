#pragma once
// Which tag each live block was allocated under, and what each tag holds.

#include <weir/adaptors/detail/tag_totals.hpp>
#include <weir/core/tag.hpp>
#include <weir/support/biased_lock.hpp>
#include <weir/support/blocks_by_address.hpp>
#include <weir/support/thread_id.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weir::detail {

/// A free counts for the tag that the block was allocated under, whatever the tag of the thread that frees it. Under
/// one short lock; thread-safe. A block that there is no host memory to remember counts for no tag.
class blocks_by_tag {
 public:
  /// Under the calling thread's tag. Takes host memory now and then.
  void add(void const* p, std::size_t bytes, std::size_t taken) noexcept try {
    block const added{reinterpret_cast<std::uintptr_t>(p), current_tag(), bytes, taken};
    biased_guard const lock(lock_);
    totals_.make_room(added.tag);
    blocks_.promise();
    // What is live there still was given back past this layer.
    if (block const* const stale = blocks_.find(added.address); stale != nullptr) count_off(*stale);
    blocks_.insert(added.address, added);
    totals_.of(added.tag).add(bytes, taken);
  } catch (...) {
  }

  void take_off(void const* p) noexcept {
    std::uint64_t const thread = thread_id();
    biased_guard const lock(lock_);
    block const* const found = blocks_.find(reinterpret_cast<std::uintptr_t>(p));
    freed& latest = freed_[next_freed_++ % remembered_frees];
    latest = {found == nullptr ? block{} : *found, thread};
    if (found == nullptr) return;
    count_off(*found);
    blocks_.erase(latest.what.address);
  }
  /// As if the calling thread had not called that last.
  void put_back_latest() noexcept {
    std::uint64_t const thread = thread_id();
    biased_guard const lock(lock_);
    for (std::size_t i = 1; i <= remembered_frees; ++i) {
      freed const& latest = freed_[(next_freed_ - i) % remembered_frees];
      if (latest.thread != thread) continue;
      block const& kept = latest.what;
      if (kept.address != 0 && blocks_.insert_again(kept.address, kept))
        totals_.of(kept.tag).put_back(kept.bytes, kept.taken);
      return;
    }
  }

  void reset_peaks() noexcept {
    biased_guard const lock(lock_);
    totals_.reset_peaks();
  }
  template <class = void>  // so that only those pay for compiling it who use it
  std::vector<tag_statistics> numbers() const {
    biased_guard const lock(lock_);
    return totals_.used();
  }

 private:
  struct block {
    std::uintptr_t address = 0;  // 0: none
    tag_name tag;
    std::size_t bytes = 0, taken = 0;
  };
  struct freed {
    block what;
    std::uint64_t thread = 0;
  };
  static constexpr std::size_t remembered_frees = 32;  // more than threads that free at one time

  void count_off(block const& b) noexcept { totals_.of(b.tag).take_off(b.bytes, b.taken); }

  mutable biased_lock lock_;
  blocks_by_address<block> blocks_;
  tag_totals totals_;
  freed freed_[remembered_frees];
  std::size_t next_freed_ = 0;
};

}  // namespace weir::detail
