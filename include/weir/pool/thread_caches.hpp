#pragma once
// The caches of a pool's threads.

#include <weir/pool/thread_cache.hpp>
#include <weir/support/atomic.hpp>
#include <weir/support/shared_owner.hpp>
#include <weir/support/spin_lock.hpp>
#include <weir/support/thread_lease.hpp>

#include <cstddef>
#include <new>

namespace weir::detail {

/// A `thread_cache` for each thread, made when it comes first. What a thread leaves when it ends is the next one's;
/// more threads than caches share. Thread-safe.
class thread_caches {
 public:
  /// May throw `std::bad_alloc`.
  thread_caches() : lease_(shared_owner<thread_lease>::make(thread_cache::most_caches)) {}
  ~thread_caches() {
    lease_->close();
    for (auto& each : made_) delete each.load();
  }
  thread_caches(thread_caches const&) = delete;
  thread_caches& operator=(thread_caches const&) = delete;

  /// The calling thread's cache; null if there is no host memory for one.
  thread_cache* of_this_thread() noexcept {
    std::size_t const number = thread_lease::of_this_thread(lease_);
    thread_cache* const made = made_[number].load_acquire();
    thread_cache* const own = made != nullptr ? made : make(number);
    lease_->keep_hint(own);
    return own;
  }
  /// The same, but null for a thread that never asked for it.
  thread_cache* held_by_this_thread() const noexcept {
    std::size_t const number = thread_lease::held_by_this_thread(lease_);
    return number == thread_lease::none ? nullptr : made_[number].load_acquire();
  }
  /// The cache with this number, which lent a block: so it is there.
  thread_cache& operator[](std::size_t number) const noexcept { return *made_[number].load_acquire(); }

  /// Whose hint is the cache of a thread that asked for it, mostly.
  thread_lease const& lease() const noexcept { return *lease_; }

  template <class F>
  void for_each(F f) const {
    for (auto const& each : made_)
      if (thread_cache* const cache = each.load_acquire(); cache != nullptr) f(*cache);
  }

 private:
  [[gnu::noinline]] thread_cache* make(std::size_t number) noexcept try {
    spin_guard const lock(making_);
    if (thread_cache* const made = made_[number].load(); made != nullptr) return made;
    auto* const made = new thread_cache(number);
    made_[number].store_release(made);
    return made;
  } catch (std::bad_alloc const&) {
    return nullptr;
  }

  shared_owner<thread_lease> lease_;
  spin_lock making_;
  atomic<thread_cache*> made_[thread_cache::most_caches];
};

}  // namespace weir::detail
