#include <weir/support/sampled_clock.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <random>
#include <utility>

using namespace weir::detail;

namespace {

/// Clocks that stand still until a test sets them: ticks of a nanosecond, and a timer every 4 ms.
struct set_clocks {
  static std::uint64_t ticks() {
    ++looks;
    return now;
  }
  static std::uint64_t step() { return now / timer; }

  static constexpr std::uint64_t timer = 4'000'000;
  static inline std::uint64_t now = 0, looks = 0;
};
using test_clock = sampled_clock<set_clocks>;

std::uint64_t event_after(test_clock& clock, std::uint64_t nanoseconds, std::uint64_t before = 0) {
  set_clocks::now += nanoseconds;
  clock.look_if_due();
  return clock.next(before);
}

}  // namespace

TEST_CASE("the first event after a pause has its own time, and none before it has it") {
  set_clocks::now = 1'000'000'000;
  test_clock clock;
  std::uint64_t last = event_after(clock, 0);
  CHECK(last == 1'000'000'000);
  for (int i = 0; i < 5; ++i) last = event_after(clock, 100);
  CHECK(last < 1'000'001'000);
  CHECK(event_after(clock, 1'000'000'000) == 2'000'000'500);
}

TEST_CASE("events are in order, never late, and early by less than a tick of the timer") {
  set_clocks::now = 1'000'000'000;
  set_clocks::looks = 0;
  test_clock clock;
  std::mt19937_64 random(7);
  std::uint64_t last = 0;
  constexpr unsigned events = 100'000;
  for (unsigned i = 0; i < events; ++i) {
    std::uint64_t const at = event_after(clock, random() % 1000 == 0 ? random() % 20'000'000 : 1 + random() % 200);
    REQUIRE(at > last);
    REQUIRE(at <= set_clocks::now);
    REQUIRE(set_clocks::now - at < set_clocks::timer);
    last = at;
  }
  CHECK(set_clocks::looks < events / 32);
}

TEST_CASE("many events in one tick of the timer have times of their own now and then") {
  set_clocks::now = 1'000'000'000;
  test_clock clock;
  std::uint64_t const first = event_after(clock, 0);
  std::uint64_t last = 0;
  for (unsigned i = 0; i < test_clock::events_a_look; ++i) last = event_after(clock, 100);
  CHECK(last == first + test_clock::events_a_look * 100);
}

TEST_CASE("an event is later than one that another thread recorded before it") {
  set_clocks::now = 1'000'000'000;
  test_clock clock;
  CHECK(event_after(clock, 0) == 1'000'000'000);
  CHECK(event_after(clock, 100, 1'000'000'090) == 1'000'000'091);
  CHECK(event_after(clock, 100) == 1'000'000'092);  // in its own order, too
}

TEST_CASE("an event of a thread that comes after another one's is later, whatever keeps them") {
  set_clocks::now = 1'000'000'000;
  test_clock one, other;
  std::uint64_t last = event_after(one, 0);
  for (int turn = 0; turn < 3; ++turn)
    for (test_clock* const clock : {&other, &one})
      for (int i = 0; i < 3; ++i) {
        std::uint64_t const at = event_after(*clock, 100);  // no timer has ticked
        CHECK(at > last);
        CHECK(at <= set_clocks::now);
        last = at;
      }
}

namespace {

/// The same, where something else happens between a look and what is seen.
struct interrupted_clocks : set_clocks {
  static std::uint64_t ticks() {
    if (meanwhile) std::exchange(meanwhile, nullptr)();
    now += 100;
    return set_clocks::ticks();
  }
  static inline std::function<void()> meanwhile;
};

}  // namespace

TEST_CASE("a thread that looks while another one is about to look is not taken for the last") {
  set_clocks::now = 1'000'000'000;
  sampled_clock<interrupted_clocks> one, other;
  auto const event = [](auto& clock) {
    clock.look_if_due();
    return clock.next(0);
  };
  event(other);
  interrupted_clocks::meanwhile = [&] { event(other); };
  std::uint64_t const at = event(one);
  CHECK(event(other) > at);  // which has waited for that
}

TEST_CASE("a look makes the next event exact, and a processor that is behind turns no time back") {
  set_clocks::now = 1'000'000'000;
  test_clock clock;
  CHECK(event_after(clock, 0) == 1'000'000'000);
  set_clocks::now += 100;
  clock.look();
  CHECK(clock.next(0) == 1'000'000'100);
  set_clocks::now -= 50;
  clock.look();
  CHECK(clock.next(0) == 1'000'000'101);
}

TEST_CASE("the kernel's timer ticks") {
  std::uint64_t const before = machine_clocks::step();
  while (machine_clocks::step() == before) {
  }
  CHECK(machine_clocks::step() > before);
}
