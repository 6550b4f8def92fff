// Standard containers on a stack: a vector in pinned memory that an asynchronous copy reads, a map, and std::pmr.
// Builds with nvcc (-x cu) for a GPU and, on the simulated runtime, with any C++20 compiler.

#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/bridges/pmr.hpp>
#include <weir/bridges/stl.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/pinned.hpp>

#include <cuda_runtime_api.h>

#include <cstdio>
#include <functional>
#include <map>
#include <memory_resource>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

using namespace weir::literals;

namespace {

// The type does not name the stack, so this function needs no template.
long long sum(std::vector<int, weir::allocator<int>> const& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0LL);
}

void require(cudaError_t code) {
  if (code != cudaSuccess) throw weir::cuda_error(code, "cudaMemcpyAsync", __FILE__, __LINE__);
}

}  // namespace

int main() {
  auto host = weir::make(weir::pinned{} | weir::pool{.initial_bytes = 1_MiB} | weir::statistics{});
  auto device = weir::make(weir::async{} | weir::pool{});
  weir::stream const stream;

  // Freed in the order of `stream`: the vectors may go out of scope while the copies still run.
  std::size_t const bytes = 1000 * sizeof(int);
  std::vector<int, weir::allocator<int>> back(1000, weir::allocator<int>(host, stream));
  void* const on_device = device.allocate(stream, bytes);
  {
    std::vector<int, weir::allocator<int>> numbers(1000, weir::allocator<int>(host, stream));
    std::iota(numbers.begin(), numbers.end(), 1);
    require(cudaMemcpyAsync(on_device, numbers.data(), bytes, cudaMemcpyHostToDevice, stream.get()));
  }
  require(cudaMemcpyAsync(back.data(), on_device, bytes, cudaMemcpyDeviceToHost, stream.get()));
  device.deallocate(stream, on_device, bytes);
  stream.synchronize();
  std::printf("1 + ... + 1000 = %lld, there and back\n", sum(back));

  // Without a stream, containers live in the host's order, and on a pool that costs no CUDA call.
  using entry = std::pair<std::string const, int>;
  std::map<std::string, int, std::less<>, weir::allocator<entry>> ages(host);
  ages["weir"] = 1;
  ages["dam"] = 2;

  weir::pmr_resource resource(host);
  std::pmr::vector<std::pmr::string> words({"a long word that does not fit into the string itself", "short"},
                                           &resource);

  std::printf("%zu ages, %zu words, all in pinned memory\n%s", ages.size(), words.size(),
              host.summary("pinned").c_str());
  return sum(back) == 500500 ? 0 : 1;
}
