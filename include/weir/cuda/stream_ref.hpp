#pragma once
// The order in which memory is used: a CUDA stream, or the host's own program order.

#include <weir/version.hpp>

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace weir {
namespace detail {

// `static` on purpose: each translation unit has its own answer. Only default template arguments read it, so that
// functions compiled with different answers have different names and one program may mix both.
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
static constexpr bool per_thread_default_stream = true;
#else
static constexpr bool per_thread_default_stream = false;
#endif

/// True for the two names that stand for a default stream: of whichever device is current, and the one of whichever
/// thread calls.
inline bool is_default_stream(cudaStream_t named) noexcept {
  return named == cudaStreamLegacy || named == cudaStreamPerThread;
}

template <class S>
concept gives_stream_by_get = requires(S const& s) {
  { s.get() } -> std::same_as<cudaStream_t>;
};
template <class S>
concept gives_stream_by_value = !gives_stream_by_get<S> && requires(S const& s) {
  { s.value() } -> std::same_as<cudaStream_t>;
};

template <class S>
concept stream_of_handle = std::same_as<S, cudaStream_t> ||
    ((gives_stream_by_get<S> || gives_stream_by_value<S>)&&std::constructible_from<S, cudaStream_t>);

}  // namespace detail

/// The order of the host's own program: no stream. `allocate` in it returns memory that every stream may use at once;
/// `deallocate` in it says that all work on the memory is done, and all work queued before it on the stream it was
/// allocated on. STL containers live in it, and pools take segments in it.
struct host_order_t {};
inline constexpr host_order_t host_order{};

/// Names the order that an allocation or a free takes its place in; owns nothing, two words, passed by value.
///
/// Converts from `cudaStream_t` and from anything alike (`cuda::stream_ref`, `rmm::cuda_stream_view`, `weir::stream`),
/// and to what is alike and made of a handle.
/// The default handle 0 is resolved here, once, to the legacy or the per-thread default stream by how the *caller's*
/// file was compiled (`--default-stream`), so the rest of the library never sees 0.
class stream_ref {
 public:
  /// The default stream of the file that writes this.
  template <bool PerThread = detail::per_thread_default_stream>
  stream_ref() noexcept : stream_ref(resolve<PerThread>(nullptr), 0) {}

  template <bool PerThread = detail::per_thread_default_stream>
  stream_ref(cudaStream_t handle) noexcept : stream_ref(resolve<PerThread>(handle), 0) {}

  template <detail::gives_stream_by_get S, bool PerThread = detail::per_thread_default_stream>
  stream_ref(S const& stream) noexcept(noexcept(stream.get()))
      : stream_ref(resolve<PerThread>(stream.get()), id_of(stream)) {}

  template <detail::gives_stream_by_value S, bool PerThread = detail::per_thread_default_stream>
  stream_ref(S const& stream) noexcept : stream_ref(resolve<PerThread>(stream.value()), 0) {}

  // Compilers print these lines with the error.
  stream_ref(int) = delete;  // weir: a number is no stream; the default stream is weir::stream_ref(); give it first
  stream_ref(std::nullptr_t) = delete;  // weir: nullptr is no stream; the default stream is weir::stream_ref()

  /// A stream that is never destroyed while memory resources live, with the id CUDA gave it (`cudaStreamGetId`).
  /// Pools need no CUDA call to recognise it. `weir::stream` makes these; a wrong promise here breaks stream order.
  /// A default stream is known without one.
  template <bool PerThread = detail::per_thread_default_stream>
  static stream_ref lasting(cudaStream_t handle, std::uint64_t id) noexcept {
    return {resolve<PerThread>(handle), id};
  }

  stream_ref(host_order_t) noexcept : handle_(cudaStreamLegacy), id_(host_id) {}

  /// The handle to give to CUDA; never 0. In host order it is the legacy stream's.
  cudaStream_t get() const noexcept { return handle_; }

  /// Memory allocated in host order is ready for everyone on return; memory freed in it is in nobody's use any more.
  bool is_host_order() const noexcept { return id_ == host_id; }
  /// The stream's id where its handle is known to outlive every resource, else 0.
  std::uint64_t lasting_id() const noexcept { return id_ + 1 > 1 ? id_ : 0; }  // in one comparison

  /// The handle, or another library's stream that is made of one (`cuda::stream_ref`, `rmm::cuda_stream_view`).
  template <detail::stream_of_handle S>
  operator S() const noexcept {
    return S(handle_);
  }

  friend bool operator==(stream_ref a, stream_ref b) noexcept {
    return a.handle_ == b.handle_ && a.is_host_order() == b.is_host_order();
  }
  /// With a handle, or with another library's stream.
  template <detail::stream_of_handle S>
  friend bool operator==(stream_ref a, S const& b) noexcept {
    return a == stream_ref(b);
  }

 private:
  static constexpr std::uint64_t host_id = ~std::uint64_t{0};

  template <bool PerThread>
  static cudaStream_t resolve(cudaStream_t handle) noexcept {
    if (handle != nullptr) return handle;
    return PerThread ? cudaStreamPerThread : cudaStreamLegacy;
  }

  template <class S>
  static std::uint64_t id_of(S const& stream) noexcept {
    if constexpr (requires { stream.lasting_id(); }) return stream.lasting_id();
    return 0;
  }

  // One per-thread handle is a stream for each thread: a default stream is never known by an id.
  stream_ref(cudaStream_t handle, std::uint64_t id) noexcept
      : handle_(handle), id_(detail::is_default_stream(handle) ? 0 : id) {}

  cudaStream_t handle_;
  std::uint64_t id_;  // of a persistent stream; 0: ask CUDA
};

}  // namespace weir
