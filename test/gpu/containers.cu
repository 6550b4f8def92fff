// Containers with real kernels: what a slow kernel writes is what resizes keep, copies have and the host reads.
#include <weir/adaptors/pool.hpp>
#include <weir/containers.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>

#include <doctest/doctest.h>

#include <optional>
#include <utility>

#include "kernels.cuh"

namespace {

using namespace weir::literals;
using weir::detail::check;
using weir::test::blocks, weir::test::threads, weir::test::write_late, weir::test::count_others;

weir::vector<int> written(int value, weir::stream const& stream) {
  weir::vector<int> made(1_MiB, stream, weir::any_resource(weir::async{} | weir::pool{}));
  write_late<<<blocks, threads, 0, stream.get()>>>(made.data(), made.size(), value, 20'000'000);
  return made;
}

}  // namespace

TEST_CASE("elements that a slow kernel writes survive resizes, copies to other streams, and their vector") {
  weir::stream const stream, other;
  auto memory = weir::make(weir::async{} | weir::pool{});
  for (int turn = 0; turn < 10; ++turn) {
    std::optional<weir::vector<int>> first(written(turn, stream));
    first->resize(2_MiB);
    first->resize(1_MiB);
    first->shrink_to_fit();
    weir::vector<int> const copy = first->copy(other);
    first.reset();  // while the kernel runs and the copy waits
    weir::vector<int> next(1_MiB, stream, memory);
    write_late<<<blocks, threads, 0, stream.get()>>>(next.data(), next.size(), -1, 0);

    weir::scalar<unsigned long long> others(0ULL, other, memory);
    count_others<<<blocks, threads, 0, other.get()>>>(copy.data(), copy.size(), turn, others.data());
    check(cudaGetLastError(), "kernel launch");
    CHECK(others.value() == 0);
    CHECK(copy.get(1_MiB - 1, stream) == turn);
    next.set(7, turn, other);
    CHECK(next.get(7) == turn);
  }
}
