#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/containers/vector.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/error.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/managed.hpp>
#include <weir/sources/pinned.hpp>
#include <weir/testing/checked.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bridges/checked_memory.hpp>
#include <cstdint>
#include <limits>
#include <new>
#include <numeric>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <support/captures.hpp>
#include <type_traits>
#include <utility>
#include <vector>

using namespace weir;
using namespace weir::literals;

namespace {

static_assert(!std::is_copy_constructible_v<vector<int>> && !std::is_copy_assignable_v<vector<int>>);
static_assert(std::is_nothrow_move_constructible_v<vector<int>> && std::is_nothrow_move_assignable_v<vector<int>>);
static_assert(std::ranges::contiguous_range<vector<int>> && std::ranges::sized_range<vector<int>>);
static_assert(std::is_convertible_v<vector<int>&, std::span<int>>);
static_assert(std::is_convertible_v<vector<int> const&, std::span<int const>>);
static_assert(!std::is_convertible_v<vector<int> const&, std::span<int>>);

template <class V>
concept has_elements_in_place = requires(V& v) {
  v[0];
};
static_assert(!has_elements_in_place<vector<int>> && !has_elements_in_place<vector<int, device_memory>>);
static_assert(has_elements_in_place<vector<int, any_host_device_handle>> &&
              has_elements_in_place<vector<int, pinned_memory>>);

/// Trivially copyable, and made in one way only.
struct pair_of {
  pair_of(int x, int y) : a(x), b(y) {}
  int a, b;
};

std::vector<int> numbers(int n) {
  std::vector<int> made(static_cast<std::size_t>(n));
  std::iota(made.begin(), made.end(), 1);
  return made;
}

}  // namespace

TEST_CASE("elements go to the device and back, from whatever has them in one piece") {
  test::watched_world const world;
  auto memory = make(async{} | pool{} | checked{});
  stream const s;
  vector<int> const v(numbers(1000), s, memory);
  CHECK(v.size() == 1000);
  CHECK(v.to_host() == numbers(1000));
  vector const deduced(numbers(10), s, memory);
  static_assert(std::is_same_v<decltype(deduced), vector<int> const>);
  CHECK(deduced.to_host() == numbers(10));
  std::array<int, 3> const three{1, 2, 3};
  CHECK(vector<int>(three, s, memory).to_host() == numbers(3));
  CHECK(vector<int>(std::span<int const>(), s, memory).to_host().empty());
}

TEST_CASE("what a span is made of says the type of the elements") {
  auto memory = make(async{} | pool{});
  stream const s;
  std::vector<int> values = numbers(4);
  std::span<int const> const whole(values);
  int array[] = {1, 2, 3, 4};
  auto const is_of = [&]<class T>(vector<T> const& v, std::vector<T> const& expected) {
    CHECK(v.to_host() == expected);
  };
  is_of(vector(whole, s, memory), numbers(4));
  is_of(vector(std::span(values), s, memory), numbers(4));
  is_of(vector(std::span(array), s, memory), numbers(4));
  is_of(vector(array, s, memory), numbers(4));
  is_of(vector(std::array{0.5F, 1.5F}, s, memory), std::vector{0.5F, 1.5F});
  is_of(vector(std::string("abc"), s, any_resource(share(memory))), std::vector{'a', 'b', 'c'});
}

TEST_CASE("a list in braces is its elements") {
  test::watched_world const world;
  auto memory = make(async{} | pool{} | checked{});
  stream const s;
  CHECK(vector<int>({5}, s, memory).to_host() == std::vector{5});
  bool const flags[] = {true, false, true};
  CHECK(weir::vector<bool>({flags, std::size_t{2}}, s, memory).size() == 2);  // a span
  void const* const pointers[] = {flags, flags, flags};
  CHECK(weir::vector<void const*>({pointers, pointers + 3}, s, memory).size() == 3);
  CHECK(vector<int>({1, 2, 3}, s, memory).to_host() == numbers(3));
  CHECK(vector<int>({}, s, memory).empty());
  CHECK(weir::vector<double>({5}, s, memory).to_host() == std::vector{5.0});  // as in a std::vector
  CHECK(weir::vector<float>({1, 2.5F}, s, memory).to_host() == std::vector{1.0F, 2.5F});
  CHECK(weir::vector<std::size_t>({5}, s, memory).to_host() == std::vector<std::size_t>{5});
  CHECK(weir::vector<std::uint8_t>({}, s, memory).empty());
  CHECK(weir::vector<float2>({{1, 2}, {3, 4}}, s, memory).get(1).x == 3);
  int const two[] = {7, 8};
  CHECK(vector<int>({two, 2}, s, memory).to_host() == std::vector{7, 8});  // a span
  CHECK(vector<int>(5, s, memory).size() == 5);
  vector const deduced({1, 2, 3}, s, memory);
  static_assert(std::is_same_v<decltype(deduced), vector<int> const>);
  CHECK(deduced.to_host() == numbers(3));
}

TEST_CASE("truth values are a byte each, and come from std::vector<bool> and go there") {
  test::watched_world const world;
  auto memory = make(async{} | pool{} | checked{});
  stream const s;
  std::vector<bool> const bits{true, false, false, true};
  vector<bool> v(bits, s, memory);
  CHECK(v.to_host() == bits);
  v.set(1, true);
  CHECK(v.to_host() == std::vector<bool>{true, true, false, true});
  CHECK(vector<bool>({true, false}, s, memory).to_host() == std::vector<bool>{true, false});
  CHECK(vector<bool>(std::vector<bool>(), s, memory).to_host().empty());
  vector const deduced(bits, s, memory);
  static_assert(std::is_same_v<decltype(deduced), vector<bool> const>);
  CHECK(deduced.to_host() == bits);
}

TEST_CASE("what values are copied from may change on return, and be pinned") {
  test::watched_world const world;
  auto memory = make(async{} | pool{} | checked{});
  auto host = make(pinned{});
  stream const s;
  int* const values = static_cast<int*>(host.allocate(host_order, 8));
  values[0] = 1, values[1] = 2;
  vector<int> v(std::span<int const>(values, 2), s, memory);
  values[0] = 7, values[1] = 8;
  CHECK(v.to_host() == numbers(2));
  host.deallocate(host_order, values, 8);
}

TEST_CASE("it is made of elements without a value, aligned as the type asks") {
  struct alignas(1024) page {
    char bytes[1024];
  };
  test::fresh_world const world;
  pinned_memory memory;
  stream const s;
  {
    vector<page> const v(3, s, memory);
    CHECK(memory.live.begin()->second == pinned_memory::block{3072, 1024});
    vector<char> const c(3, s, memory);
    CHECK(reinterpret_cast<std::uintptr_t>(c.data()) % 256 == 0);
    vector<pair_of> p(2, s, memory);
    p.set(1, pair_of(3, 4));
    CHECK(p.get(1).b == 4);
    CHECK(p.end() - p.begin() == 2);
  }
  CHECK(memory.clean());
}

TEST_CASE("single elements are got and set on the stream, or on another") {
  test::watched_world const world;
  auto memory = make(async{} | pool{} | checked{});
  stream const s, t;
  vector<int> v(numbers(3), s, memory);
  v.set(0, 10);
  v.set(1, 20, t);
  static int const late = 30;
  v.set_async(2, late, t);
  CHECK(v.get(0, t) == 10);
  CHECK(v.get(1) == 20);
  CHECK(v.get(2) == 30);
  v.set_async(2, late);
  CHECK(v.to_host() == std::vector{10, 20, 30});
  CHECK_THROWS_WITH_AS(static_cast<void>(v.get(3)), "weir: there is no element 3; there are 3, numbered from 0",
                       std::out_of_range);
  CHECK_THROWS_AS(v.set(3, 1), std::out_of_range);
  CHECK_THROWS_AS(v.set_async(3, late), std::out_of_range);
}

TEST_CASE("an element whose type has an operator & of its own is copied from where it is") {
  struct elsewhere {
    int value;
    elsewhere const* operator&() const { return nullptr; }
  };
  auto memory = make(async{} | pool{});
  weir::stream const stream;
  vector<elsewhere> elements(2, stream, memory);
  elements.set(0, elsewhere{7});
  elsewhere const stays{8};
  elements.set_async(1, stays);
  CHECK(elements.get(0).value == 7);
  CHECK(elements.get(1).value == 8);
}

TEST_CASE("resize keeps elements; what cannot be had or counted changes nothing") {
  test::watched_world const world;
  auto memory = make(async{} | pool{} | limit{4_MiB} | checked{});
  stream const s;
  vector<int> v(numbers(100), s, memory);
  v.resize(200);
  CHECK(v.size() == 200);
  v.resize(100);
  CHECK(v.to_host() == numbers(100));
  CHECK_THROWS_AS(v.resize(2_MiB), out_of_memory);
  CHECK_THROWS_AS(v.resize(std::numeric_limits<std::size_t>::max() / 2), std::bad_array_new_length);
  CHECK_THROWS_AS(v.reserve(std::numeric_limits<std::size_t>::max()), std::bad_array_new_length);
  CHECK_THROWS_AS(vector<int>(std::numeric_limits<std::size_t>::max() / 4 + 1, s, memory), std::bad_array_new_length);
  CHECK(v.to_host() == numbers(100));
  v.reserve(1000);
  CHECK(v.capacity() == 1000);
  v.shrink_to_fit();
  CHECK(v.capacity() == 100);
  CHECK(v.to_host() == numbers(100));
  v.set_to_zero();
  CHECK(v.to_host() == std::vector<int>(100));
}

TEST_CASE("a copy and a vector that was moved have the elements; what was moved from has none") {
  test::watched_world const world;
  auto memory = make(async{} | pool{} | checked{});
  stream const s, t;
  vector<int> v(numbers(5), s, memory);
  vector<int> const c = v.copy(t), d = v.copy();
  CHECK(c.stream() == stream_ref(t));
  CHECK(d.stream() == stream_ref(s));
  vector<int> const w = std::move(v);
  CHECK(v.empty());  // NOLINT(bugprone-use-after-move)
  CHECK(v.begin() == v.end());
  CHECK(v.to_host().empty());
  CHECK_THROWS_AS(static_cast<void>(v.get(0)), std::out_of_range);
  for (auto const* each : {&c, &d, &w}) CHECK(each->to_host() == numbers(5));
}

TEST_CASE("one on an owning handle may leave the function that made the stack, under the same type as any") {
  test::fresh_world const world;
  auto const load = [](stream_ref s) { return vector<int>(numbers(10), s, any_resource{async{} | pool{}}); };
  {
    stream const s;
    auto borrowed = make(async{});
    std::vector<vector<int>> all;
    all.push_back(load(s));
    all.emplace_back(numbers(10), s, borrowed);
    for (auto const& v : all) CHECK(v.to_host() == numbers(10));
  }
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE("memory that the host reaches gives its elements in place") {
  test::watched_world const world;
  auto memory = make(pinned{} | pool{});
  auto shared = make(managed{});
  stream const s;
  vector<int, decltype(memory)> v(10, s, memory);
  s.synchronize();
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<int>(i) + 1;
  CHECK(v.to_host() == numbers(10));
  CHECK(std::ranges::equal(v, numbers(10)));
  vector<int, any_host_device_handle> w(numbers(10), s, shared);
  auto const& read_only = w;
  CHECK(read_only[9] == 10);
  vector<int, any_host_device_resource> const kept(numbers(10), s, any_host_device_resource(pinned{}));
  CHECK(kept[9] == 10);
}

TEST_CASE("it moves to another stream") {
  test::watched_world const world;
  auto memory = make(async{} | pool{} | checked{});
  stream const s, t;
  vector<int> v(10, s, memory);
  sim::touch(s.get(), v.data(), 40, sim::access::write);
  v.set_stream(t);
  sim::touch(t.get(), v.data(), 40, sim::access::read);
  CHECK(v.stream() == stream_ref(t));
  CHECK(v.device() == 0);
  CHECK(v.memory() == any_handle(memory));
}
