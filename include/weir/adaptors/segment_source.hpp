#pragma once
// Where a pool's segments come from and go to: the upstream, which is asked without the pool's lock.

#include <weir/blocks/size_classes.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/capture.hpp>

#include <cstddef>
#include <new>

namespace weir::detail {

/// Takes memory from an upstream and gives it back, in host order, and without breaking a stream capture: the calling
/// thread is relaxed meanwhile. Knows how much is on its way, so that a limit holds at every instant. Guarded by the
/// pool's lock.
template <resource Upstream>
class segment_source {
 public:
  explicit segment_source(Upstream& upstream) : upstream_(upstream) {}

  /// Bytes that may be taken by a pool that holds `reserved` and at most `max_bytes`.
  std::size_t room(std::size_t reserved, std::size_t max_bytes) const noexcept {
    std::size_t const held = reserved + taking_ + giving_;
    return max_bytes - lesser(max_bytes, held);
  }
  /// Bytes that other threads are giving back just now.
  std::size_t giving() const noexcept { return giving_; }

  /// False while a capture would be broken: an upstream that only knows streams is asked on the legacy one.
  bool may_be_asked() const noexcept { return host_ordered<Upstream> || !may_break_capture(cudaStreamLegacy); }

  /// Null if the upstream is out of memory, or may not be asked; throws what else it throws. Drops the lock meanwhile.
  template <class Lock>
  void* take(Lock& lock, std::size_t bytes) {
    if (!may_be_asked()) return nullptr;
    without<Lock> const dropped(lock, taking_, bytes);
    try {
      return relaxed([&] { return weir::allocate_sync(upstream_, bytes, default_alignment); });
    } catch (std::bad_alloc const&) {
      return nullptr;
    }
  }
  template <class Lock>
  void give(Lock& lock, void* p, std::size_t bytes) noexcept {
    without<Lock> const dropped(lock, giving_, bytes);
    give(p, bytes);
  }
  /// The same for who is alone.
  void give(void* p, std::size_t bytes) noexcept {
    relaxed([&] { weir::deallocate_sync(upstream_, p, bytes, default_alignment); });
  }

 private:
  /// Drops the lock while it lives, and counts bytes as on their way.
  template <class Lock>
  class without {
   public:
    without(Lock& lock, std::size_t& counter, std::size_t bytes) noexcept
        : lock_(lock), counter_(counter), bytes_(bytes) {
      counter_ += bytes_;
      lock_.unlock();
    }
    ~without() {
      lock_.lock();
      counter_ -= bytes_;
    }
    without(without const&) = delete;
    without& operator=(without const&) = delete;

   private:
    Lock& lock_;
    std::size_t& counter_;
    std::size_t bytes_;
  };

  Upstream& upstream_;
  std::size_t taking_ = 0;
  std::size_t giving_ = 0;
};

}  // namespace weir::detail
