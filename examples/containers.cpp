// Data with an owner: samples that are loaded into a stack of their own and outlive the function that made it, rows
// that grow without the host waiting, and a counter that work on the device changes.
#include <weir/adaptors/pool.hpp>
#include <weir/containers.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/pinned.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <numeric>
#include <span>
#include <vector>

using namespace weir::literals;

namespace {

void require(cudaError_t code) {
  if (code != cudaSuccess) throw weir::cuda_error(code, "cudaMemcpyAsync", __FILE__, __LINE__);
}

// The stack lives as long as what is on it: the vector keeps its owning handle.
weir::vector<int> load(int count, weir::stream_ref stream) {
  weir::any_resource const memory(weir::async{} | weir::pool{.max_bytes = 64_MiB});
  std::vector<int> samples(static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), 1);
  return {samples, stream, memory};
}

// Stands for a kernel, which takes a span and names no stack.
void append(std::span<int> to, std::span<int const> from, weir::stream_ref stream) {
  require(cudaMemcpyAsync(to.data(), from.data(), from.size_bytes(), cudaMemcpyDefault, stream.get()));
}

}  // namespace

int main() try {
  weir::stream const stream, other;
  auto memory = weir::make(weir::async{} | weir::pool{});  // outlives what refers to it below
  auto host = weir::make(weir::pinned{} | weir::pool{});

  weir::vector<int> const samples = load(1000, stream);
  weir::vector<int> rows(0, stream, memory);  // the same type, on a stack that it does not own
  for (int i = 0; i < 4; ++i) {
    std::size_t const before = rows.size();
    rows.resize(before + samples.size());  // keeps the rows, in stream order
    append(std::span(rows).subspan(before), samples, stream);
  }

  // The copy lives on another stream; events order the two, and `rows` may go while the copy is under way.
  weir::vector<int> const kept = rows.copy(other);
  rows = weir::vector<int>(0, stream, memory);

  weir::scalar<int> total(stream, memory);
  total.set_to_zero();
  std::vector<int> const on_host = kept.to_host();  // waits
  total.set_value(std::accumulate(on_host.begin(), on_host.end(), 0));

  // Page-locked memory: copies run from it at full speed, and the host goes there itself.
  weir::vector<int, decltype(host)> staging(3, stream, host);
  require(cudaMemcpyAsync(staging.data(), kept.data(), 3 * sizeof(int), cudaMemcpyDefault, other.get()));
  other.synchronize();
  std::printf("%zu rows, the first %d %d %d; 4 * (1 + ... + 1000) = %d\n", kept.size(), staging[0], staging[1],
              staging[2], total.value());
  return total.value() == 4 * 500500 && staging[2] == 3 ? 0 : 1;
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
