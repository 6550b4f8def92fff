#pragma once
// What a memory resource is, and what every resource can do because it is one.

#include <weir/core/bytes.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace weir {

/// An object that hands out memory in stream order. Two functions are the whole requirement (docs/concepts.md):
/// `allocate` returns `bytes` aligned to `alignment`, usable at once by work on `stream`; zero bytes give `nullptr`.
/// `deallocate` takes back exactly what `allocate` gave, after the work queued on `stream` so far.
template <class R>
concept resource = requires(R& r, stream_ref s, void* p, std::size_t n) {
  { r.allocate(s, n, n) } -> std::same_as<void*>;
  { r.deallocate(s, p, n, n) }
  noexcept;
};

/// Facts about the memory a resource gives, known when compiled. A resource that does not state one does not have it:
/// `device_accessible`, `host_accessible`: kernels / the host may dereference it;
/// `host_ordered`: the resource understands `weir::host_order` (every resource of weir does).
template <class R>
inline constexpr bool device_accessible = [] {
  if constexpr (requires { R::device_accessible; }) return bool{R::device_accessible};
  return false;
}();
template <class R>
inline constexpr bool host_accessible = [] {
  if constexpr (requires { R::host_accessible; }) return bool{R::host_accessible};
  return false;
}();
template <class R>
inline constexpr bool host_ordered = [] {
  if constexpr (requires { R::host_ordered; }) return bool{R::host_ordered};
  return false;
}();

/// `knows_blocks`: a `deallocate` of what it did not give, or gave with another size or alignment, is reported as
/// misuse by it or a layer below, and the memory kept (`pool` and its like). The layers above then need not judge it.
template <class R>
inline constexpr bool knows_blocks = [] {
  if constexpr (requires { R::knows_blocks; }) return bool{R::knows_blocks};
  return false;
}();

/// How many bytes of what `r` hands out a request takes, rounding and padding for alignment included: what a budget
/// charges for it. 0 if that exceeds `std::size_t`. The same for the same arguments as long as `r` lives; any thread.
/// A resource says so by having `taken(bytes, alignment) const`. One that does not is asked through its `upstream()`,
/// as it passes requests on; without that, it takes what is asked for.
template <class R>
std::size_t taken(R const& r, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
  if constexpr (requires { r.taken(bytes, alignment); })
    return r.taken(bytes, alignment);
  else if constexpr (requires { r.upstream(); })
    return weir::taken(r.upstream(), bytes, alignment);
  else
    return bytes;
}

/// True while `r` or a layer below keeps memory that was freed for a stream capture (`capture`: its id; 0: for any),
/// until `release_captured`. Any thread; may take a pool's lock. Resources answer by `holds_captured(capture) const`,
/// or through their `upstream()`; others keep none.
template <class R>
bool holds_captured(R const& r, std::uint64_t capture) noexcept {
  if constexpr (requires { r.holds_captured(capture); })
    return r.holds_captured(capture);
  else if constexpr (requires { r.upstream(); })
    return weir::holds_captured(r.upstream(), capture);
  else
    return false;
}

/// The device that a stack is for, whichever is current: what its outermost layer with a `device()` says; layers
/// without one are asked for their `upstream()`. -1 where none says, as on `host` memory. Makes no CUDA call.
template <class R>
int device_of(R&& r) noexcept {
  if constexpr (requires { int{r.device()}; })
    return r.device();
  else if constexpr (requires { r.upstream(); })
    return weir::device_of(r.upstream());
  else
    return -1;
}

namespace detail {

/// The device whose default streams a layer above `r` works with: the stack's, or the current one where no layer says.
/// 0 on a machine without a GPU. Throws `cuda_error` where CUDA fails to say.
template <class R>
int device_for(R&& r) {
  int device = weir::device_of(r);
  if (device >= 0) return device;
  cudaError_t const code = cudaGetDevice(&device);
  if (succeeded(code)) return device;
  if (!cuda_is_absent(code)) check(code, "cudaGetDevice");
  return 0;
}

}  // namespace detail

/// Memory that is ready for the host and every stream on return; throws as `r.allocate` does.
/// A resource that only knows streams is asked on the legacy default stream of its device, which is then waited for:
/// where that would break a stream capture, `cuda_error` is thrown instead.
template <resource R>
void* allocate_sync(R& r, std::size_t bytes, std::size_t alignment = default_alignment) {
  if constexpr (host_ordered<R>) {
    return r.allocate(host_order, bytes, alignment);
  } else {
    stream_ref const stream = stream_ref::lasting(cudaStreamLegacy, 0);  // the same in every file
    if (bytes == 0) return r.allocate(stream, bytes, alignment);
    device_guard const on_device(detail::device_for(r));
    if (detail::may_break_capture(stream.get())) detail::check(cudaErrorStreamCaptureImplicit, "cudaStreamSynchronize");
    void* const p = r.allocate(stream, bytes, alignment);
    cudaError_t const code = detail::relaxed([&] { return cudaStreamSynchronize(stream.get()); });
    if (code != cudaSuccess) r.deallocate(stream, p, bytes, alignment);
    detail::check(code, "cudaStreamSynchronize");
    return p;
  }
}

/// Gives back memory that no work uses any more: the caller has waited for the stream it was allocated on (even if the
/// memory was never used: what it was reused from may still be) and for all that used it.
template <resource R>
void deallocate_sync(R& r, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
  if constexpr (host_ordered<R>) {
    r.deallocate(host_order, p, bytes, alignment);
  } else {
    stream_ref const stream = stream_ref::lasting(cudaStreamLegacy, 0);
    detail::device_switch const on_device(weir::device_of(r));  // where CUDA does not answer, none is better
    r.deallocate(stream, p, bytes, alignment);
  }
}

}  // namespace weir
