#include <weir/core/any_resource.hpp>

#include <weir/sim/sim.hpp>
#include <weir/sources/device.hpp>

#include <doctest/doctest.h>
#include <core/recorder.hpp>

#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace weir;

namespace {
static_assert(resource<any_resource> && recipe<any_resource>);
static_assert(std::is_copy_constructible_v<any_resource> && std::is_copy_assignable_v<any_resource>);
static_assert(device_accessible<any_resource> && !host_accessible<any_resource>);
static_assert(!device_accessible<any_host_resource> && host_accessible<any_host_resource>);
static_assert(device_accessible<any_host_device_resource> && host_accessible<any_host_device_resource>);
static_assert(host_ordered<any_resource>);
static_assert(std::is_constructible_v<any_resource, device> && !std::is_convertible_v<device, any_resource>);

void* use(any_resource memory) { return memory.allocate(cudaStreamPerThread, 100, 512); }
}  // namespace

TEST_CASE("an erased stack forwards what it is asked") {
  fresh_record const record;
  any_resource const memory{recorder<>{} | passing{}};
  void* const p = use(memory);
  memory.deallocate(cudaStreamPerThread, p, 100, 512);
  REQUIRE(recorded.size() == 2);
  for (auto const& call : recorded) {
    CHECK(call.stream == stream_ref(cudaStreamPerThread));
    CHECK(call.p == p);
    CHECK(call.bytes == 100);
    CHECK(call.alignment == 512);
  }
}

TEST_CASE("an erased stack is for the device of the stack in it") {
  CHECK(device_of(any_resource{device{.device = 1}}) == 1);
}

TEST_CASE("copies share one stack, and the last of them destroys it") {
  fresh_record const record;
  {
    any_resource last{recorder<>{}};
    {
      any_resource const first{recorder<>{} | passing{}};
      CHECK(first != last);
      last = first;
      CHECK(first == last);
      built.clear();
    }
    CHECK(built.empty());
  }
  CHECK(built == std::vector<std::string>{"~passing", "~recorder"});
}

TEST_CASE("stacks are built on an erased one, and report through it") {
  any_resource const base{recorder<>{.label = 6}};
  auto memory = make(base | passing{"top"});
  CHECK(memory.upstream() == base);
  CHECK(report_of(memory).chain() == "top > recorder");
}

TEST_CASE("memory that both can reach keeps either promise") {
  any_resource const for_device{recorder<true, true>{}};
  any_host_resource const for_host{recorder<true, true>{}};
  any_host_device_resource const for_both{recorder<true, true>{}};
  CHECK(for_device.allocate(host_order, 1) != nullptr);
  CHECK(for_host.allocate(host_order, 1) != nullptr);
  CHECK(for_both.allocate(host_order, 1) != nullptr);
}

TEST_CASE("with fewer promises it shares the stack, and is equal to what does too") {
  fresh_record const record;
  {
    any_host_device_resource both{recorder<true, true>{}};
    any_resource const for_device = both, again(both);
    any_host_resource const for_host(both);
    CHECK(for_device == again);
    CHECK(for_device == both);
    CHECK(for_host == both);
    CHECK(for_device != any_resource(any_host_device_resource{recorder<true, true>{}}));
    built.clear();
    both = any_host_device_resource{recorder<true, true>{}};
    CHECK(built == std::vector<std::string>{"recorder"});  // the first stack is still there
    CHECK(for_device.allocate(host_order, 1) != nullptr);
  }
  static_assert(!std::is_convertible_v<any_resource, any_host_device_resource>);
}

TEST_CASE("an erased resource that knows only streams understands host order all the same") {
  fresh_record const record;
  sim::reset();
  any_resource const memory{recorder<true, false, false>{}};
  void* const p = memory.allocate(host_order, 100);
  CHECK(sim::calls("cudaStreamSynchronize") == 1);
  memory.deallocate(host_order, p, 100);
  REQUIRE(recorded.size() == 2);
  CHECK(!recorded[1].stream.is_host_order());
}

TEST_CASE("a moved-from erased stack does nothing for zero bytes and null, and refuses the rest in words") {
  fresh_record const record;
  any_resource first{recorder<>{}};
  any_resource second = std::move(first);
  CHECK(first.allocate(cudaStreamLegacy, 0) == nullptr);
  first.deallocate(cudaStreamLegacy, nullptr, 0);
  CHECK_THROWS_WITH_AS(first.allocate(cudaStreamLegacy, 8),
                       "weir: allocate of 8 B: this any_resource was moved from; assign a stack to it first",
                       std::logic_error);
  static std::string misuse;
  misuse_handler const before = set_misuse_handler([](char const* what) noexcept { misuse = what; });
  int here = 0;
  first.deallocate(cudaStreamLegacy, &here, 8);
  set_misuse_handler(before);
  CHECK(misuse == "weir: deallocate of " + detail::hex(&here) +
                      " (8 B): this any_resource was moved from; assign a stack to it first");
  CHECK(report_of(first).chain() == "moved from");
  CHECK(device_of(first) == -1);
  CHECK(recorded.empty());

  CHECK(second.allocate(host_order, 8) != nullptr);
  any_resource const copy = first;
  CHECK(copy == first);
  CHECK(copy != second);
}

TEST_CASE("a moved-from erased stack serves again once one is assigned to it") {
  fresh_record const record;
  any_resource first{recorder<>{.label = 1}};
  any_resource second{recorder<>{.label = 2}};
  second = std::move(first);
  CHECK(built == std::vector<std::string>{"recorder", "recorder", "~recorder"});
  CHECK(report_of(second).lines().find("label 1") != std::string::npos);
  CHECK(report_of(first).chain() == "moved from");
  first = second;
  CHECK(first == second);
  CHECK(first.allocate(host_order, 8) != nullptr);
}
