#pragma once
// CUDA's allocation calls, checked: too little memory is an answer (nullptr), anything else that fails is an error.

#include <weir/cuda/capture.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/process_exit.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace weir {

/// What other processes may open memory by.
enum class memory_handle {
  none,      ///< they cannot
  posix_fd,  ///< a file descriptor: see `virtual_memory` and `export_pool`
};

namespace detail {

/// `p` where `code` is success, nullptr where memory ran out; throws `cuda_error` otherwise. Clears the last error.
inline void* obtained(void* p, cudaError_t code, char const* call) {
  if (succeeded(code)) [[likely]]
    return p;
  if (code == cudaErrorMemoryAllocation) return nullptr;
  throw cuda_error(code, call, __builtin_FILE(), __builtin_LINE());
}

inline void* try_malloc(std::size_t bytes) {
  void* p = nullptr;
  cudaError_t const code = relaxed([&] { return cudaMalloc(&p, bytes); });
  return obtained(p, code, "cudaMalloc");
}

inline void* try_malloc_managed(std::size_t bytes) {
  void* p = nullptr;
  cudaError_t const code = relaxed([&] { return cudaMallocManaged(&p, bytes, cudaMemAttachGlobal); });
  return obtained(p, code, "cudaMallocManaged");
}

/// Page-locked host memory that every device of the process can use.
inline void* try_malloc_host(std::size_t bytes) {
  void* p = nullptr;
  cudaError_t const code = relaxed([&] { return cudaHostAlloc(&p, bytes, cudaHostAllocPortable); });
  return obtained(p, code, "cudaHostAlloc");
}

inline void* try_malloc_from_pool(cudaMemPool_t pool, std::size_t bytes, cudaStream_t stream) {
  void* p = nullptr;
  cudaError_t const code = cudaMallocFromPoolAsync(&p, bytes, pool, stream);
  return obtained(p, code, "cudaMallocFromPoolAsync");
}

/// Blocks until all work of `device` (negative: of each there is) is done, and says whether it is known to be. Not
/// while a capture is declared, or a blocking stream of the device captures, which such a wait would break.
inline bool wait_for_device(int device) noexcept {
  if (captures_declared()) return false;
  if (device < 0) {
    int count = 0;
    bool done = succeeded(cudaGetDeviceCount(&count));
    while (done && count != 0) done = wait_for_device(--count);
    return done;
  }
  device_switch const on_device(device);
  return on_device.is_current() && !may_break_capture(cudaStreamLegacy) && succeeded(cudaDeviceSynchronize());
}

/// Gives a blocking stream something to do. What the legacy stream was given comes before whatever a blocking stream
/// is given next, but a wait for one that has no work need not wait for that. A host function, since that needs no
/// device to be current.
inline cudaError_t come_after_legacy(cudaStream_t stream) noexcept {
  if (stream == cudaStreamLegacy) return cudaSuccess;
  unsigned flags = 0;
  cudaError_t const code = cudaStreamGetFlags(stream, &flags);
  if (code != cudaSuccess || (flags & cudaStreamNonBlocking) != 0) return code;
  return cudaLaunchHostFunc(
      stream, [](void*) {}, nullptr);
}

/// Blocks until the work queued on `stream` so far is done, and what comes before its next, which may be the legacy
/// stream's; says whether it is known to be. Where CUDA cannot wait for the stream (it may have been destroyed), all
/// work of `device` is waited for instead. A stream that is being captured is not waited for: what it was given runs
/// whenever the graph does.
inline bool wait_for(stream_ref stream, int device) noexcept {
  if (may_break_capture(stream.get())) return false;
  auto const wait = [&] {
    cudaError_t const code = come_after_legacy(stream.get());
    return code == cudaSuccess ? cudaStreamSynchronize(stream.get()) : code;
  };
  cudaError_t const code = relaxed(wait);
  if (succeeded(code) || cuda_is_absent(code)) return true;
  if (!wait_for_device(device)) return false;
  // A stream that still has work is there after all, and another device's; one that CUDA does not know is gone.
  cudaError_t const now = relaxed([&] { return cudaStreamQuery(stream.get()); });
  return succeeded(now) || now == cudaErrorInvalidResourceHandle ||
         (now == cudaErrorNotReady && succeeded(relaxed(wait)));
}

/// Owns a CUDA memory pool, or borrows one: a device's default pool, or any other.
class memory_pool {
 public:
  /// A pool of its own on `device` that holds `max_bytes` at most (0: as much as there is).
  static memory_pool create(int device, std::size_t max_bytes, memory_handle handle = memory_handle::none) {
    cudaMemPoolProps props{};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = device;
    props.maxSize = max_bytes;
    if (handle == memory_handle::posix_fd) props.handleTypes = cudaMemHandleTypePosixFileDescriptor;
    return create(props);
  }
  static memory_pool create(cudaMemPoolProps const& props) {
    cudaMemPool_t made = nullptr;
    check(cudaMemPoolCreate(&made, &props), "cudaMemPoolCreate");
    return owner_of(made);
  }
  static memory_pool owner_of(cudaMemPool_t pool) noexcept {
    memory_pool owner;
    owner.handle_ = pool;
    owner.owned_ = true;
    return owner;
  }

  static memory_pool default_of(int device) {
    memory_pool borrowed;
    check(cudaDeviceGetDefaultMemPool(&borrowed.handle_, device), "cudaDeviceGetDefaultMemPool");
    return borrowed;
  }

  static memory_pool view_of(cudaMemPool_t pool) noexcept {
    memory_pool borrowed;
    borrowed.handle_ = pool;
    return borrowed;
  }

  ~memory_pool() {
    if (owned_ && !life_.is_exiting()) succeeded(cudaMemPoolDestroy(handle_));
  }
  memory_pool(memory_pool&& other) noexcept : handle_(other.handle_), owned_(std::exchange(other.owned_, false)) {}
  memory_pool& operator=(memory_pool&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(owned_, other.owned_);
    return *this;
  }

  cudaMemPool_t get() const noexcept { return handle_; }
  bool is_owned() const noexcept { return owned_; }

  /// One of the reuse policies, which CUDA keeps as `int`s.
  void allow(cudaMemPoolAttr policy, bool allowed) {
    int value = allowed ? 1 : 0;
    check(cudaMemPoolSetAttribute(handle_, policy, &value), "cudaMemPoolSetAttribute");
  }
  /// One of the byte counts, which CUDA keeps as 64-bit numbers.
  void set(cudaMemPoolAttr bytes, std::uint64_t value) {
    check(cudaMemPoolSetAttribute(handle_, bytes, &value), "cudaMemPoolSetAttribute");
  }
  std::uint64_t get(cudaMemPoolAttr bytes) const {
    std::uint64_t value = 0;
    check(cudaMemPoolGetAttribute(handle_, bytes, &value), "cudaMemPoolGetAttribute");
    return value;
  }
  /// Lets another device use what the pool gives.
  void let_in(int device) {
    cudaMemAccessDesc access{};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = device;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    check(cudaMemPoolSetAccess(handle_, &access, 1), "cudaMemPoolSetAccess");
  }
  void trim(std::size_t keep_bytes) {
    check(relaxed([&] { return cudaMemPoolTrimTo(handle_, keep_bytes); }), "cudaMemPoolTrimTo");
  }

 private:
  memory_pool() = default;

  cudaMemPool_t handle_ = nullptr;
  bool owned_ = false;
  process_exit life_;
};

/// Owns a stream that does not synchronise with the legacy default stream, for a source's own calls.
class internal_stream {
 public:
  explicit internal_stream(int device) {
    device_guard const on_device(device);
    check(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  ~internal_stream() {
    if (!life_.is_exiting()) succeeded(cudaStreamDestroy(handle_));
  }
  internal_stream(internal_stream const&) = delete;
  internal_stream& operator=(internal_stream const&) = delete;

  cudaStream_t get() const noexcept { return handle_; }

 private:
  cudaStream_t handle_ = nullptr;
  process_exit life_;
};

}  // namespace detail
}  // namespace weir
