// needs: tsan
#include <weir/adaptors/detail/trace_ring.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

using namespace weir;

namespace {

/// Keeps what it is shown.
struct reader final : detail::event_visitor {
  void see_begin(detail::tick_moment const& when, std::uint64_t gone) override { made = when, forgotten = gone; }
  void see(detail::shown_event const& event) override { events.push_back(event); }
  void see_frame(std::uint32_t, char const*) override {}
  void see_report(std::uint32_t, std::string const&) override {}

  detail::tick_moment made;
  std::uint64_t forgotten = 0;
  std::vector<detail::shown_event> events;
};
reader read(detail::trace_ring const& ring) {
  reader out;
  ring.show(out);
  return out;
}
void add(detail::trace_ring& ring, std::size_t bytes) {
  ring.add(trace_action::allocate, nullptr, bytes, host_order, 0);
}

}  // namespace

TEST_CASE("the latest events are kept, oldest first") {
  detail::trace_ring ring(3);
  CHECK(read(ring).events.empty());
  for (std::size_t i = 1; i <= 2; ++i) add(ring, i);
  reader const few = read(ring);
  REQUIRE(few.events.size() == 2);
  CHECK(few.forgotten == 0);
  for (std::size_t i = 3; i <= 8; ++i) add(ring, i);
  reader const all = read(ring);
  REQUIRE(all.events.size() == 3);
  CHECK(all.events[0].bytes == 6);
  CHECK(all.events[2].bytes == 8);
  CHECK(all.forgotten == 5);
  CHECK(ring.count() == 8);
  CHECK(all.events[0].ticks > all.made.ticks);
  CHECK(all.events[1].ticks > all.events[0].ticks);
}

TEST_CASE("what a thread adds to several rings is in one order, and nothing is before its ring") {
  detail::trace_ring one(300);
  for (std::size_t i = 0; i < 10; ++i) add(one, i);
  detail::trace_ring other(300);  // as a rule between two looks at the clock
  for (std::size_t i = 0; i < 200; ++i) add(i % 2 == 0 ? other : one, i);
  reader const in_one = read(one), in_other = read(other);
  CHECK(in_other.events[0].ticks > in_other.made.ticks);
  for (std::size_t i = 0; i < 100; ++i) {
    REQUIRE(in_other.events[i].ticks < in_one.events[10 + i].ticks);
    if (i > 0) REQUIRE(in_one.events[9 + i].ticks < in_other.events[i].ticks);
  }
}

TEST_CASE("exact times are those of the processor's clock") {
  detail::trace_ring ring(100, true);
  std::uint64_t before[100];
  for (std::uint64_t& each : before) {
    each = detail::tick_count();
    add(ring, 1);
  }
  reader const all = read(ring);
  for (std::size_t i = 0; i < 100; ++i) REQUIRE(all.events[i].ticks >= before[i]);
}

TEST_CASE("an event has what is known of its thread") {
  detail::trace_ring ring(1);
  auto* const handle = reinterpret_cast<cudaStream_t>(std::uintptr_t{0x51});
  tag const scope{"decoder"};
  int place = 0;
  ring.add(trace_action::free, &place, 10, stream_ref(handle), 7, 3);
  detail::shown_event const e = read(ring).events.at(0);
  CHECK(e.action == trace_action::free);
  CHECK(e.address == reinterpret_cast<std::uintptr_t>(&place));
  CHECK(e.stream == 0x51);
  CHECK(e.tag.text() == "decoder");
  CHECK(e.thread == detail::thread_id());
  CHECK(e.call_stack == 7);
  CHECK(e.report == 3);
}

TEST_CASE("a ring that was cleared begins anew") {
  detail::trace_ring ring(4);
  for (std::size_t i = 1; i <= 6; ++i) add(ring, i);
  ring.clear();
  CHECK(read(ring).events.empty());
  CHECK(read(ring).forgotten == 0);
  add(ring, 7);
  reader const later = read(ring);
  REQUIRE(later.events.size() == 1);
  CHECK(later.events[0].bytes == 7);
  CHECK(later.forgotten == 0);
}

TEST_CASE("threads add while another reads: whole events, in the order of each thread") {
  constexpr std::size_t each = 20'000;
  detail::trace_ring ring(1000);
  std::atomic<int> running{2};
  auto const work = [&](std::size_t first) {
    for (std::size_t i = 0; i < each; ++i)  // bytes and address say the same
      ring.add(trace_action::allocate, reinterpret_cast<void*>(first + i), first + i, host_order, 0);
    --running;
  };
  std::thread one(work, 1'000'000), other(work, 2'000'000);
  bool whole = true, in_order = true;
  do {
    std::size_t last[3] = {};
    std::uint64_t last_ticks = 0;
    for (detail::shown_event const& e : read(ring).events) {
      in_order = in_order && e.ticks > last_ticks;
      last_ticks = e.ticks;
      whole = whole && e.bytes == e.address;
      std::size_t& before = last[e.bytes / 1'000'000];
      in_order = in_order && e.bytes > before;
      before = e.bytes;
    }
  } while (running != 0);
  one.join();
  other.join();
  CHECK(whole);
  CHECK(in_order);
  CHECK(ring.count() == 2 * each);
  CHECK(read(ring).events.size() == 1000);
}
