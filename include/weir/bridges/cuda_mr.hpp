#pragma once
// Stacks as cuda::mr resources and the other way round, with CCCL 2.8 and newer (toolkits 12.9 and 13). The only header
// of weir that includes <cuda/memory_resource>.

#include <weir/core/any_ref.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/error.hpp>
#include <weir/core/handle.hpp>
#include <weir/core/options.hpp>
#include <weir/core/printable.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/process_exit.hpp>
#include <weir/sources/shifted_blocks.hpp>
#include <weir/sources/source_device.hpp>

#include <cuda/version>

// Up to CCCL 3.1 cuda::mr has to be asked for, before the first include of its header.
#if CCCL_VERSION < 3002000 && !defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#if defined(_CUDA_MEMORY_RESOURCE)
#error \
    "weir: <cuda/memory_resource> was included before without LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE, \
so it is empty: define that for the whole program, or include <weir/bridges/cuda_mr.hpp> first"
#endif
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#endif
#include <cuda/std/__exception/cuda_error.h>
#include <cuda_runtime_api.h>
#include <cuda/memory_resource>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace weir {

/// Handles (`share(memory)`, `any_ref`, `any_resource`) are `cuda::mr` resources; this tells where their memory can be
/// reached. Include this header before `cuda::mr` is first asked about a handle: compilers remember the answer.
template <handle R>
requires device_accessible<R>
constexpr void get_property(R const&, ::cuda::mr::device_accessible) noexcept {}
template <handle R>
requires host_accessible<R>
constexpr void get_property(R const&, ::cuda::mr::host_accessible) noexcept {}

namespace detail {

// The names that this CCCL has for the two concepts and the four calls.
#if CCCL_VERSION >= 3001000
template <class R>
concept mr_resource = ::cuda::mr::synchronous_resource<R>;
template <class R>
concept mr_stream_ordered = ::cuda::mr::resource<R>;

template <class R>
void* mr_allocate(R& r, cudaStream_t stream, std::size_t bytes) {
  if constexpr (mr_stream_ordered<R>)
    return r.allocate(::cuda::stream_ref(stream), bytes, default_alignment);
  else
    return r.allocate_sync(bytes, default_alignment);
}
template <class R>
void mr_deallocate(R& r, cudaStream_t stream, void* p, std::size_t bytes) {
  if constexpr (mr_stream_ordered<R>)
    r.deallocate(::cuda::stream_ref(stream), p, bytes, default_alignment);
  else
    r.deallocate_sync(p, bytes, default_alignment);
}
#else
template <class R>
concept mr_resource = ::cuda::mr::resource<R>;
template <class R>
concept mr_stream_ordered = ::cuda::mr::async_resource<R>;

template <class R>
void* mr_allocate(R& r, cudaStream_t stream, std::size_t bytes) {
  if constexpr (mr_stream_ordered<R>)
    return r.allocate_async(bytes, default_alignment, ::cuda::stream_ref(stream));
  else
    return r.allocate(bytes, default_alignment);
}
template <class R>
void mr_deallocate(R& r, cudaStream_t stream, void* p, std::size_t bytes) {
  if constexpr (mr_stream_ordered<R>)
    r.deallocate_async(p, bytes, default_alignment, ::cuda::stream_ref(stream));
  else
    r.deallocate(p, bytes, default_alignment);
}
#endif

// Not written where they are used: there nvcc 13.0 does not take them.
template <class R>
inline constexpr bool mr_on_device = ::cuda::has_property<R, ::cuda::mr::device_accessible>;
template <class R>
inline constexpr bool mr_on_host = ::cuda::has_property<R, ::cuda::mr::host_accessible>;

/// The CUDA error that a resource means. CCCL before 3.2 does not tell: lack of memory then, which is the usual one.
inline cudaError_t code_of([[maybe_unused]] ::cuda::cuda_error const& error) noexcept {
#if CCCL_VERSION >= 3002000
  return error.status();
#else
  return cudaErrorMemoryAllocation;
#endif
}

/// Not in reach of `R`'s operators, as a template of `R` would be: a reference of CCCL 3.0 converts from all that can
/// be compared, so comparing handles to this would ask whether they can be compared.
template <class R>
struct cuda_mr_source {
  class type;
};

template <class R>
class cuda_mr_source<R>::type {
 public:
  static constexpr bool device_accessible = mr_on_device<R>;
  static constexpr bool host_accessible = mr_on_host<R>;
  static constexpr bool host_ordered = true;
  static constexpr char const* layer_name = "cuda_mr";

  type(R resource, int device) : resource_(std::move(resource)), device_(device) {
    if constexpr (mr_stream_ordered<R>) own_stream_.emplace(device);
  }
  type(type const&) = delete;  // weir: neither copied nor moved; pass weir::share(memory)
  type& operator=(type const&) = delete;

  /// Throws `out_of_memory` where the resource throws `std::bad_alloc` or says `cudaErrorMemoryAllocation`, with its
  /// words; `cuda_error` for its other `cuda::cuda_error`s, `std::logic_error` where it gives memory that is not
  /// aligned to 256, `std::invalid_argument` for an alignment beyond 2 MiB, and all else that it throws.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    require_alignment(alignment);
    if (wants_captured_memory(stream)) refuse(stream, bytes, "only captured memory was wanted");
    if (life_.is_exiting()) check(process_exit::error, "cuda_mr");
    life_.settle();
    void* const p = shifted_.allocate(
        bytes, alignment, [&](std::size_t n) { return take(stream, n, bytes); },
        [&](void* base) { give(stream, base, asked_for(bytes, alignment)); });
    if (p == nullptr)
      refuse(stream, bytes, bytes > largest_request ? "more than any address space has" : "it gave null");
    return p;
  }

  /// A resource without streams is waited for: the host blocks until the work queued on `stream` so far is done.
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr || life_.is_exiting()) return;
    if constexpr (!mr_stream_ordered<R>)
      if (!stream.is_host_order() && !wait_for(stream, device_)) return note_kept();
    give(stream, shifted_.base_of(p, alignment), asked_for(bytes, alignment));
  }

  /// The device that the recipe named, or that was current at `make`; -1 for host memory without streams.
  int device() const noexcept { return device_; }
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept {
    return padded_or_zero(bytes, alignment);
  }
  R const& resource() const noexcept { return resource_; }

  void describe(report& out) const { out.below("cuda_mr", "a cuda::mr resource; it does not say what it holds"); }

 private:
  [[noreturn, gnu::noinline, gnu::cold]] void refuse(stream_ref stream, std::size_t bytes, char const* why) const {
    report own;
    own.below("cuda_mr", std::string("a cuda::mr resource: ") + printable(why));
    own.hint(hint_for(bytes, own,
                      "the cuda::mr resource has no more, and does not say of what: free something, ask for less, or "
                      "raise its own limit"));
    throw out_of_memory({bytes, round_up_or_zero(bytes, default_alignment), stream, device_}, "cuda_mr", own);
  }

  [[noreturn, gnu::noinline, gnu::cold]] void refuse_misaligned(stream_ref stream, void* p, std::size_t bytes) {
    std::string const address = hex(p);
    give(stream, p, bytes);
    throw std::logic_error("weir: cuda_mr: the cuda::mr resource returned " + address + " for " +
                           std::to_string(bytes) + " B aligned to " + std::to_string(default_alignment) +
                           ", which is not so aligned; it was given back. Let the resource honour the alignment that "
                           "it is given");
  }

  static std::size_t asked_for(std::size_t bytes, std::size_t alignment) noexcept {
    return alignment <= default_alignment ? bytes : padded_or_zero(bytes, alignment);
  }

  // `cuda::mr` does not say that memory of its calls with a stream may be freed by those without, or the other way
  // round. So only those with a stream are made where there are any, in host order on a stream of this source's own.
  cudaStream_t order_of(stream_ref stream) const noexcept {
    return stream.is_host_order() && own_stream_ ? own_stream_->get() : stream.get();
  }

  /// `wanted`: what of `bytes` the caller asked for.
  void* take(stream_ref stream, std::size_t bytes, std::size_t wanted) {
    void* const p = take_in_order(stream, bytes, wanted);
    if ((reinterpret_cast<std::uintptr_t>(p) & (default_alignment - 1)) != 0) refuse_misaligned(stream, p, bytes);
    if (p == nullptr || !stream.is_host_order() || !own_stream_) return p;
    cudaError_t const code = relaxed([this] { return cudaStreamSynchronize(own_stream_->get()); });
    if (code != cudaSuccess) give(stream, p, bytes);
    check(code, "cudaStreamSynchronize");
    return p;
  }
  void* take_in_order(stream_ref stream, std::size_t bytes, std::size_t wanted) try {
    return called<device_guard>([&] { return mr_allocate(resource_, order_of(stream), bytes); });
  } catch (out_of_memory const&) {
    throw;  // with a report of its own
  } catch (std::bad_alloc const& error) {
    refuse(stream, wanted, error.what());
  } catch (::cuda::cuda_error const& error) {
    if (code_of(error) != cudaErrorMemoryAllocation) check(code_of(error), "allocate of a cuda::mr resource");
    refuse(stream, wanted, error.what());
  }
  void give(stream_ref stream, void* p, std::size_t bytes) noexcept try {
    called<device_switch>([&] { mr_deallocate(resource_, order_of(stream), p, bytes); });
  } catch (std::exception const& error) {
    report_throw(p, bytes, error.what());
  } catch (...) {
    report_throw(p, bytes, "something that is no std::exception");
  }
  [[gnu::noinline, gnu::cold]] static void report_throw(void* p, std::size_t bytes, char const* what) noexcept {
    report_misuse("weir: cuda_mr: deallocate of " + hex(p) + " (" + std::to_string(bytes) + " B) threw: " +
                  printable(what) + "; a deallocate must not throw, and whether the memory went back is not known");
  }
  /// With the device current, since a resource may well take memory of that one. One without streams may well call
  /// `cudaMalloc` and `cudaFree`, which would break a capture.
  template <class Guard, class F>
  decltype(auto) called(F f) const {
    if constexpr (device_accessible) {
      Guard const on_device(device_);
      if constexpr (mr_stream_ordered<R>)
        return f();
      else
        return relaxed(f);
    } else {
      return f();
    }
  }

  process_exit life_;
  R resource_;
  int device_;
  std::optional<internal_stream> own_stream_;  // of a stream-ordered resource
  shifted_blocks shifted_;
};

}  // namespace detail

/// Made by `from_cuda_mr`. As thread-safe as the resource. Alignment: 256 B or as asked, up to 2 MiB.
template <class R>
using cuda_mr_resource = typename detail::cuda_mr_source<R>::type;

/// Source: memory of a `cuda::mr` resource, for stacks on CCCL's pools and on anybody's resources:
/// `from_cuda_mr(cuda::device_memory_pool_ref(...)) | pool{}`. Holds a copy of the resource. A resource that cannot be
/// copied is given as a `cuda::mr::resource_ref`, and outlives the stack then. Where the memory can be reached is what
/// the resource's properties say. When not to use it: for memory that `async`, `managed` or `pinned` give, which tell
/// more in reports.
template <class R>
struct from_cuda_mr {
  static_assert(detail::mr_resource<R>, "weir::from_cuda_mr: this is no cuda::mr resource");
  static_assert(std::copy_constructible<R>,
                "weir::from_cuda_mr: this resource cannot be copied; give a reference, such as "
                "cuda::mr::resource_ref<cuda::mr::device_accessible>(resource)");

  R resource;
  int device = -1;  ///< whose memory it gives; -1: the device current at `make`

  /// `resource` is copied, now and by `make`.
  explicit from_cuda_mr(R memory, int on_device = -1) : resource(std::move(memory)), device(on_device) {}

  static constexpr char const* layer_name = "cuda_mr";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(detail::device_option<from_cuda_mr>());
  }

  /// Empty if these options are valid, else what is wrong with them.
  std::string problem() const { return option::first_problem(*this); }
  bool valid() const { return problem().empty(); }

  cuda_mr_resource<R> operator()() const {
    detail::require_valid(*this);
    bool constexpr has_device = device_accessible<cuda_mr_resource<R>> || detail::mr_stream_ordered<R>;
    return cuda_mr_resource<R>(resource, has_device ? detail::chosen_device("cuda_mr", device) : -1);
  }
};

}  // namespace weir
