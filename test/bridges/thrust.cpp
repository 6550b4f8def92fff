// Thrust on the host (the CPP system); the same header is compiled for kernels in gpu/thrust.cu.
#if !defined(THRUST_DEVICE_SYSTEM)
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP
#endif
#include <weir/bridges/thrust.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/async.hpp>

#include <doctest/doctest.h>

#include <thrust/copy.h>
#include <thrust/functional.h>
#include <thrust/host_vector.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

#include <bridges/checked_memory.hpp>
#include <initializer_list>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

// Elements are read through plain pointers: Thrust's references to them form null references inside, which UBSan stops.
template <class T>
T at(thrust::device_vector<T, weir::thrust_allocator<T>> const& v, std::size_t i) {
  return thrust::raw_pointer_cast(v.data())[i];
}

template <class T>
std::vector<T> contents(thrust::device_vector<T, weir::thrust_allocator<T>> const& v) {
  T const* const data = v.empty() ? nullptr : thrust::raw_pointer_cast(v.data());
  return std::vector<T>(data, data + v.size());
}

}  // namespace

TEST_CASE("a vector on a stack is a thrust::device_vector, made in every way that Thrust knows") {
  weir::sim::reset();
  device_memory memory;
  weir::stream const stream;
  {
    using vector = weir::device_vector<int>;
    static_assert(std::is_base_of_v<thrust::device_vector<int, weir::thrust_allocator<int>>, vector>);
    std::vector<int> const source{3, 1, 2};
    CHECK(contents(vector(memory, stream)) == std::vector<int>{});
    CHECK(contents(vector(3, memory, stream)) == std::vector<int>{0, 0, 0});
    CHECK(contents(vector(3, 7, memory, stream)) == std::vector<int>{7, 7, 7});
    CHECK(contents(vector({3, 1, 2}, memory, stream)) == source);
    CHECK(contents(vector(source, memory, stream)) == source);
    CHECK(contents(vector(source.begin(), source.end(), memory, stream)) == source);
    CHECK(contents(vector(thrust::counting_iterator(1), thrust::counting_iterator(4), memory, stream)) ==
          std::vector<int>{1, 2, 3});
    CHECK(contents(vector(source, weir::share(memory), stream)) == source);
    vector const v(source, memory, stream);
    vector const copy = v;
    CHECK(contents(copy) == source);
    CHECK(copy == v);
    thrust::host_vector<int> const host = v;
    CHECK(host == v);
    CHECK(memory.live.size() == 2);
  }
  CHECK(memory.clean());
}

TEST_CASE("a vector is made of and assigned from vectors of Thrust's, and keeps its memory and stream") {
  weir::sim::reset();
  device_memory memory, other;
  weir::stream const stream, elsewhere;
  {
    std::vector<int> const expected{3, 1, 2};
    thrust::host_vector<int> const on_host(expected.begin(), expected.end());
    thrust::device_vector<int> const plain(on_host);
    weir::device_vector<short> const narrow({3, 1, 2}, other, elsewhere);
    weir::device_vector<int> const same({3, 1, 2}, other, elsewhere);
    CHECK(contents(weir::device_vector<int>(on_host, memory, stream)) == expected);
    CHECK(contents(weir::device_vector<int>(plain, memory, stream)) == expected);
    CHECK(contents(weir::device_vector<int>(narrow, memory, stream)) == expected);
    weir::device_vector<int> const copied(same, memory, stream);
    CHECK(contents(copied) == expected);
    CHECK(copied.memory() == weir::any_ref(memory));

    weir::device_vector<int> v(memory, stream);
    v = on_host;
    CHECK(contents(v) == expected);
    v = thrust::device_vector<int>(5, 4);
    CHECK(contents(v) == std::vector<int>(5, 4));
    v = narrow;
    CHECK(contents(v) == expected);
    CHECK(v.memory() == weir::any_ref(memory));
    CHECK(v.stream() == weir::stream_ref(stream));
    thrust::host_vector<int> back = v;
    CHECK(std::vector<int>(back.begin(), back.end()) == expected);
  }
  CHECK(memory.live.empty());
  CHECK(other.live.empty());
}

TEST_CASE("memory is asked for and given back on the vector's stream, aligned to 256 bytes") {
  weir::sim::reset();
  device_memory memory;
  weir::stream const stream;
  {
    weir::device_vector<char> const v(1000, memory, stream);
    CHECK(memory.live.begin()->second == device_memory::block{1000, 256});
    CHECK(memory.allocated_on.back() == weir::stream_ref(stream));
  }
  CHECK(memory.freed_on.back() == weir::stream_ref(stream));
  CHECK(memory.clean());
}

TEST_CASE("the vector grows, shrinks and is assigned, with every byte back at the end") {
  weir::sim::reset();
  device_memory memory;
  weir::stream const stream;
  {
    weir::device_vector<int> v(10, 1, memory, stream);
    for (int i = 0; i < 100; ++i) v.push_back(i);
    v.resize(1000, 5);
    CHECK(at(v, 999) == 5);
    v.resize(20);
    v.shrink_to_fit();
    CHECK(v.capacity() == 20);
    v.insert(v.begin(), 3, 9);
    v.erase(v.begin() + 5, v.end());
    CHECK(contents(v) == std::vector<int>{9, 9, 9, 1, 1});
    v.assign(2, 4);
    CHECK(contents(v) == std::vector<int>{4, 4});
    v = {1, 2};
    CHECK(contents(v) == std::vector<int>{1, 2});
    v = std::vector<int>{3, 4, 5};
    CHECK(contents(v) == std::vector<int>{3, 4, 5});
    v.clear();
    CHECK(v.empty());
  }
  CHECK(memory.clean());
}

TEST_CASE("the allocator goes along on copy, move and swap, so that memory returns to where it came from") {
  weir::sim::reset();
  device_memory one, two;
  weir::stream const stream, other;
  {
    using vector = weir::device_vector<int>;
    vector a(10, 1, one, stream), b(20, 2, two, stream), c(30, 3, two, other), d(40, 4, one, other);
    a = b;
    CHECK(a.memory() == weir::any_ref(two));
    CHECK(contents(a) == std::vector<int>(20, 2));
    a.swap(d);
    CHECK(a.size() == 40);
    CHECK(a.memory() == weir::any_ref(one));
    CHECK(d.memory() == weir::any_ref(two));
    a = std::move(c);
    CHECK(a.memory() == weir::any_ref(two));
    CHECK(a.stream() == weir::stream_ref(other));
    CHECK(contents(a) == std::vector<int>(30, 3));
    using std::swap;
    swap(a, d);
    CHECK(contents(d) == std::vector<int>(30, 3));
    vector const moved = std::move(d);
    CHECK(contents(moved) == std::vector<int>(30, 3));
  }
  CHECK(one.clean());
  CHECK(two.clean());
}

TEST_CASE("allocators are equal if memory and stream are the same, whatever they allocate") {
  weir::sim::reset();
  device_memory one, two;
  weir::stream const stream, other;
  weir::thrust_allocator<int> const a(one, stream);
  CHECK(a == weir::thrust_allocator<int>(one, stream));
  CHECK(a == weir::thrust_allocator<int>(weir::thrust_allocator<double>(one, stream)));
  CHECK(a != weir::thrust_allocator<int>(two, stream));
  CHECK(a != weir::thrust_allocator<int>(one, other));
}

TEST_CASE("algorithms take their temporary memory from the stack, on the stream, and give it back") {
  weir::sim::reset();
  device_memory data, temporaries;
  weir::stream const stream, other;
  {
    weir::device_vector<int> v(1000, data, stream);
    thrust::sequence(weir::policy(temporaries, other), v.begin(), v.end());
    thrust::sort(weir::policy(temporaries, other), v.begin(), v.end(), thrust::greater<int>());
    CHECK(at(v, 0) == 999);
    CHECK(temporaries.allocated_on.size() > 0);
    CHECK(temporaries.allocated_on.back() == weir::stream_ref(other));
    CHECK(temporaries.freed_on.back() == weir::stream_ref(other));
    thrust::sort(weir::policy_nosync(temporaries, other), v.begin(), v.end());
    CHECK(at(v, 0) == 0);
    thrust::inclusive_scan(weir::policy_nosync(temporaries, other), v.begin(), v.end(), v.begin());
    CHECK(at(v, 999) == 499500);
    CHECK(thrust::reduce(weir::policy(weir::share(temporaries), other), v.begin(), v.begin() + 3) == 4);
    CHECK(data.allocated_on.size() == 1);
  }
  CHECK(data.clean());
  CHECK(temporaries.clean());
}

TEST_CASE("temporary memory is in the order of the stream that runs the algorithm, also for a policy in host order") {
  weir::sim::reset();
  device_memory memory;
  {
    weir::device_vector<int> v({3, 1, 2}, memory, weir::host_order);
    CHECK(memory.allocated_on.back().is_host_order());
    thrust::sort(weir::policy(memory, weir::host_order), v.begin(), v.end(), thrust::greater<int>());
    CHECK(memory.allocated_on.back() == weir::stream_ref(cudaStreamLegacy));
    CHECK(memory.freed_on.back() == weir::stream_ref(cudaStreamLegacy));
    thrust::sort(weir::policy_nosync(memory, weir::host_order), v.begin(), v.end());
    CHECK(memory.freed_on.back() == weir::stream_ref(cudaStreamLegacy));
    CHECK(contents(v) == std::vector<int>{1, 2, 3});
  }
  CHECK(memory.freed_on.back().is_host_order());
  CHECK(memory.clean());
}

TEST_CASE("on the host, vectors and policies first wait for work queued on the stream") {
  weir::sim::reset();
  weir::sim::set_mode(weir::sim::mode::lazy);
  auto memory = weir::make(weir::async{});
  weir::stream const stream;
  {
    weir::device_vector<unsigned char> v(4, 1, memory, stream);
    REQUIRE(cudaMemsetAsync(thrust::raw_pointer_cast(v.data()), 2, v.size(), stream.get()) == cudaSuccess);
    CHECK(at(v, 0) == 1);  // queued: nothing has forced it
    CHECK(thrust::reduce(weir::policy(memory, stream), v.begin(), v.end(), 0) == 8);
    REQUIRE(cudaMemsetAsync(thrust::raw_pointer_cast(v.data()), 3, v.size(), stream.get()) == cudaSuccess);
    CHECK(thrust::reduce(weir::policy_nosync(memory, stream), v.begin(), v.end(), 0) == 12);
    REQUIRE(cudaMemsetAsync(thrust::raw_pointer_cast(v.data()), 4, v.size(), stream.get()) == cudaSuccess);
    weir::device_vector<unsigned char> const copy = v;
    CHECK(at(copy, 3) == 4);
    REQUIRE(cudaMemsetAsync(thrust::raw_pointer_cast(v.data()), 5, v.size(), stream.get()) == cudaSuccess);
    v.reserve(100);
    CHECK(at(v, 3) == 5);
    REQUIRE(cudaMemsetAsync(thrust::raw_pointer_cast(v.data()), 9, 8, stream.get()) == cudaSuccess);
    v.resize(8, 5);  // into memory that it has
    weir::sim::run_all();
    CHECK(at(v, 4) == 5);
  }
  CHECK(weir::sim::live_allocations() == 0);
  weir::sim::set_mode(weir::sim::mode::immediate);
}

TEST_CASE("members that change elements in place come after work queued on the stream") {
  weir::sim::reset();
  weir::sim::set_mode(weir::sim::mode::lazy);
  auto memory = weir::make(weir::async{});
  weir::stream const stream;
  {
    using bytes = std::vector<unsigned char>;
    using vector = weir::device_vector<unsigned char>;
    vector const eights(4, 8, memory, stream);
    auto const after_the_last_is_set_to_6 = [&](auto change) {
      vector v(4, 1, memory, stream);
      v.reserve(100);
      REQUIRE(cudaMemsetAsync(thrust::raw_pointer_cast(v.data()) + 3, 6, 1, stream.get()) == cudaSuccess);
      change(v);
      weir::sim::run_all();
      return contents(v);
    };
    CHECK(after_the_last_is_set_to_6([](vector& v) { v.insert(v.begin(), 1, 7); }) == bytes{7, 1, 1, 1, 6});
    CHECK(after_the_last_is_set_to_6([](vector& v) { v.erase(v.begin(), v.begin() + 3); }) == bytes{6});
    CHECK(after_the_last_is_set_to_6([](vector& v) { v.assign(4, 7); }) == bytes{7, 7, 7, 7});
    CHECK(after_the_last_is_set_to_6([](vector& v) { v = {1, 2, 3, 4}; }) == bytes{1, 2, 3, 4});
    CHECK(after_the_last_is_set_to_6([](vector& v) { v = bytes{1, 2, 3, 4}; }) == bytes{1, 2, 3, 4});
    CHECK(after_the_last_is_set_to_6([&](vector& v) { v = eights; }) == bytes{8, 8, 8, 8});
  }
  CHECK(weir::sim::live_allocations() == 0);
  weir::sim::set_mode(weir::sim::mode::immediate);
}

TEST_CASE("elements that move within a vector wait in memory of its stack") {
  weir::sim::reset();
  device_memory memory;
  weir::stream const stream;
  {
    weir::device_vector<int> v({1, 2, 3, 4}, memory, stream);
    v.reserve(100);
    auto const requests_of = [&](auto change) {
      std::size_t const before = memory.allocated_on.size();
      change();
      return memory.allocated_on.size() - before;
    };
    CHECK(requests_of([&] { CHECK(v.erase(v.begin()) == v.begin()); }) == 1);
    CHECK(requests_of([&] { v.erase(v.begin() + 1, v.begin() + 1); }) == 0);
    CHECK(requests_of([&] { v.insert(v.begin() + 1, 2, 9); }) == 1);
    CHECK(requests_of([&] { CHECK(v.insert(v.begin(), 8) == v.begin()); }) == 1);
    std::vector<int> const more{5, 6};
    CHECK(requests_of([&] { v.insert(v.begin() + 1, more.begin(), more.end()); }) == 1);
    CHECK(contents(v) == std::vector<int>{8, 5, 6, 2, 9, 9, 3, 4});
    CHECK(requests_of([&] { v.erase(v.begin() + 7, v.end()); }) == 0);
    CHECK(requests_of([&] { v.insert(v.end(), 3, 1); }) == 0);
    CHECK(memory.allocated_on.back() == weir::stream_ref(stream));
    CHECK(memory.live.size() == 1);
    memory.refuse = true;
    CHECK_THROWS_AS(v.erase(v.begin()), std::bad_alloc);
    CHECK_THROWS_AS(v.insert(v.begin(), 7), std::bad_alloc);
    CHECK_THROWS_AS(v.insert(v.begin(), more.begin(), more.end()), std::bad_alloc);
    CHECK(contents(v) == std::vector<int>{8, 5, 6, 2, 9, 9, 3, 1, 1, 1});
  }
  CHECK(memory.clean());
}

TEST_CASE("a vector is made of and assigned from one on another stream after the work that is queued there") {
  weir::sim::reset();
  weir::sim::set_mode(weir::sim::mode::lazy);
  auto memory = weir::make(weir::async{});
  weir::stream const stream, other;
  {
    using vector = weir::device_vector<unsigned char>;
    vector source(4, 1, memory, stream);
    auto const set = [&](int value) {
      REQUIRE(cudaMemsetAsync(thrust::raw_pointer_cast(source.data()), value, 4, stream.get()) == cudaSuccess);
    };
    set(2);
    vector v(source, memory, other);
    CHECK(at(v, 3) == 2);
    set(3);
    v = source;
    CHECK(at(v, 3) == 3);
    set(4);
    weir::device_vector<int> wide(source, memory, other);
    CHECK(at(wide, 3) == 4);
    set(5);
    wide = source;
    CHECK(at(wide, 3) == 5);
    REQUIRE(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed) == cudaSuccess);
    vector const beside(source, memory, other);  // what is captured is done when the graph runs
    wide = source;
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(at(beside, 3) == 5);
  }
  CHECK(weir::sim::live_allocations() == 0);
  weir::sim::set_mode(weir::sim::mode::immediate);
}

TEST_CASE("a stack that refuses leaves the vector as it was, and a failing wait gives the memory back") {
  weir::sim::reset();
  device_memory memory;
  weir::stream const stream;
  {
    weir::device_vector<int> v({1, 2, 3}, memory, stream);
    memory.refuse = true;
    CHECK_THROWS_AS(v.resize(100), std::bad_alloc);
    CHECK_THROWS_AS(thrust::sort(weir::policy(memory, stream), v.begin(), v.end()), std::bad_alloc);
    CHECK(contents(v) == std::vector<int>{1, 2, 3});
    memory.refuse = false;
    weir::sim::fail_call(1, cudaErrorLaunchFailure);
    CHECK_THROWS_AS(weir::device_vector<int>(10, memory, stream), weir::cuda_error);
    weir::sim::clear_failure();
    CHECK(memory.live.size() == 1);
    weir::thrust_allocator<double> allocator(memory, stream);
    CHECK_THROWS_AS(static_cast<void>(allocator.allocate(~std::size_t{0} / 4)), std::bad_array_new_length);
  }
  CHECK(memory.clean());
}
