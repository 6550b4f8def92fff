#pragma once
// Where a pool's segments come from and go to: the upstream, which is asked without the pool's lock.

#include <weir/core/resource.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/pool/heap/size_class.hpp>
#include <weir/pool/upstream_calls.hpp>

#include <cstddef>
#include <new>

namespace weir::detail {

/// Takes memory from an upstream and gives it back, in host order, and without breaking a stream capture: the calling
/// thread is relaxed meanwhile. Knows which calls are under way, so that a limit holds at every instant and a request
/// can wait for what they bring. Guarded by the pool's lock.
template <resource Upstream>
class segment_source {
 public:
  explicit segment_source(Upstream& upstream) : upstream_(upstream), calls_(calls_shared_below(upstream)) {}

  /// Bytes that may be taken by a pool that holds `reserved` and at most `max_bytes`.
  std::size_t room(std::size_t reserved, std::size_t max_bytes) const noexcept {
    return max_bytes - lesser(max_bytes, reserved + calls_.bytes());
  }
  upstream_calls& calls() noexcept { return calls_; }
  upstream_calls const& calls() const noexcept { return calls_; }

  /// False while a capture would be broken: an upstream that only knows streams is asked on the legacy one.
  bool may_be_asked() const noexcept { return host_ordered<Upstream> || !may_break_capture(cudaStreamLegacy); }

  /// Null if the upstream is out of memory, or may not be asked; throws what else it throws. Drops the lock meanwhile.
  /// Part of an attempt of the caller's.
  template <class Lock>
  void* take(Lock& lock, std::size_t bytes) {
    if (!may_be_asked()) return nullptr;
    void* p = nullptr;
    try {
      upstream_calls::call<Lock> const under_way(calls_, lock, bytes);
      p = relaxed([&] { return weir::allocate_sync(upstream_, bytes, default_alignment); });
    } catch (std::bad_alloc const&) {
    }
    if (p != nullptr) calls_.count_success();
    return p;
  }
  /// Part of an attempt of the caller's too.
  template <class Lock>
  void give(Lock& lock, void* p, std::size_t bytes) noexcept {
    {
      upstream_calls::call<Lock> const under_way(calls_, lock, bytes);
      give(p, bytes);
    }
    calls_.count_success();
  }
  /// The same for who is alone.
  void give(void* p, std::size_t bytes) noexcept {
    relaxed([&] { weir::deallocate_sync(upstream_, p, bytes, default_alignment); });
  }

 private:
  Upstream& upstream_;
  upstream_calls calls_;
};

}  // namespace weir::detail
