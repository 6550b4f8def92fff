// Spilling with real kernels and real copies: what a slow kernel writes is what comes back.
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/spillable.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/pinned.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include "kernels.cuh"

namespace {

using namespace weir::literals;
using weir::detail::check;
using weir::test::blocks, weir::test::threads, weir::test::write_late, weir::test::count_others;

}  // namespace

TEST_CASE("contents go to the host and come back, on several streams") {
  auto host = weir::make(weir::pinned{} | weir::pool{});
  auto memory = weir::make(weir::device{} | weir::pool{.initial_bytes = 40_MiB, .max_bytes = 40_MiB} |
                           weir::spill{.to = weir::share(host)});
  weir::stream const streams[2];
  auto* const others = static_cast<unsigned long long*>(memory.allocate(weir::host_order, 8));
  check(cudaMemset(others, 0, 8), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");

  std::vector<weir::spillable<int>> handles;
  for (int i = 0; i < 12; ++i) {
    handles.emplace_back(memory, streams[i % 2], 2_MiB);  // 8 MiB
    auto const p = handles.back().pin(streams[i % 2]);
    write_late<<<blocks, threads, 0, streams[i % 2].get()>>>(p.data(), p.size(), i, i % 3 == 0 ? 20'000'000 : 0);
  }
  for (int turn = 1; turn <= 5; ++turn)
    for (int i = 0; i < 12; ++i) {
      auto const& stream = streams[(i + turn) % 2];
      auto const p = handles[static_cast<std::size_t>(i)].pin(stream);
      count_others<<<blocks, threads, 0, stream.get()>>>(p.data(), p.size(), 100 * (turn - 1) + i, others);
      write_late<<<blocks, threads, 0, stream.get()>>>(p.data(), p.size(), 100 * turn + i, i % 4 == 0 ? 10'000'000 : 0);
    }
  check(cudaGetLastError(), "kernel launch");
  unsigned long long found = 0;
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  check(cudaMemcpy(&found, others, 8, cudaMemcpyDeviceToHost), "cudaMemcpy");
  CHECK(found == 0);
  CHECK(memory.numbers().returns > 12);
  memory.deallocate(weir::host_order, others, 8);
}
