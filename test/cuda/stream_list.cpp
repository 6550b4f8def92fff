#include <weir/cuda/stream_list.hpp>

#include <weir/cuda/stream.hpp>

#include <doctest/doctest.h>

#include <array>
#include <vector>

using namespace weir;

namespace {

std::vector<stream_ref> named(stream_list streams) { return {streams.begin(), streams.end()}; }

}  // namespace

TEST_CASE("streams are named in braces, whatever kind they are of") {
  weir::stream const own;
  cudaStream_t const handle = own.get();
  CHECK(named({}).empty());
  CHECK(named({own}) == std::vector<stream_ref>{own});
  CHECK(named({cudaStreamLegacy, handle, own, host_order}) ==
        std::vector<stream_ref>{cudaStreamLegacy, handle, own, host_order});
}

TEST_CASE("streams are named by a container of them") {
  std::vector<stream_ref> const some{cudaStreamLegacy, cudaStreamPerThread};
  CHECK(named(some) == some);
  CHECK(named(std::array{stream_ref(cudaStreamPerThread)}) == std::vector<stream_ref>{cudaStreamPerThread});
  CHECK(stream_list(some).size() == 2);
}
