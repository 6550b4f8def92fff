#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/containers/any_handle.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/numbers.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/pinned.hpp>

#include <doctest/doctest.h>

#include <core/recorder.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <support/sim_fixture.hpp>
#include <type_traits>
#include <utility>
#include <vector>

using namespace weir;
using namespace weir::literals;

namespace {

static_assert(handle<any_handle> && std::same_as<handle_to<any_handle>, any_handle>);
static_assert(device_accessible<any_handle> && !host_accessible<any_handle> && host_ordered<any_handle>);
static_assert(host_accessible<any_host_handle> && host_accessible<any_host_device_handle>);
static_assert(std::is_nothrow_move_constructible_v<any_handle> && std::is_nothrow_move_assignable_v<any_handle>);
using memory_type = recorder_resource<>;
static_assert(!std::is_constructible_v<any_handle, memory_type>);                                      // a temporary
static_assert(!std::is_convertible_v<device, any_handle> && !std::is_convertible_v<device, any_ref>);  // recipes

/// A handle of a user's own: a value that keeps what it needs.
struct own_handle {
  static constexpr bool device_accessible = true;
  any_resource stack;

  void* allocate(stream_ref s, std::size_t n, std::size_t a) const { return stack.allocate(s, n, a); }
  void deallocate(stream_ref s, void* p, std::size_t n, std::size_t a) const noexcept { stack.deallocate(s, p, n, a); }
  void describe(report& out) const { stack.describe(out); }
  own_handle operator()() const { return *this; }
  friend bool operator==(own_handle const&, own_handle const&) = default;
};

}  // namespace

TEST_CASE("it forwards requests with stream, bytes and alignment, whatever it was made from") {
  fresh_record const record;
  auto memory = make(recorder<>{});
  any_resource const owned{recorder<>{}};
  for (any_handle const& held : {any_handle(memory), any_handle(share(memory)), any_handle(any_ref(memory)),
                                 any_handle(owned), any_handle(own_handle{owned})}) {
    recorded.clear();
    void* const p = held.allocate(cudaStreamPerThread, 100, 512);
    held.deallocate(cudaStreamPerThread, p, 100, 512);
    REQUIRE(recorded.size() == 2);
    for (auto const& call : recorded) {
      CHECK(call.stream == stream_ref(cudaStreamPerThread));
      CHECK(call.p == p);
      CHECK(call.bytes == 100);
      CHECK(call.alignment == 512);
    }
    CHECK(report_of(held).chain() == "recorder");
  }
}

TEST_CASE("it owns what owners own, and refers to everything else") {
  fresh_record const record;
  auto memory = make(recorder<>{});
  CHECK(!any_handle(memory).owns());
  CHECK(!any_handle(share(memory)).owns());
  CHECK(!any_handle(any_ref(memory)).owns());
  std::optional<any_resource> owner(std::in_place, recorder<>{});
  std::optional<any_handle> held(*owner), user_held(own_handle{*owner});
  CHECK(held->owns());
  CHECK(user_held->owns());
  built.clear();
  owner.reset();
  held.reset();
  CHECK(built.empty());
  user_held.reset();
  CHECK(built == std::vector<std::string>{"~recorder"});
}

TEST_CASE("handles are equal if they refer to one object, or own one stack together") {
  fresh_record const record;
  auto memory = make(recorder<>{}), other = make(recorder<>{});
  CHECK(any_handle(memory) == any_handle(share(memory)));
  CHECK(any_handle(memory) != any_handle(other));
  any_resource const owned{recorder<>{}}, other_owned{recorder<>{}};
  any_handle const held(owned);
  CHECK(held == any_handle(owned));
  CHECK(held != any_handle(other_owned));
  CHECK(held != any_handle(memory));
  REQUIRE(own_handle{owned} == own_handle{owned});
  CHECK(any_handle(own_handle{owned}) != held);  // keeps the value, whatever that keeps
  any_handle copy(memory);
  copy = held;
  CHECK(copy == held);
  CHECK(copy() == held);
}

TEST_CASE("handles with fewer promises hold the same, and are equal if that is") {
  test::fresh_world const world;
  auto memory = make(pinned{} | pool{});
  any_host_device_handle const refers(memory);
  CHECK(any_handle(refers) == any_handle(memory));
  CHECK(!any_host_handle(refers).owns());
  any_host_device_resource const owned(pinned{} | pool{});
  CHECK(any_handle(owned) == any_handle(owned));
  any_host_device_handle const owns(owned);
  any_handle const for_device = owns;
  CHECK(for_device.owns());
  CHECK(for_device == any_handle(owned));
  CHECK(for_device != any_handle(refers));
  static_assert(!std::is_constructible_v<any_host_device_handle, any_handle>);
}

TEST_CASE("one that owned and was moved from serves nothing; one that refers still does") {
  fresh_record const record;
  auto memory = make(recorder<>{});
  any_handle refers(memory), owns(any_resource{recorder<>{}});
  any_handle const a(std::move(refers)), b(std::move(owns));
  CHECK(refers.allocate(host_order, 8) != nullptr);  // NOLINT(bugprone-use-after-move)
  CHECK(owns.allocate(host_order, 0) == nullptr);    // NOLINT(bugprone-use-after-move)
  CHECK_THROWS_AS(owns.allocate(host_order, 8), std::logic_error);
  CHECK(b.allocate(host_order, 8) != nullptr);
}

TEST_CASE("a stack can be asked and trimmed through it, and says its device and what requests take") {
  test::fresh_world const world;
  auto memory = make(device{.device = 1} | pool{} | limit{.max_bytes = 64_MiB, .name = "search"});
  any_resource const owned(device{.device = 1} | pool{} | limit{.max_bytes = 64_MiB, .name = "search"});
  for (any_handle const& held : {any_handle(memory), any_handle(owned)}) {
    held.deallocate(host_order, held.allocate(host_order, 1_MiB), 1_MiB);
    CHECK(device_of(held) == 1);
    CHECK(taken(held, 1) == 256);
    CHECK(!holds_captured(held, 0));
    CHECK(find_limit(held, "search").max_bytes() == 64_MiB);
    CHECK(numbers(held).size() == 3);
    CHECK(trim(held) > 0);
  }
}

TEST_CASE("memory that several streams have used goes back through it without a wait") {
  test::fresh_world const world(sim::mode::lazy);
  auto memory = make(device{} | pool{.initial_bytes = 1_MiB, .max_bytes = 1_MiB});
  stream const s, t;
  any_handle const held(memory);
  void* const p = held.allocate(s, 1_MiB);
  sim::touch(t.get(), p, 1_MiB, sim::access::read);
  sim::reset_counters();
  deallocate_after(held, s, p, 1_MiB, {t});
  CHECK(sim::calls("cudaStreamSynchronize") == 0);
  CHECK(sim::calls("cudaStreamWaitEvent") == 0);
  CHECK(cudaStreamQuery(t.get()) == cudaErrorNotReady);
  CHECK(weir::numbers(memory).front().pending == 1_MiB);
  held.deallocate(s, held.allocate(s, 1_MiB), 1_MiB);  // after the work on t: the stream that needs it waits
  CHECK(sim::calls("cudaStreamWaitEvent") == 1);
}

TEST_CASE("what an owner promises of its memory may be forgotten") {
  test::fresh_world const world;
  any_host_device_resource const both(pinned{});
  any_handle const for_device(both);
  any_host_handle const for_host(both);
  for_device.deallocate(host_order, for_device.allocate(host_order, 8), 8);
  for_host.deallocate(host_order, for_host.allocate(host_order, 8), 8);
  CHECK(sim::live_allocations() == 0);
}
