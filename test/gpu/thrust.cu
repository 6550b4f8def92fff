// Thrust on a stack, with kernels: the vectors' own and the algorithms'.
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/bridges/thrust.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>

#include <doctest/doctest.h>

#include <thrust/copy.h>
#include <thrust/functional.h>
#include <thrust/reduce.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

#include <numeric>
#include <vector>

namespace {

using namespace weir::literals;

auto recipe() { return weir::async{} | weir::pool{.initial_bytes = 64_MiB} | weir::statistics{}; }

template <class T>
std::vector<T> contents(weir::device_vector<T> const& v) {
  std::vector<T> out(v.size());
  thrust::copy(v.begin(), v.end(), out.begin());
  return out;
}

std::vector<int> counting(int n) {
  std::vector<int> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

}  // namespace

TEST_CASE("a vector is filled, copied, grown and assigned on its stream, and its elements are there at once") {
  auto memory = weir::make(recipe());
  weir::stream const stream;  // not ordered with the default stream, on which single elements are read
  {
    weir::device_vector<int> v(1 << 20, 7, memory, stream);
    CHECK(v[0] == 7);
    CHECK(v[(1 << 20) - 1] == 7);
    weir::device_vector<int> const copy = v;
    CHECK(copy == v);
    v.resize(3 << 20, 8);
    CHECK(v.back() == 8);
    v.assign(10, 9);
    CHECK(contents(v) == std::vector<int>(10, 9));
    v = counting(1000);
    CHECK(contents(v) == counting(1000));
    v.insert(v.begin(), 1, -1);
    v.erase(v.begin());
    CHECK(contents(v) == counting(1000));
    weir::device_vector<int> const zeros(1000, memory, stream);
    CHECK(contents(zeros) == std::vector<int>(1000, 0));
  }
  CHECK(memory.numbers().allocations.current == 0);
}

TEST_CASE("algorithms run on the stream and take their temporary memory from the stack") {
  auto memory = weir::make(recipe());
  weir::stream const stream;
  {
    int const n = 1 << 20;
    weir::device_vector<int> v(n, memory, stream);
    auto const before = memory.numbers().allocations.total;
    thrust::sequence(weir::policy_nosync(memory, stream), v.begin(), v.end());
    thrust::sort(weir::policy_nosync(memory, stream), v.begin(), v.end(), thrust::greater<int>());
    thrust::sort(weir::policy_nosync(memory, stream), v.begin(), v.end());
    CHECK(memory.numbers().allocations.total > before);
    CHECK(thrust::reduce(weir::policy(memory, stream), v.begin(), v.end(), 0LL) == (n - 1LL) * n / 2);
    stream.synchronize();
    CHECK(contents(v) == counting(n));
  }
  CHECK(memory.numbers().allocations.current == 0);
}

TEST_CASE("out of memory inside an algorithm comes out as weir's error, and the vector lives on") {
  auto memory = weir::make(recipe() | weir::limit{.max_bytes = 6_MiB});
  weir::stream const stream;
  weir::device_vector<int> v(1 << 20, memory, stream);  // 4 MiB
  thrust::sequence(weir::policy(memory, stream), v.begin(), v.end());
  CHECK_THROWS_AS(thrust::sort(weir::policy(memory, stream), v.begin(), v.end()), weir::out_of_memory);
  CHECK(memory.used() == 4_MiB);
  CHECK(contents(v) == counting(1 << 20));
}
