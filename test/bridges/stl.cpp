#include <weir/adaptors/pool.hpp>
#include <weir/bridges/stl.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/pinned.hpp>

#include <doctest/doctest.h>

#include <bridges/checked_memory.hpp>
#include <deque>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <new>
#include <set>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

template <class T>
using vector_on = std::vector<T, weir::allocator<T, pinned_memory>>;

struct recipe_of_host_memory {
  host_memory operator()() const { return host_memory(); }
};

}  // namespace

TEST_CASE("every standard container takes its memory from the stack and gives all of it back") {
  pinned_memory memory;
  {
    std::vector<int, weir::allocator<int>> vector(memory);
    for (int i = 0; i < 1000; ++i) vector.push_back(i);
    CHECK(vector[999] == 999);

    std::list<int, weir::allocator<int>> list({3, 1, 2}, memory);
    list.sort();
    CHECK(list.front() == 1);

    std::deque<int, weir::allocator<int>> deque(100, 7, memory);
    CHECK(deque.back() == 7);

    using entry = std::pair<int const, double>;
    std::map<int, double, std::less<>, weir::allocator<entry>> map(memory);
    map[2] = 0.5;
    CHECK(map.at(2) == 0.5);

    std::set<int, std::less<>, weir::allocator<int>> set({2, 2, 3}, std::less<>(), memory);
    CHECK(set.size() == 2);

    std::unordered_map<int, double, std::hash<int>, std::equal_to<>, weir::allocator<entry>> hashed(memory);
    for (int i = 0; i < 100; ++i) hashed[i] = i;
    CHECK(hashed.at(99) == 99);

    std::basic_string<char, std::char_traits<char>, weir::allocator<char>> string(memory);
    string.assign(1000, 'x');
    CHECK(string.size() == 1000);

    std::vector<bool, weir::allocator<bool>> bits(100, true, memory);
    CHECK(bits[99]);
    CHECK(memory.live.size() >= 100);
  }
  CHECK(memory.clean());
}

TEST_CASE("the type may name the stack, a handle to it, or nothing") {
  pinned_memory memory;
  {
    vector_on<int> by_type(10, memory);
    std::vector<int, weir::allocator<int, weir::resource_ref<pinned_memory>>> by_handle(10, weir::share(memory));
    std::vector<int, weir::allocator<int>> erased(10, memory);
    std::vector<int, weir::allocator<int>> erased_handle(10, weir::share(memory));
    std::vector const deduced({1, 2, 3}, weir::allocator_for<int>(memory));
    static_assert(std::is_same_v<std::remove_const_t<decltype(deduced)>, vector_on<int>>);
    static_assert(std::is_same_v<decltype(weir::allocator_for<int>(weir::share(memory))),
                                 decltype(weir::allocator_for<int>(memory))>);
    auto const handle = weir::share(memory);
    auto same_handle = handle;
    static_assert(std::is_same_v<decltype(weir::allocator_for<int>(handle)), weir::allocator<int, pinned_memory>>);
    static_assert(std::is_same_v<decltype(weir::allocator_for<int>(same_handle)), weir::allocator<int, pinned_memory>>);
    CHECK(memory.live.size() == 5);
    CHECK(erased.get_allocator() == erased_handle.get_allocator());
  }
  CHECK(memory.clean());
}

TEST_CASE("an owning handle stays alive as long as its containers") {
  std::vector<int, weir::allocator<int, weir::any_host_resource>> kept(
      3, 5, weir::any_host_resource(recipe_of_host_memory()));
  auto const copy = kept;
  kept.clear();
  kept.shrink_to_fit();
  CHECK(copy[2] == 5);
}

TEST_CASE("the type is found from a handle that is a temporary, too") {
  std::vector kept({1, 2}, weir::allocator_for<int>(weir::any_host_resource(recipe_of_host_memory())));
  static_assert(std::is_same_v<decltype(kept)::allocator_type, weir::allocator<int, weir::any_host_resource>>);
  kept.resize(1000);
  CHECK(kept[1] == 2);
  weir::any_host_resource const owner{recipe_of_host_memory()};
  static_assert(
      std::is_same_v<decltype(weir::allocator_for<int>(owner)), weir::allocator<int, weir::any_host_resource>>);
  pinned_memory memory;
  CHECK(weir::allocator_for<int>(weir::any_host_ref(memory)) == weir::allocator<int>(memory));
}

TEST_CASE("a container that was moved from keeps its owning handle, and may be used again") {
  using allocator = weir::allocator<int, weir::any_host_resource>;
  allocator from{weir::any_host_resource(recipe_of_host_memory())};
  allocator const to = std::move(from);  // NOLINT(performance-move-const-arg): that it leaves `from` is the point
  CHECK(from == to);                     // NOLINT(bugprone-use-after-move)
  std::deque<int, allocator> a(to), b = std::move(a);  // libstdc++'s has taken memory for `a` with what `b` has
  a.push_back(7);                                      // NOLINT(bugprone-use-after-move)
  CHECK(a.front() == 7);
  CHECK(b.empty());
}

TEST_CASE("allocators are equal if memory and stream are the same, whatever they allocate") {
  pinned_memory one, two;
  weir::stream_ref const stream(cudaStreamPerThread);
  weir::allocator<int> const a(one);
  CHECK(a == weir::allocator<int>(one));
  CHECK(a == weir::allocator<double>(one));
  CHECK(a != weir::allocator<int>(two));
  CHECK(a != weir::allocator<int>(one, stream));
  CHECK(weir::allocator<int>(one, stream) == weir::allocator<char>(one, stream));
}

TEST_CASE("the allocator goes along on copy, move and swap, so that memory returns to where it came from") {
  pinned_memory one, two;
  {
    vector_on<int> a(100, 1, one), b(200, 2, two), c(300, 3, two), d(400, 4, one);
    vector_on<int> const constructed = b;
    CHECK(constructed.get_allocator() == b.get_allocator());
    a = b;
    CHECK(a.get_allocator() == b.get_allocator());
    a.swap(d);
    CHECK(a.size() == 400);
    CHECK(d.get_allocator() == b.get_allocator());
    int const* const data = c.data();
    a = std::move(c);
    CHECK(a.data() == data);  // moved, not copied
    CHECK(a.get_allocator() == b.get_allocator());
  }
  CHECK(one.clean());
  CHECK(two.clean());
}

TEST_CASE("memory is asked for in the host's order and given back there, or on the stream that may still use it") {
  pinned_memory memory;
  weir::stream_ref const stream(cudaStreamPerThread);
  { vector_on<int> const v(10, memory); }
  CHECK(memory.allocated_on.back().is_host_order());
  CHECK(memory.freed_on.back().is_host_order());
  { vector_on<int> const v(10, weir::allocator<int, pinned_memory>(memory, stream)); }
  CHECK(memory.allocated_on.back().is_host_order());
  CHECK(memory.freed_on.back() == stream);
  { vector_on<int> const v(10, weir::allocator_for<int>(memory, stream)); }
  CHECK(memory.freed_on.back() == stream);
  CHECK(memory.clean());
}

TEST_CASE("elements with a large alignment get it") {
  struct alignas(1024) page {
    char bytes[1024];
  };
  pinned_memory memory;
  {
    std::vector<page, weir::allocator<page>> const pages(3, memory);
    CHECK(memory.live.begin()->second.alignment == 1024);
  }
  CHECK(memory.clean());
}

TEST_CASE("a number of elements whose bytes cannot be counted is refused before the stack is asked") {
  pinned_memory memory;
  weir::allocator<double> allocator(memory);
  std::size_t const most = std::numeric_limits<std::size_t>::max() / sizeof(double);
  CHECK_THROWS_AS(static_cast<void>(allocator.allocate(most + 1)), std::bad_array_new_length);
  CHECK_THROWS_AS(static_cast<void>(allocator.allocate(std::numeric_limits<std::size_t>::max())),
                  std::bad_array_new_length);
  CHECK(memory.allocated_on.empty());
}

TEST_CASE("a stack that refuses leaves the container as it was") {
  pinned_memory memory;
  {
    vector_on<int> v({1, 2, 3}, memory);
    memory.refuse = true;
    CHECK_THROWS_AS(v.resize(100), std::bad_alloc);
    CHECK(std::vector<int>(v.begin(), v.end()) == std::vector<int>{1, 2, 3});
  }
  CHECK(memory.clean());
}

TEST_CASE("containers on a pool of pinned memory make no CUDA call") {
  weir::sim::reset();
  auto memory = weir::make(weir::pinned{} | weir::pool{.initial_bytes = 1 << 20});
  weir::sim::reset_counters();
  {
    std::vector<int, weir::allocator<int>> v(memory);
    std::list<int, weir::allocator<int, decltype(memory)>> l(memory);
    for (int i = 0; i < 1000; ++i) {
      v.push_back(i);
      l.push_back(i);
    }
  }
  CHECK(weir::sim::calls() == 0);
  CHECK(memory.numbers().requested.current == 0);
}

TEST_CASE("what a copy on a stream still reads is not given to the next container, if the stream was named") {
  weir::sim::reset();
  weir::sim::set_mode(weir::sim::mode::lazy);
  auto memory = weir::make(weir::pinned{} | weir::pool{.initial_bytes = 1 << 20});
  auto device = weir::make(weir::async{});
  weir::stream const stream;
  std::size_t const bytes = 1000 * sizeof(int);
  void* const target = device.allocate(stream, bytes);
  {
    std::vector<int, weir::allocator<int>> const source(1000, 1, weir::allocator<int>(memory, stream));
    REQUIRE(cudaMemcpyAsync(target, source.data(), bytes, cudaMemcpyHostToDevice, stream.get()) == cudaSuccess);
  }
  std::vector<int, weir::allocator<int>> const next(1000, 2, memory);  // written at once, before the copy runs
  std::vector<int, weir::allocator<int>> back(1000, 0, memory);
  REQUIRE(cudaMemcpyAsync(back.data(), target, bytes, cudaMemcpyDeviceToHost, stream.get()) == cudaSuccess);
  stream.synchronize();
  CHECK(back == decltype(back)(1000, 1, memory));
  device.deallocate(stream, target, bytes);
  weir::sim::set_mode(weir::sim::mode::immediate);
}
