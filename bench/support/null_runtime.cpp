// A CUDA runtime that does nothing but count its calls: with it, benches measure what an allocator costs the host and
// nothing else. All work is done as soon as it is queued, unless a program asks for more. Device memory is reserved
// address space that must not be touched. Only what weir and the peers call is here; anything else is a link error.

#include "null_runtime.hpp"

#include <cuda_runtime_api.h>

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

namespace bench {
namespace {

using tally = std::array<std::uint64_t, call_kinds>;

struct tallies {
  std::mutex mutex;
  std::vector<tally*> of_threads;
  tally of_ended_threads{};
};
tallies& all() {
  static tallies* const t = new tallies;
  return *t;
}

// Counted per thread: one counter for all would make threads wait for each other, and that is what is measured.
struct own_tally {
  tally counts{};
  own_tally() {
    std::lock_guard const lock(all().mutex);
    all().of_threads.push_back(&counts);
  }
  ~own_tally() {
    std::lock_guard const lock(all().mutex);
    std::erase(all().of_threads, &counts);
    for (std::size_t k = 0; k < call_kinds; ++k) all().of_ended_threads[k] += counts[k];
  }
};

cudaError_t count(call_kind kind, std::uint64_t calls = 1) {
  thread_local own_tally mine;
  mine.counts[static_cast<std::size_t>(kind)] += calls;
  return cudaSuccess;
}

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last{1000};
  return ++last;
}

// Address space that is handed out once, front to back, and from the front again at the end: benches end before that
// meets anything live. The sizes stand beside it, by page, so that `cudaFree` knows what it gives back.
class device_memory {
 public:
  bool take_bytes(std::size_t bytes) {
    std::uint64_t const held = reserved_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (held > capacity_.load(std::memory_order_relaxed)) {
      give_bytes(bytes);
      return false;
    }
    std::uint64_t peak = peak_.load(std::memory_order_relaxed);
    while (held > peak && !peak_.compare_exchange_weak(peak, held, std::memory_order_relaxed)) {
    }
    return true;
  }
  void give_bytes(std::size_t bytes) { reserved_.fetch_sub(bytes, std::memory_order_relaxed); }
  void* take(std::size_t bytes) {
    if (!take_bytes(bytes)) return nullptr;
    std::uint64_t const span = (bytes + page - 1) / page;
    std::uint64_t first = next_.fetch_add(span, std::memory_order_relaxed) % pages_;
    if (first + span > pages_) first = next_.fetch_add(span, std::memory_order_relaxed) % pages_;
    sizes_[first] = bytes;
    return reinterpret_cast<void*>(base_ + first * page);
  }
  void give(void* p) {
    if (p == nullptr) return;
    std::uint64_t const first = (reinterpret_cast<std::uintptr_t>(p) - base_) / page;
    give_bytes(sizes_[first]);
    sizes_[first] = 0;
  }
  void start_again(std::size_t capacity) {
    capacity_ = capacity;
    peak_ = reserved_.load();
  }
  std::size_t reserved() const { return reserved_; }
  std::size_t peak() const { return peak_; }
  std::size_t capacity() const { return capacity_; }

  static device_memory& instance() {
    static device_memory* const memory = new device_memory;
    return *memory;
  }

 private:
  static constexpr std::uint64_t page = std::uint64_t{64} << 10;
  static constexpr std::uint64_t most_pages = (std::uint64_t{32} << 40) / page;

  static void* map(std::uint64_t bytes, int protection) {
    return mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }

  // Half as much where there is not so much address space, as under valgrind.
  device_memory() {
    void* p = MAP_FAILED;
    for (pages_ = most_pages; p == MAP_FAILED && pages_ > 1024; p == MAP_FAILED ? pages_ /= 2 : 0)
      p = map((pages_ + 1) * page, PROT_NONE);
    void* const sizes = map(pages_ * sizeof(std::uint64_t), PROT_READ | PROT_WRITE);
    if (p == MAP_FAILED || sizes == MAP_FAILED) {
      std::perror("null runtime: no address space for device memory");
      std::abort();
    }
    base_ = (reinterpret_cast<std::uintptr_t>(p) + page - 1) / page * page;
    sizes_ = static_cast<std::uint64_t*>(sizes);
  }

  std::uint64_t pages_ = 0;
  std::uintptr_t base_ = 0;
  std::uint64_t* sizes_ = nullptr;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> reserved_{0};
  std::atomic<std::uint64_t> peak_{0};
  std::atomic<std::uint64_t> capacity_{std::uint64_t{16} << 40};
};

cudaError_t give_out(void** p, std::size_t bytes) {
  *p = device_memory::instance().take(bytes);
  return *p != nullptr || bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
}

// When an event was recorded; the handle is its address.
using moment = std::atomic<std::uint64_t>;
std::uint64_t time_now = 0, time_of_work = 0;

moment& moment_of(cudaEvent_t event) { return *reinterpret_cast<moment*>(event); }
cudaError_t wait() {
  time_now += time_of_work;
  return count(call_kind::synchronize);
}

}  // namespace

call_counts cuda_calls() {
  std::lock_guard const lock(all().mutex);
  call_counts sum{all().of_ended_threads};
  for (tally const* t : all().of_threads)
    for (std::size_t k = 0; k < call_kinds; ++k) sum.by_kind[k] += (*t)[k];
  return sum;
}

void count_calls(call_kind kind, std::uint64_t calls) { count(kind, calls); }
bool take_device_bytes(std::size_t bytes) { return device_memory::instance().take_bytes(bytes); }
void give_device_bytes(std::size_t bytes) { device_memory::instance().give_bytes(bytes); }

void set_time_of_work(std::uint64_t time) { time_of_work = time; }
void pass_time() { ++time_now; }

void set_device_capacity(std::size_t bytes) { device_memory::instance().start_again(bytes); }
std::size_t device_bytes_held() { return device_memory::instance().reserved(); }
std::size_t device_bytes_peak() { return device_memory::instance().peak(); }

}  // namespace bench

using bench::call_kind;
using bench::count;

extern "C" {

cudaError_t cudaMalloc(void** p, std::size_t bytes) {
  count(call_kind::allocate);
  return bench::give_out(p, bytes);
}
cudaError_t cudaFree(void* p) {
  bench::device_memory::instance().give(p);
  return count(call_kind::free);
}
cudaError_t cudaHostAlloc(void** p, std::size_t bytes, unsigned) { return cudaMalloc(p, bytes); }
cudaError_t cudaFreeHost(void* p) { return cudaFree(p); }
cudaError_t cudaMallocManaged(void** p, std::size_t bytes, unsigned) { return cudaMalloc(p, bytes); }

cudaError_t cudaMallocFromPoolAsync(void** p, std::size_t bytes, cudaMemPool_t, cudaStream_t) {
  count(call_kind::allocate_async);
  return bench::give_out(p, bytes);
}
cudaError_t cudaMallocAsync(void** p, std::size_t bytes, cudaStream_t) {
  count(call_kind::allocate_async);
  return bench::give_out(p, bytes);
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t) {
  bench::device_memory::instance().give(p);
  return count(call_kind::free_async);
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, cudaMemPoolProps const*) {
  *pool = reinterpret_cast<cudaMemPool_t>(bench::next_number());
  return count(call_kind::other);
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t) { return count(call_kind::other); }
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = reinterpret_cast<cudaMemPool_t>(std::uintptr_t{1});
  return count(call_kind::other);
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return count(call_kind::other); }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
  *static_cast<std::uint64_t*>(value) = 0;
  return count(call_kind::other);
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) { return count(call_kind::other); }

cudaError_t cudaStreamGetFlags(cudaStream_t, unsigned* flags) {
  *flags = cudaStreamNonBlocking;
  return count(call_kind::query);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(bench::next_number());
  return count(call_kind::stream);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t) { return count(call_kind::stream); }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return bench::wait(); }
cudaError_t cudaMemsetAsync(void*, int, std::size_t, cudaStream_t) { return count(call_kind::other); }
#if CUDART_VERSION >= 13000
cudaError_t cudaMemAdvise(void const*, std::size_t, cudaMemoryAdvise, cudaMemLocation) {
  return count(call_kind::other);
}
cudaError_t cudaMemPrefetchAsync(void const*, std::size_t, cudaMemLocation, unsigned, cudaStream_t) {
  return count(call_kind::other);
}
#else
cudaError_t cudaMemAdvise(void const*, std::size_t, cudaMemoryAdvise, int) { return count(call_kind::other); }
cudaError_t cudaMemPrefetchAsync(void const*, std::size_t, int, cudaStream_t) { return count(call_kind::other); }
#endif
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* argument) {
  function(argument);
  return count(call_kind::other);
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return count(call_kind::other); }
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, cudaMemAccessDesc const*, std::size_t) {
  return count(call_kind::other);
}
cudaError_t cudaStreamQuery(cudaStream_t) { return count(call_kind::query); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return count(call_kind::wait); }
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  *id = reinterpret_cast<std::uintptr_t>(stream);
  return count(call_kind::stream_id);
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long*, cudaGraph_t*,
                                     cudaGraphNode_t const**,
#if CUDART_VERSION >= 13000
                                     cudaGraphEdgeData const**,
#endif
                                     size_t*) {
  *status = cudaStreamCaptureStatusNone;
  return count(call_kind::other);
}
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t*,
#if CUDART_VERSION >= 13000
                                         cudaGraphEdgeData*,
#endif
                                         size_t* how_many) {
  *how_many = 0;
  return count(call_kind::other);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return count(call_kind::other);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return count(call_kind::other); }
cudaError_t cudaStreamGetDevice(cudaStream_t, int* device) {
  *device = 0;
  return count(call_kind::device);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new bench::moment{0});
  return count(call_kind::event);
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &bench::moment_of(event);
  return count(call_kind::event);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  if (bench::time_of_work != 0) bench::moment_of(event).store(bench::time_now, std::memory_order_relaxed);
  return count(call_kind::record);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  count(call_kind::query);
  if (bench::time_of_work == 0) return cudaSuccess;
  std::uint64_t const passed = bench::time_now - bench::moment_of(event).load(std::memory_order_relaxed);
  return passed < bench::time_of_work ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return bench::wait(); }

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return count(call_kind::device);
}
cudaError_t cudaSetDevice(int) { return count(call_kind::device); }
cudaError_t cudaGetDeviceCount(int* devices) {
  *devices = 1;
  return count(call_kind::device);
}
cudaError_t cudaDeviceSynchronize() { return bench::wait(); }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 1;
  return count(call_kind::device);
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return count(call_kind::device);
}
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  *total_bytes = bench::device_memory::instance().capacity();
  *free_bytes = *total_bytes - bench::device_memory::instance().reserved();
  return count(call_kind::device);
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return count(call_kind::device);
}
#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(char const* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
#else
cudaError_t cudaGetDriverEntryPoint(char const* name, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* result) {
#endif
  *function = bench::null_driver_function(name);
  if (result != nullptr)
    *result = *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }

// Nothing fails here but a lack of memory, and who gets that asks the result. No call to the device, so not counted.
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
char const* cudaGetErrorName(cudaError_t code) {
  return code == cudaSuccess ? "cudaSuccess" : "cudaErrorMemoryAllocation";
}
char const* cudaGetErrorString(cudaError_t code) { return code == cudaSuccess ? "no error" : "out of memory"; }
}
