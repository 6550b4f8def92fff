#include <weir/adaptors/pool.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/device.hpp>
#include <weir/tools/with_retry.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/sim_fixture.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

using batches = std::vector<std::pair<std::size_t, std::size_t>>;

/// Work that has room for so many items at a time, and remembers what it was called with.
struct work {
  std::size_t room;
  batches asked = {};
  void operator()(std::size_t first, std::size_t count) {
    asked.emplace_back(first, count);
    if (count > room) throw out_of_memory({count, count, stream_ref()}, "work", {});
  }
};

}  // namespace

TEST_CASE("what fits is done in one batch") {
  work job{100};
  retry_result const did = with_retry(100, std::ref(job));
  CHECK(job.asked == batches{{0, 100}});
  CHECK(did.items == 100);
  CHECK(did.calls == 1);
  CHECK(did.refused == 0);
  CHECK(did.batch == 100);
}

TEST_CASE("a batch that does not fit is halved, and the rest goes on with the smaller one") {
  work job{30};
  retry_result const did = with_retry(100, std::ref(job));
  CHECK(job.asked == batches{{0, 100}, {0, 50}, {0, 25}, {25, 25}, {50, 25}, {75, 25}});
  CHECK(did.items == 100);
  CHECK(did.calls == 4);
  CHECK(did.refused == 2);
  CHECK(did.batch == 25);
  CHECK(did.text() == "100 items in 4 batches, of 25 at last; 2 ran out of memory");
}

TEST_CASE("items that are left over make a smaller batch, and all are done once and in order") {
  for (std::size_t items = 0; items < 40; ++items)
    for (std::size_t room = 1; room < 10; ++room) {
      work job{room};
      retry_result const did = with_retry(items, std::ref(job), {.first_batch = 7});
      CHECK(did.items == items);
      std::size_t next = 0;
      for (auto const& [first, count] : job.asked) {
        CHECK(first == next);
        CHECK(count > 0);
        if (count <= room) next += count;
      }
      CHECK(next == items);
    }
}

TEST_CASE("at the minimum the error is the caller's, and what was done stays done") {
  work job{3};
  CHECK_THROWS_AS(with_retry(100, std::ref(job), {.first_batch = 20, .min_batch = 4}), out_of_memory);
  CHECK(job.asked == batches{{0, 20}, {0, 10}, {0, 5}, {0, 4}});
  work tight{4};
  CHECK(with_retry(100, std::ref(tight), {.first_batch = 20, .min_batch = 4}).batch == 4);
}

TEST_CASE("another bad_alloc, as other libraries throw it, makes a smaller batch, too") {
  auto const f = [](std::size_t, std::size_t count) {
    if (count > 3) throw std::bad_alloc();
  };
  retry_result const did = with_retry(10, f);
  CHECK(did.items == 10);
  CHECK(did.batch == 2);
  CHECK(did.refused == 2);
  CHECK_THROWS_AS(with_retry(10, f, {.min_batch = 5}), std::bad_alloc);
}

TEST_CASE("other errors pass through, and wrong options are refused") {
  auto const fails = [](std::size_t, std::size_t) { throw std::logic_error("no"); };
  CHECK_THROWS_AS(with_retry(10, fails), std::logic_error);
  CHECK(contains(message_of<std::invalid_argument>([&] { with_retry(10, fails, {.min_batch = 0}); }),
                 "min_batch is 0; it must be at least 1"));
}

TEST_CASE("memory gives back what is idle before the smaller batch, down to the source, on a stack of any type") {
  fresh_world const world;
  auto const run = [](auto& memory) {
    weir::stream const s;
    memory.deallocate(s, memory.allocate(s, 2_MiB), 2_MiB);
    std::size_t held_at_first = 0, held_then = 0;
    retry_result const did = with_retry(memory, 10, [&](std::size_t, std::size_t count) {
      (count == 10 ? held_at_first : held_then) = sim::live_bytes(0);
      if (count == 10) throw out_of_memory({count, count, s}, "work", {});
    });
    CHECK(did.refused == 1);
    CHECK(held_at_first >= 2_MiB);
    CHECK(held_then == 0);
  };
  auto plain = make(device{} | pool{});
  run(plain);
  any_resource const erased(device{} | pool{});
  run(erased);
}
