#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/on_failure.hpp>
#include <weir/adaptors/spill.hpp>
#include <weir/adaptors/spillable.hpp>
#include <weir/adaptors/trace.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/error.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/numbers.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/virtual_memory.hpp>
#include <weir/tools/trace_of.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <functional>
#include <list>
#include <stdexcept>
#include <string>
#include <utility>

#include "support/captures.hpp"
#include "support/spilling.hpp"
#include "support/streams_at_work.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

using spilling = spill_resource<source_resource>;
static_assert(resource<spilling>);
static_assert(device_accessible<spilling> && host_accessible<spilling> && host_ordered<spilling>);

using byte_handle = spillable<unsigned char>;

/// Handles of 1 MiB, used in this order.
template <class Memory>
std::list<byte_handle> make_handles(Memory& memory, stream_ref stream, std::size_t count) {
  std::list<byte_handle> made;
  for (std::size_t i = 0; i < count; ++i) {
    made.emplace_back(memory, stream, 1_MiB);
    fill_pinned(made.back(), stream, static_cast<unsigned char>(i + 1));
  }
  return made;
}

/// Which handles are spilled, as `h` (on the host) and `-` for those that are not.
std::string spilled(std::list<byte_handle> const& handles) {
  std::string text;
  for (byte_handle const& x : handles) text += x.is_on_device() ? '-' : 'h';
  return text;
}

}  // namespace

TEST_CASE("what the upstream serves passes through, and spills nothing") {
  source_state state;
  auto host = make(host_stack());
  auto memory = make(source{&state} | spill{.to = share(host)});
  stream_ref const stream;
  CHECK(memory.allocate(stream, 0) == nullptr);
  memory.deallocate(stream, nullptr, 0);
  CHECK(state.calls == 0);
  void* const p = memory.allocate(stream, 1000, 512);
  CHECK(state.live_bytes == 1000);
  memory.deallocate(stream, p, 1000, 512);
  CHECK(state.live_count == 0);
  CHECK(memory.numbers().spills == 0);
}

TEST_CASE("a request spills the longest unused handles, and no more than make its bytes") {
  watched_world const world;
  auto host = make(host_stack());
  auto memory = make(spilling_stack(host, 4_MiB));
  stream const a;
  auto handles = make_handles(memory, a, 4);
  CHECK(spilled(handles) == "----");
  fill_pinned(handles.front(), a, 1);  // used last now
  void* const one = memory.allocate(a, 1_MiB);
  CHECK(spilled(handles) == "-h--");
  void* const other = memory.allocate(a, 1000);
  CHECK(spilled(handles) == "-hh-");
  memory.deallocate(a, one, 1_MiB);
  memory.deallocate(a, other, 1000);
}

TEST_CASE("a pool above that can grow by less does so before anything is spilled") {
  watched_world const world;
  auto host = make(host_stack());
  auto memory = make(spilling_stack(host, 8_MiB));
  auto pooled = make(share(memory) | pool{.growth_bytes = 8_MiB});
  stream const a;
  auto handles = make_handles(memory, a, 4);
  void* const p = pooled.allocate(a, 1_MiB);  // 8 MiB are not to be had, 4 are
  CHECK(spilled(handles) == "----");
  void* const q = pooled.allocate(a, 4_MiB);
  CHECK(spilled(handles) == "hhhh");
  pooled.deallocate(a, p, 1_MiB);
  pooled.deallocate(a, q, 4_MiB);
}

TEST_CASE("it goes on spilling until the request fits") {
  watched_world const world;
  auto host = make(host_stack());
  auto memory = make(spilling_stack(host, 5_MiB));
  stream const a;
  auto handles = make_handles(memory, a, 5);
  for (int i : {0, 2, 4}) fill_pinned(*std::next(handles.begin(), i), a, 1);  // 1 and 3 are the longest unused now
  void* const p = memory.allocate(a, 2_MiB);                                  // which are no neighbours
  CHECK(memory.numbers().spills > 2);
  memory.deallocate(a, p, 2_MiB);
}

TEST_CASE("a trace below records what went to the host and came back, and for whom") {
  watched_world const world;
  auto host = make(host_stack());
  auto memory = make(device{} | pool{.max_bytes = 4_MiB} | trace{} | spill{.to = share(host)});
  stream const a;
  auto handles = make_handles(memory, a, 4);
  auto const address = reinterpret_cast<std::uintptr_t>(handles.front().pin(a).data());
  fill_pinned(handles.back(), a, 4);
  find<trace_resource>(memory).clear();
  {
    tag const scope{"batch"};
    memory.deallocate(a, memory.allocate(a, 1_MiB), 1_MiB);  // the second handle goes
  }
  static_cast<void>(std::next(handles.begin())->pin(a));
  recorded_trace const trace = trace_of(memory);
  std::string text;
  for (trace_event const& e : trace.events) text += std::string(name_of(e.action)) + " ";
  CHECK(text == "out_of_memory spill free allocate free allocate unspill ");
  REQUIRE(trace.events.size() == 7);
  trace_event const &spilled = trace.events[1], &back = trace.events[6];
  CHECK(spilled.address != address);
  CHECK(spilled.address == trace.events[2].address);
  CHECK(spilled.bytes == 1_MiB);
  CHECK(trace.tags[spilled.tag] == "batch");
  CHECK(back.address == trace.events[5].address);
  CHECK(trace.tags[back.tag].empty());
}

TEST_CASE("what is pinned stays; the refusal says what there was") {
  watched_world const world;
  auto host = make(host_stack());
  auto memory = make(spilling_stack(host, 4_MiB));
  stream const a;
  auto handles = make_handles(memory, a, 4);
  auto const pin = handles.back().pin(a);
  try {
    static_cast<void>(memory.allocate(a, 4_MiB));
    FAIL("it was not refused");
  } catch (out_of_memory const& failure) {
    CHECK(std::string(failure.refused_by()) == "pool");
    CHECK(contains(failure.what(), "chain: spill > checked > pool(4.00 MiB)"));
    CHECK(contains(failure.what(),
                   "4 handles: 1.00 MiB on the device, 1.00 MiB of it pinned by 1 handles; 3.00 MiB "
                   "spilled; 3 spills, 0 that the host or CUDA refused"));
  }
  CHECK(spilled(handles) == "hhh-");
}

TEST_CASE("what the host has no room for stays on the device, with its contents") {
  watched_world const world;
  queued_checks checks;
  auto host = make(host_stack(2_MiB));
  auto memory = make(spilling_stack(host, 4_MiB));
  stream const a;
  auto handles = make_handles(memory, a, 4);
  CHECK_THROWS_AS(memory.allocate(a, 4_MiB), out_of_memory);
  CHECK(spilled(handles) == "hh--");
  CHECK(memory.numbers().not_spilled != 0);
  unsigned char value = 3;
  for (auto x = std::next(handles.begin(), 2); x != handles.end(); ++x) {
    auto const p = x->pin(a);
    checks.expect(a, p.data(), p.size(), value++);
  }
  a.synchronize();
  CHECK(checks.done() == 2);
  CHECK(checks.wrong() == 0);
  void* const p = memory.allocate(a, 2_MiB);  // what went made room
  memory.deallocate(a, p, 2_MiB);
}

namespace {

/// A pool of 4 MiB, full of handles, that spills to memory of which nothing is left, until a reclaimer gives some.
class full_host {
 public:
  template <class Reclaim>
  explicit full_host(Reclaim reclaim)
      : host(make(pinned{} | pool{.max_bytes = 2_MiB} |
                  on_failure{{{"of the host", [reclaim](memory_request const&) { return reclaim(); }}}})),
        memory(make(spilling_stack(host, 4_MiB))),
        handles(make_handles(memory, a, 4)),
        taken(host.allocate(a, 2_MiB)) {}
  ~full_host() {
    if (taken != nullptr) host.deallocate(a, taken, 2_MiB);
  }

  stream a;
  made_by<decltype(pinned{} | pool{} | on_failure{})> host;
  made_by<decltype(spilling_stack(host, 0))> memory;
  std::list<byte_handle> handles;
  void* taken;
};

}  // namespace

TEST_CASE("a reclaimer of the host's stack may drop the handle that is on its way there") {
  watched_world const world;
  std::size_t dropped = 0;
  full_host* all = nullptr;
  full_host on([&]() -> std::size_t {
    all->handles.pop_front();
    ++dropped;
    return 0;  // of the host's memory
  });
  all = &on;
  void* const p = on.memory.allocate(on.a, 1_MiB);
  CHECK(dropped == 1);
  spill_numbers const n = on.memory.numbers();
  CHECK(n.handles == 3);
  CHECK(n.device_bytes == 3_MiB);
  CHECK(n.host_bytes == 0);
  on.memory.deallocate(on.a, p, 1_MiB);
}

TEST_CASE("so it may where it then has room on the host") {
  watched_world const world;
  full_host* all = nullptr;
  full_host on([&]() -> std::size_t {
    all->handles.pop_front();
    all->host.deallocate(all->a, std::exchange(all->taken, nullptr), 2_MiB);
    return 2_MiB;
  });
  all = &on;
  void* const p = on.memory.allocate(on.a, 1_MiB);
  spill_numbers const n = on.memory.numbers();
  CHECK(n.handles == 3);
  CHECK(n.device_bytes + n.host_bytes == 3_MiB);
  CHECK(n.moved_bytes == n.spills * 1_MiB);
  on.memory.deallocate(on.a, p, 1_MiB);
}

TEST_CASE("what a reclaimer of the host's stack asks for is refused, or served, but waits for no copy of its own") {
  watched_world const world;
  std::size_t refused = 0;
  full_host* all = nullptr;
  full_host on([&]() -> std::size_t {
    CHECK_THROWS_AS(all->memory.allocate(all->a, 1_MiB), out_of_memory);
    CHECK_THROWS_AS(static_cast<void>(all->handles.front().pin(all->a)), std::logic_error);
    CHECK(all->handles.back().pin(all->a).data() != nullptr);
    ++refused;
    return 0;
  });
  all = &on;
  CHECK_THROWS_AS(on.memory.allocate(on.a, 1_MiB), out_of_memory);
  CHECK(refused == 1);
  CHECK(on.memory.numbers().handles == 4);
  CHECK(on.memory.numbers().device_bytes == 4_MiB);
}

TEST_CASE("a reclaimer below neither drops nor pins the handle that its own thread brings back") {
  watched_world const world;
  caught_misuse const misuse;
  auto host = make(host_stack());
  stream const a;
  std::function<void()> reclaim = [] {};
  auto memory = make(device{} | pool{.initial_bytes = 2_MiB, .max_bytes = 2_MiB} |
                     on_failure{{{"of handles", [&](memory_request const&) -> std::size_t { return reclaim(), 0; }}}} |
                     spill{.to = share(host)});
  auto handles = make_handles(memory, a, 2);
  void* const p = memory.allocate(a, 1_MiB);
  CHECK(spilled(handles) == "h-");
  {
    auto const all_else = handles.back().pin(a);
    reclaim = [&] { static_cast<void>(handles.front().pin(a)); };
    std::string const refusal = message_of<out_of_memory>([&] { static_cast<void>(handles.front().pin(a)); });
    CHECK(contains(refusal, "pinned while it comes back"));
    CHECK(misuse.count() == 0);
    reclaim = [&] {
      if (handles.size() == 2) handles.pop_front();
    };
    CHECK_THROWS_AS(static_cast<void>(handles.front().pin(a)), out_of_memory);
    CHECK(misuse.count() == 1);
    CHECK(contains(misuse.last(), "1.00 MiB ended while it was pinned"));
  }
  CHECK(memory.numbers().handles == 2);
  CHECK(memory.numbers().host_bytes == 1_MiB);  // kept
  memory.deallocate(a, p, 1_MiB);
}

TEST_CASE("where the host has no room for the longest unused handle, smaller ones go, and each is tried once") {
  watched_world const world;
  auto host = make(host_stack(1_MiB));
  auto memory = make(spilling_stack(host, 6_MiB));
  stream const a;
  byte_handle const large(memory, a, 2_MiB), as_large(memory, a, 2_MiB), small(memory, a, 1_MiB),
      last(memory, a, 1_MiB);
  void* const p = memory.allocate(a, 1_MiB);
  CHECK(large.is_on_device());
  CHECK(as_large.is_on_device());
  CHECK_FALSE(small.is_on_device());
  CHECK(last.is_on_device());
  CHECK(memory.numbers().not_spilled == 1);
  CHECK_THROWS_AS(memory.allocate(a, 1_MiB), out_of_memory);
  CHECK(memory.numbers().not_spilled == 3);  // one of each size
  memory.deallocate(a, p, 1_MiB);
}

TEST_CASE("bringing one back spills others; if that does not help, it stays on the host") {
  watched_world const world;
  queued_checks checks;
  auto host = make(host_stack());
  auto memory = make(spilling_stack(host, 2_MiB));
  stream const a;
  auto handles = make_handles(memory, a, 3);
  CHECK(spilled(handles) == "h--");
  {
    auto const second = std::next(handles.begin())->pin(a), third = handles.back().pin(a);
    CHECK_THROWS_AS(static_cast<void>(handles.front().pin(a)), out_of_memory);
    CHECK(spilled(handles) == "h--");
  }
  auto const p = handles.front().pin(a);
  CHECK(spilled(handles) == "--h");  // whose pin ended first
  checks.expect(a, p.data(), p.size(), 1);
  a.synchronize();
  CHECK(checks.done() == 1);
  CHECK(checks.wrong() == 0);
}

TEST_CASE("a request that could never be counted spills nothing") {
  watched_world const world;
  auto host = make(host_stack());
  auto memory = make(spilling_stack(host, 2_MiB));
  stream const a;
  auto handles = make_handles(memory, a, 2);
  CHECK_THROWS_AS(memory.allocate(a, SIZE_MAX - 10), out_of_memory);
  CHECK(spilled(handles) == "--");
}

TEST_CASE("requests in host order spill too") {
  watched_world const world;
  auto host = make(host_stack());
  auto memory = make(spilling_stack(host, 2_MiB));
  stream const a;
  auto handles = make_handles(memory, a, 2);
  void* const p = memory.allocate(host_order, 2_MiB);
  memory.deallocate(host_order, p, 2_MiB);
}

TEST_CASE("over memory that is mapped in chunks, what was spilled in pieces serves one request") {
  watched_world const world;
  queued_checks checks;
  auto host = make(host_stack());
  auto memory = make(virtual_memory{.max_bytes = 16_MiB} | pool{} | checked{"device"} | spill{.to = share(host)});
  stream const a;
  std::list<byte_handle> handles;
  for (unsigned char value = 1; value <= 4; ++value) {
    handles.emplace_back(memory, a, 4_MiB);
    fill_pinned(handles.back(), a, value);
  }
  fill_pinned(handles.front(), a, 1);
  fill_pinned(*std::next(handles.begin(), 2), a, 3);  // the second and the fourth are the longest unused
  void* const p = memory.allocate(a, 8_MiB);
  CHECK(spilled(handles) == "-h-h");
  write(a, p, 8_MiB);
  memory.deallocate(a, p, 8_MiB);
  for (unsigned char value = 1; auto& x : handles) {
    auto const pin = x.pin(a);
    checks.expect(a, pin.data(), pin.size(), value++);
  }
  a.synchronize();
  CHECK(checks.done() == 4);
  CHECK(checks.wrong() == 0);
}

TEST_CASE("while a pool below is parked nothing is spilled from it, whatever is known of its type") {
  watched_world const world;
  auto host = make(host_stack());
  auto pages = make(virtual_memory{} | pool{});
  auto memory = make(share(pages) | spill{.to = share(host)});
  auto erased = make(any_ref(pages) | spill{.to = share(host)});
  stream const a;
  byte_handle x(memory, a, 1_MiB), y(erased, a, 1_MiB);
  for (auto* handle : {&x, &y}) fill_pinned(*handle, a, 1);
  a.synchronize();
  pages.park(share(host));
  CHECK_THROWS_WITH_AS(memory.allocate(a, 1_MiB), doctest::Contains("the pool is parked: call unpark()"),
                       out_of_memory);
  CHECK_THROWS_AS(erased.allocate(a, 1_MiB), out_of_memory);
  CHECK(memory.numbers().not_spilled == 0);
  CHECK(erased.numbers().not_spilled == 0);
  pages.unpark();
  queued_checks checks;
  for (auto* handle : {&x, &y}) {
    CHECK(handle->is_on_device());
    auto const p = handle->pin(a);
    checks.expect(a, p.data(), p.size(), 1);
  }
  a.synchronize();
  CHECK(checks.wrong() == 0);
}

TEST_CASE("a budget below makes its tenant spill") {
  watched_world const world;
  auto host = make(host_stack());
  auto shared = make(device{} | pool{});
  auto memory = make(share(shared) | limit{2_MiB} | spill{.to = share(host)});
  stream const a;
  auto handles = make_handles(memory, a, 4);
  CHECK(spilled(handles) == "hh--");
  CHECK(find<limit_resource>(memory).used() == 2_MiB);
}

TEST_CASE("a request of a captured stream spills nothing and is refused") {
  watched_world const world;
  auto host = make(host_stack());
  auto memory = make(spilling_stack(host, 2_MiB));
  stream const a, b;
  auto handles = make_handles(memory, a, 2);
  capture_scope const declared;
  begin_capture(b);
  CHECK_THROWS_AS(memory.allocate(b, 1_MiB), out_of_memory);
  CHECK(spilled(handles) == "--");
  captured_graph const graph(b);
}

TEST_CASE("so does what a pool above takes for one") {
  watched_world const world;
  auto host = make(host_stack());
  auto memory = make(spilling_stack(host, 2_MiB));
  auto pooled = make(share(memory) | pool{});
  stream const a, b;
  auto handles = make_handles(memory, a, 2);
  capture_scope const declared;
  begin_capture(b);
  CHECK_THROWS_AS(static_cast<void>(pooled.allocate(b, 1_MiB)), out_of_memory);
  CHECK(spilled(handles) == "--");
  end_capture(b);
}

TEST_CASE("null from the upstream is out of memory, and an upstream without stream order works") {
  source_state state;
  auto host = make(host_stack());
  auto memory = make(source{&state} | spill{.to = share(host)});
  stream const a;
  byte_handle x(memory, a, 1000);
  state.fail = failing::null;
  CHECK(contains(message_of<out_of_memory>([&] { static_cast<void>(memory.allocate(a, 10)); }),
                 "refused by a resource that returned null; chain: spill > source"));
  CHECK_FALSE(x.is_on_device());
  state.fail = failing::no;
  static_cast<void>(x.pin(a));
  state.fail = failing::bad_alloc;  // which only a resource of the program's own throws
  CHECK_THROWS_AS(static_cast<void>(memory.allocate(a, 10)), std::bad_alloc);
  CHECK_FALSE(x.is_on_device());
  state.fail = failing::other;
  CHECK_THROWS_AS(memory.allocate(a, 10), std::logic_error);
  CHECK_THROWS_AS(static_cast<void>(x.pin(a)), std::logic_error);
  state.fail = failing::no;
  static_cast<void>(x.pin(a));
  CHECK(x.is_on_device());
}

TEST_CASE("the layer is found by what it is and by its name, and asked for numbers") {
  watched_world const world;
  auto host = make(host_stack());
  auto memory = make(device{} | pool{.max_bytes = 2_MiB} | spill{.to = share(host), .name = "search"});
  stream const a;
  auto handles = make_handles(memory, a, 3);
  auto const pin = handles.back().pin(a);
  CHECK(weir::find(memory, "spill").numbers().name == "search");
  CHECK(weir::find(memory, "search").numbers().layer == "spill");
  CHECK(report_of(memory).chain() == "search: spill > pool(2.00 MiB) > device(0)");
  spill_numbers const n = weir::find<spill_resource>(memory).numbers();
  CHECK(n.handles == 3);
  CHECK(n.pinned == 1);
  CHECK(n.device_bytes == 2_MiB);
  CHECK(n.pinned_bytes == 1_MiB);
  CHECK(n.host_bytes == 1_MiB);
  CHECK(n.spills == 1);
  CHECK(n.returns == 0);
  CHECK(n.moved_bytes == 1_MiB);
  CHECK(n.not_spilled == 0);
}

TEST_CASE("a stack with it is made behind an erased type; trim and synchronize pass") {
  watched_world const world;
  auto host = make(host_stack());
  any_resource const memory(device{} | pool{} | spill{.to = share(host)});
  stream const a;
  void* const p = memory.allocate(a, 1_MiB);
  memory.deallocate(a, p, 1_MiB);
  synchronize(memory);
  CHECK(trim(memory) != 0);
  CHECK(weir::find(memory, "spill").numbers().layer == "spill");
}
