// RMM's containers on a stack, and stacks on RMM's resources.
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/bridges/rmm.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>

#include <rmm/device_uvector.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>

#include <doctest/doctest.h>

#include <cstddef>

using namespace weir;

TEST_CASE("a vector of RMM's has its memory from a stack, in the order of its stream") {
  auto memory = make(async{} | pool{} | statistics{});
  weir::stream const stream;
  {
    rmm::device_uvector<int> numbers(1000, stream_ref(stream), for_rmm(memory));
    numbers.set_element(999, 7, stream_ref(stream));
    CHECK(numbers.element(999, stream_ref(stream)) == 7);
    CHECK(memory.numbers().requested.current == 4000);
  }
  CHECK(memory.numbers().requested.current == 0);
}

TEST_CASE("RMM's current resource may be a stack that it owns, and its refusals are RMM's") {
  auto const before = rmm::mr::set_current_device_resource(for_rmm(any_resource(async{} | pool{} | limit{1_MiB})));
  weir::stream const stream;
  rmm::device_uvector<char> const fits(1000, stream_ref(stream));
  CHECK_THROWS_AS(rmm::device_uvector<char>(2_MiB, stream_ref(stream)), rmm::out_of_memory);
  static_cast<void>(rmm::mr::set_current_device_resource(before));
}

TEST_CASE("a resource of RMM's is a source") {
  auto memory = make(from_cuda_mr(rmm::mr::cuda_async_memory_resource{}) | pool{} | statistics{});
  weir::stream const stream;
  void* const p = memory.allocate(stream, 1_MiB, 4096);
  CHECK(reinterpret_cast<std::size_t>(p) % 4096 == 0);
  CHECK(cudaMemsetAsync(p, 1, 1_MiB, stream.get()) == cudaSuccess);
  memory.deallocate(stream, p, 1_MiB, 4096);
  CHECK(cudaStreamSynchronize(stream.get()) == cudaSuccess);
}
