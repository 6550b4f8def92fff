// The sources: where a stack's memory comes from, and who can reach it.
//
// Allocates from each, lets the device (and, where it may, the host) use the memory, gives it back, and shows what a
// source says when there is no more. Runs on a GPU and on the simulated runtime. Exit status 0 if all went well.

#include <weir/sources.hpp>

#include <weir/cuda/stream.hpp>

#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace {

/// One allocation on a stream, used and freed there: nothing but the calls themselves orders them.
template <weir::resource R>
void use(char const* name, R& memory, weir::stream const& stream) {
  using namespace weir::literals;
  void* const p = memory.allocate(stream, 1_MiB);
  cudaError_t filled = cudaSuccess;
  if constexpr (weir::device_accessible<R>) filled = cudaMemsetAsync(p, 1, 1_MiB, stream.get());
  if constexpr (weir::host_accessible<R>) {
    stream.synchronize();  // the host is not in the stream's order
    std::memset(p, 2, 1_MiB);
  }
  memory.deallocate(stream, p, 1_MiB);
  if (filled != cudaSuccess) throw std::runtime_error("cudaMemsetAsync failed");
  std::printf("%-13s device %-3s host %s\n", name, weir::device_accessible<R> ? "yes" : "no",
              weir::host_accessible<R> ? "yes" : "no");
}

}  // namespace

int main() try {
  using namespace weir::literals;
  weir::stream const stream;

  auto async = weir::make(weir::async{.max_bytes = 64_MiB, .initial_bytes = 8_MiB});
  auto device = weir::make(weir::device{});
  auto managed = weir::make(weir::managed{});
  auto pinned = weir::make(weir::pinned{});
  auto host = weir::make(weir::host{});

  use("async", async, stream);
  cudaMemPool_t current = nullptr;  // any pool of CUDA's will do: here the one that plain cudaMallocAsync takes from
  if (cudaDeviceGetMemPool(&current, weir::current_device()) != cudaSuccess) return 1;
  auto in_current = weir::make(weir::async{.pool = current});
  use("async{.pool}", in_current, stream);
  use("device", device, stream);
  use("managed", managed, stream);
  use("pinned", pinned, stream);
  use("host", host, stream);
#if CUDART_VERSION >= 13000
  auto async_managed = weir::make(weir::async_managed{});
  auto async_pinned = weir::make(weir::async_pinned{});
  use("async_managed", async_managed, stream);
  use("async_pinned", async_pinned, stream);
#endif
  try {  // where the device reaches memory of malloc, as on Grace Hopper
    auto system = weir::make(weir::system{.headroom_bytes = 1_GiB});
    use("system", system, stream);
  } catch (std::invalid_argument const& refused) {
    std::printf("%s\n", refused.what());
  }

  // Outside of any stream: ready for everyone on return, free once everyone is done.
  void* const table = pinned.allocate(weir::host_order, 4096, 4096);
  std::memset(table, 0, 4096);
  pinned.deallocate(weir::host_order, table, 4096, 4096);

  try {
    async.allocate(stream, 1_GiB);
  } catch (weir::out_of_memory const& error) {
    std::printf("\n%s\n", error.what());
    return 0;
  }
  std::puts("1 GiB came from a pool of 64 MiB");
  return 1;
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
