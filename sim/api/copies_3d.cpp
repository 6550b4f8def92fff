// Copies and sets of slices, which are rows of bytes again: `cudaMemcpy3D` and its like. There are no arrays.

#include "api/copies_3d.hpp"

#include "allocations/blocks.hpp"
#include "api/entry.hpp"
#include "api/peers.hpp"
#include "api/pitch.hpp"
#include "checker/checker.hpp"
#include "scheduler/streams.hpp"

namespace weir::sim::detail {
namespace {

bool empty(cudaExtent const& e) { return e.width == 0 || e.height == 0 || e.depth == 0; }

// Whether the `size` bytes (or rows) from `at` on lie within `whole`.
bool within(std::size_t at, std::size_t size, std::size_t whole) { return at <= whole && size <= whole - at; }

// One of the two things between which bytes are copied, and where in it they begin.
struct end {
  cudaArray_t array;
  cudaPitchedPtr memory;
  cudaPos at;

  std::size_t slice() const { return times(memory.pitch, memory.ysize); }
  std::size_t offset() const { return plus(plus(times(at.z, slice()), times(at.y, memory.pitch)), at.x); }
  // Valid only if all of `bytes` lies in memory.
  void* first() const { return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(memory.ptr) + offset()); }
  // From the memory's begin to the last byte that is copied.
  std::size_t bytes(cudaExtent const& e) const {
    std::size_t const last = plus(times(e.depth - 1, slice()), times(e.height - 1, memory.pitch));
    return plus(offset(), plus(last, e.width));
  }
};

// Pitch and height are looked at only where there is a second row, or a second slice.
cudaError_t shape_of(end const& of, cudaExtent const& e) {
  if (of.array != nullptr) return of.memory.ptr != nullptr ? cudaErrorInvalidValue : cudaErrorNotSupported;
  if (of.memory.ptr == nullptr) return cudaErrorInvalidValue;
  bool const slices = e.depth > 1 || of.at.z > 0;
  bool const pitched = slices || e.height > 1 || of.at.y > 0;
  if (pitched && (of.memory.pitch > max_pitch || !within(of.at.x, e.width, of.memory.pitch)))
    return cudaErrorInvalidPitchValue;
  if (slices && !within(of.at.y, e.height, of.memory.ysize)) return cudaErrorInvalidValue;
  return cudaSuccess;
}

// Whether all of `bytes` lies in the allocation of the pointer that it is reckoned from.
bool fits(runtime& r, end const& of, cudaExtent const& e, timeline const* t, use how) {
  std::size_t const bytes = of.bytes(e);
  bool const captured = t != nullptr && t->capture != nullptr;
  if (bytes != too_many && look_up(r, of.memory.ptr, bytes, captured).valid) return true;
  if (r.check != nullptr && t != nullptr) r.check->access(*t, r.check->act(t), of.memory.ptr, bytes, false, how);
  return false;
}

cudaError_t valid(runtime& r, end const& to, end const& from, cudaExtent const& e, cudaStream_t stream) {
  for (end const* const of : {&to, &from})
    if (cudaError_t const code = shape_of(*of, e); code != cudaSuccess) return code;
  if (empty(e)) return cudaSuccess;
  timeline const* const t = find_stream(r, stream);
  return fits(r, to, e, t, use::write) && fits(r, from, e, t, use::read) ? cudaSuccess : cudaErrorInvalidValue;
}

rows rows_of(end const& to, end const& from, cudaExtent const& e) {
  return {e.width, e.height, to.memory.pitch, from.memory.pitch, e.depth, to.slice(), from.slice()};
}

}  // namespace

cudaError_t copy_slices(call which, cudaMemcpy3DParms const* asked, cudaStream_t stream, host_waits waits) {
  return api(which, [&](runtime& r, held_lock& held) {
    if (asked == nullptr) return cudaErrorInvalidValue;
    end const to{asked->dstArray, asked->dstPtr, asked->dstPos};
    end const from{asked->srcArray, asked->srcPtr, asked->srcPos};
    if (cudaError_t const code = valid(r, to, from, asked->extent, stream); code != cudaSuccess) return code;
    rows const what = rows_of(to, from, asked->extent);
    return submit_copy(r, held, to.first(), from.first(), what, asked->kind, stream, waits);
  });
}

cudaError_t copy_slices(call which, cudaMemcpy3DPeerParms const* asked, cudaStream_t stream, host_waits waits) {
  return api(which, [&](runtime& r, held_lock& held) {
    if (asked == nullptr) return cudaErrorInvalidValue;
    end const to{asked->dstArray, asked->dstPtr, asked->dstPos};
    end const from{asked->srcArray, asked->srcPtr, asked->srcPos};
    if (cudaError_t const code = valid(r, to, from, asked->extent, stream); code != cudaSuccess) return code;
    peer_ends const ends{to.first(), asked->dstDevice, from.first(), asked->srcDevice};
    rows const what = rows_of(to, from, asked->extent);
    if (waits == host_waits::no) return copy_between(r, held, ends, what, stream);
    return copy_serialised(r, held, ends, what, stream, waits);
  });
}

cudaError_t set_slices(call which, cudaPitchedPtr const& to, int value, cudaExtent extent, cudaStream_t stream,
                       host_waits waits) {
  if (extent.depth > 1 && extent.height > to.ysize)
    return api(which, [](runtime&, held_lock&) { return cudaErrorInvalidValue; });
  rows const what{extent.width, extent.height, to.pitch, 0, extent.depth, times(to.pitch, to.ysize), 0};
  return set(which, to.ptr, value, what, stream, waits);
}

}  // namespace weir::sim::detail
