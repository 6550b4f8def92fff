#pragma once
// A pool that gives all its memory away for a while, and has it again at the same addresses.

#include <weir/core/growable.hpp>
#include <weir/cuda/error.hpp>
#include <weir/pool/chunk_sharing.hpp>
#include <weir/pool/parked_memory.hpp>
#include <weir/pool/pool_options.hpp>
#include <weir/pool/stream_ordered_heap.hpp>
#include <weir/pool/upstream_calls.hpp>
#include <weir/support/shared_owner.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>

namespace weir::detail {

/// Of a growable pool's one range. Guarded by the pool's lock, which it drops while contents are copied and the
/// upstream is asked; other threads that park or unpark wait meanwhile.
template <growable Upstream>
class parking {
 public:
  /// `reserved`: what the pool has memory for, which it keeps right. All of them outlive it.
  parking(Upstream& upstream, upstream_calls& calls, chunk_sharing<Upstream>& sharing, pool_level& reserved) noexcept
      : upstream_(upstream), calls_(calls), sharing_(sharing), reserved_(reserved) {}

  bool is_parked() const noexcept { return parked_.get() != nullptr; }
  /// Of what is parked: all of it that the driver took back, from when it went until it is here again.
  std::size_t bytes() const noexcept { return bytes_; }

  /// Takes the memory of the range at `first` away but keeps live blocks; their contents go to `store`, which is owned
  /// from here on, or are dropped where that is null. `settle()` waits, perhaps without the lock, until nothing of the
  /// range comes, goes or is pending. Throws what that, the store or CUDA throws, and `std::logic_error` from inside of
  /// a change; then nothing has changed.
  template <class Lock, class Settle>
  void park(Lock& lock, stream_ordered_heap& heap, block_id first, content_store* store, int device, Settle settle) {
    shared_owner<parked_memory> fresh = owning(store);
    wait_for_change(lock);
    if (is_parked()) return;
    settle();
    if (is_parked()) return;  // another thread was quicker
    note(heap, first, *fresh);
    upstream_calls::attempt const attempt(calls_);
    parked_ = std::move(fresh);
    is_changing_ = true;
    heap.park(first);
    try {
      calls_.without(lock, 0, [&] { return parked_->save(device), unmap(); });
    } catch (...) {
      heap.unpark(first);
      is_changing_ = false;
      forget(lock);
      throw;
    }
    is_changing_ = false;
    count();
  }
  /// Puts memory behind all that was parked, and the contents into it. False if there is not as much; throws what CUDA
  /// throws. Then it stays parked. Throws `std::logic_error` from inside of a change.
  template <class Lock>
  bool unpark(Lock& lock, stream_ordered_heap& heap, block_id first, int device) {
    wait_for_change(lock);
    if (!is_parked()) return true;
    upstream_calls::attempt const attempt(calls_);
    parked_->keep_live([&](void* p) { return bool{heap.find_block(p)}; });
    is_changing_ = true;
    bool done = false;
    try {
      tenants::claim claim = sharing_.claim();
      done = calls_.without(lock, bytes_, [&] { return map(claim) && (parked_->load(upstream_, device), true); });
    } catch (...) {
      is_changing_ = false;
      count();
      throw;
    }
    is_changing_ = false;
    count();
    if (!done) return false;
    heap.unpark(first);
    forget(lock);
    return true;
  }
  /// Takes away what has memory still, when the pool is about to go; returns how many bytes stay.
  std::size_t give_all() noexcept { return unmap() ? 0 : parked_->mapped_bytes(); }

  /// Until nothing comes or goes: then no window is held. Throws from inside of what is under way.
  template <class Lock>
  void wait_for_calls(Lock& lock) const {
    while (calls_.wait(lock)) {
    }
    if (calls_.are_under_way()) refuse_inside();
  }

 private:
  /// Owns `store` also where it throws.
  static shared_owner<parked_memory> owning(content_store* store) {
    try {
      return shared_owner<parked_memory>::make(store);
    } catch (...) {
      delete store;
      throw;
    }
  }
  /// Without the lock: the store may have to wait for the device, as `cudaFreeHost` does.
  template <class Lock>
  void forget(Lock& lock) noexcept {
    shared_owner<parked_memory> gone = std::move(parked_);
    calls_.without(lock, 0, [&] {
      shared_owner<parked_memory> const last = std::move(gone);
      return true;
    });
  }
  /// While another thread parks or unparks it. Throws from inside of that.
  template <class Lock>
  void wait_for_change(Lock& lock) const {
    while (is_changing_ && calls_.wait(lock)) {
    }
    if (is_changing_) refuse_inside();
  }
  [[noreturn, gnu::noinline, gnu::cold]] static void refuse_inside() {
    throw std::logic_error(
        "weir: pool: park or unpark from inside of what a pool calls while its memory comes or goes, such as a "
        "reclaimer or an on_soft below it: this pool's memory is just changing; call it when that has returned");
  }
  static void note(stream_ordered_heap const& heap, block_id first, parked_memory& parked) {
    std::size_t spans = 0, blocks = 0;
    heap.for_each_with_memory(first, [&](std::uintptr_t, std::size_t) { ++spans; });
    heap.for_each_live(first, [&](std::uintptr_t, std::size_t) { ++blocks; });
    parked.reserve(spans, blocks);
    heap.for_each_with_memory(
        first, [&](std::uintptr_t address, std::size_t bytes) { parked.add(reinterpret_cast<void*>(address), bytes); });
    heap.for_each_live(first, [&](std::uintptr_t address, std::size_t bytes) {
      parked.add_block(reinterpret_cast<void*>(address), bytes);
    });
  }
  /// Notes what has memory and what has not, where that may have changed.
  void count() noexcept {
    std::size_t const gone = parked_->bytes() - parked_->mapped_bytes();
    if (gone > bytes_)
      reserved_.current -= gone - bytes_;
    else
      reserved_.add(bytes_ - gone);
    bytes_ = gone;
  }
  /// What the driver refuses is tried again: it may have reported an error of earlier work.
  bool unmap() noexcept { return parked_->unmap(upstream_) || parked_->unmap(upstream_); }
  /// Once others gave back what limits lack; where that is not enough, what is missing; then all of it.
  bool map(tenants::claim& claim) {
    std::size_t const missing = parked_->bytes() - parked_->mapped_bytes();
    auto const try_to = [&] { return sharing_.take(claim, missing, [&] { return parked_->map(upstream_); }); };
    sharing_.relieve_limits(missing);
    bool is_mapped = try_to();
    for (std::size_t const bytes : {std::size_t{0}, missing}) {
      if (is_mapped) break;
      sharing_.reclaim(bytes, missing);
      is_mapped = try_to();
    }
    return is_mapped;
  }

  Upstream& upstream_;
  upstream_calls& calls_;
  chunk_sharing<Upstream>& sharing_;
  pool_level& reserved_;
  shared_owner<parked_memory> parked_;
  bool is_changing_ = false;  // it is being parked, or unparked, just now
  std::size_t bytes_ = 0;
};

}  // namespace weir::detail
