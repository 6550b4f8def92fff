#include <weir/core/any_resource.hpp>

#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <core/recorder.hpp>

using namespace weir;

namespace {
static_assert(resource<any_resource> && recipe<any_resource>);
static_assert(std::is_copy_constructible_v<any_resource> && std::is_copy_assignable_v<any_resource>);
static_assert(device_accessible<any_resource> && !host_accessible<any_resource>);
static_assert(!device_accessible<any_host_resource> && host_accessible<any_host_resource>);
static_assert(device_accessible<any_host_device_resource> && host_accessible<any_host_device_resource>);
static_assert(host_ordered<any_resource>);

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
