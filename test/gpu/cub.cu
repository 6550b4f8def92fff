// A CUB algorithm that has its temporary memory from a stack, by an environment (CCCL 3.3 and newer).
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/bridges/cuda_mr.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>

#include <doctest/doctest.h>
#include <cub/device/device_reduce.cuh>

#include <numeric>
#include <vector>

using weir::detail::check;

TEST_CASE("a CUB algorithm takes its temporary memory from the stack in its environment") {
  auto memory = weir::make(weir::async{} | weir::pool{} | weir::statistics{});
  weir::stream const stream;
  std::vector<int> numbers(100'000);
  std::iota(numbers.begin(), numbers.end(), 1);
  std::size_t const bytes = numbers.size() * sizeof(int);
  auto* const in = static_cast<int*>(memory.allocate(stream, bytes));
  auto* const sum = static_cast<long long*>(memory.allocate(stream, sizeof(long long)));
  check(cudaMemcpyAsync(in, numbers.data(), bytes, cudaMemcpyDefault, stream.get()), "cudaMemcpyAsync");
  auto const before = memory.numbers();

  cuda::stream_ref const on_stream = weir::stream_ref(stream);
  cuda::std::execution::prop const from_memory{cuda::mr::get_memory_resource_t{}, weir::share(memory)};
  cuda::std::execution::env const on_stack{on_stream, from_memory};
  check(cub::DeviceReduce::Reduce(in, sum, static_cast<int>(numbers.size()), cuda::std::plus<>{}, 0LL, on_stack),
        "cub::DeviceReduce::Reduce");

  auto const after = memory.numbers();
  CHECK(after.requested.peak > before.requested.current);      // CUB had memory of the stack
  CHECK(after.requested.current == before.requested.current);  // and gave it back
  long long result = 0;
  check(cudaMemcpyAsync(&result, sum, sizeof result, cudaMemcpyDefault, stream.get()), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  CHECK(result == 100'000LL * 100'001 / 2);
  memory.deallocate(stream, in, bytes);
  memory.deallocate(stream, sum, sizeof(long long));
}
