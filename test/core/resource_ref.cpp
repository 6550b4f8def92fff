#include <weir/core/resource_ref.hpp>

#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <core/recorder.hpp>

using namespace weir;

namespace {
using handle = resource_ref<recorder_resource<>>;
static_assert(resource<handle>);
static_assert(recipe<handle>);
static_assert(std::is_trivially_copyable_v<handle>);
static_assert(sizeof(handle) == sizeof(void*));
static_assert(device_accessible<handle> && !host_accessible<handle>);
static_assert(host_accessible<resource_ref<recorder_resource<true, true>>>);
static_assert(host_ordered<resource_ref<recorder_resource<true, false, false>>>);
}  // namespace

TEST_CASE("a handle forwards what it is asked") {
  fresh_record const record;
  auto memory = make(recorder<>{});
  auto const shared = share(memory);
  void* const p = shared.allocate(cudaStreamPerThread, 100, 512);
  shared.deallocate(cudaStreamPerThread, p, 100, 512);
  REQUIRE(recorded.size() == 2);
  for (auto const& call : recorded) {
    CHECK(call.stream == stream_ref(cudaStreamPerThread));
    CHECK(call.p == p);
    CHECK(call.bytes == 100);
    CHECK(call.alignment == 512);
  }
}

TEST_CASE("handles are equal if they refer to the same resource") {
  auto one = make(recorder<>{});
  auto other = make(recorder<>{});
  CHECK(share(one) == share(one));
  CHECK(share(one) != share(other));
}

TEST_CASE("a handle is shared as itself") {
  auto memory = make(recorder<>{});
  auto const shared = share(memory);
  static_assert(std::is_same_v<decltype(share(shared)), handle>);
  CHECK(share(shared) == shared);
}

TEST_CASE("stacks on one handle share its resource, which is found through them") {
  fresh_record const record;
  auto memory = make(recorder<>{.label = 2});
  auto first = make(share(memory) | passing{"first"});
  auto second = make(share(memory) | passing{"second"});
  CHECK(first.allocate(host_order, 8) == second.allocate(host_order, 8));
  CHECK(&find<recorder_resource<>>(first) == &memory);
  CHECK(report_of(first).chain() == "first > recorder");
}

TEST_CASE("a handle to a resource that knows only streams understands host order all the same") {
  fresh_record const record;
  sim::reset();
  auto memory = make(recorder<true, false, false>{});
  auto const shared = share(memory);
  void* const p = shared.allocate(host_order, 100);
  CHECK(sim::calls("cudaStreamSynchronize") == 1);
  shared.deallocate(host_order, p, 100);
  REQUIRE(recorded.size() == 2);
  CHECK(!recorded[0].stream.is_host_order());
  CHECK(!recorded[1].stream.is_host_order());
}
