// needs: tsan
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/on_failure.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/wait_for_memory.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/callback.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/captures.hpp"
#include "support/test_growable.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

stream_ref const on;
constexpr unsigned long_enough = 60'000;  // a minute: nobody waits so long but for a fault
using waiting = wait_for_memory_resource<source_resource>;
static_assert(resource<waiting>);
static_assert(device_accessible<waiting> && host_accessible<waiting> && host_ordered<waiting>);

/// Waits for something that another thread is about to do.
void until(auto condition) {
  while (!condition()) std::this_thread::yield();
}

}  // namespace

TEST_CASE("wrong options are refused with their values") {
  CHECK(contains(wait_for_memory{0}.problem(), "for_milliseconds is 0; it must be at least 1"));
  CHECK(wait_for_memory{}.valid());
}

TEST_CASE("what the upstream serves passes through") {
  source_state state;
  auto memory = make(source{&state} | wait_for_memory{});
  CHECK(memory.allocate(on, 0) == nullptr);
  memory.deallocate(on, nullptr, 0);
  CHECK(state.calls == 0);
  void* const p = memory.allocate(on, 1000, 512);
  CHECK(state.live_bytes == 1000);
  memory.deallocate(on, p, 1000, 512);
  CHECK(state.live_count == 0);
}

TEST_CASE("a request waits for another thread's free, and is served then") {
  source_state state;
  auto memory = make(source{&state} | limit{1_KiB} | wait_for_memory{long_enough});
  void* const p = memory.allocate(on, 1_KiB);
  std::thread other([&] { memory.deallocate(on, memory.allocate(on, 512), 512); });
  until([&] { return memory.numbers().waiting == 1; });
  memory.deallocate(on, p, 1_KiB);
  other.join();
  CHECK(memory.numbers().waiting == 0);
  CHECK(memory.numbers().rescued == 1);
  CHECK(memory.numbers().timed_out == 0);
}

TEST_CASE("a free after several streams wakes who waits, too") {
  source_state state;
  auto memory = make(source{&state} | limit{1_KiB} | wait_for_memory{long_enough});
  void* const p = memory.allocate(on, 1_KiB);
  std::thread other([&] { memory.deallocate(on, memory.allocate(on, 512), 512); });
  until([&] { return memory.numbers().waiting == 1; });
  deallocate_after(memory, on, p, 1_KiB, {host_order});
  other.join();
  CHECK(memory.numbers().rescued == 1);
}

TEST_CASE("when the time is over the request is refused, and says so") {
  source_state state;
  auto memory = make(source{&state} | limit{1_KiB} | wait_for_memory{2, "search"});
  auto const begin = std::chrono::steady_clock::now();
  std::string const what = message_of<out_of_memory>([&] { memory.allocate(on, 2_KiB); });
  CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(2));
  CHECK(contains(what, "refused by limit; chain: search: wait_for_memory > limit(1.00 KiB) > source"));
  CHECK(
      contains(what, "up to 2 ms; 1 requests wait, 0 were served after a wait, 1 refused; this one waited to the end"));
  CHECK(memory.numbers().timed_out == 1);
  CHECK(memory.numbers().waiting == 0);
  CHECK(contains(report_of(memory).lines(), "up to 2 ms; 0 requests wait, 0 were served after a wait, 1 refused\n"));
}

TEST_CASE("a small request is not held up by a large one that still has time") {
  source_state state;
  auto memory = make(source{&state} | limit{4_KiB} | wait_for_memory{long_enough});
  std::vector<void*> held;
  for (int i = 0; i < 4; ++i) held.push_back(memory.allocate(on, 1_KiB));
  std::thread large([&] { memory.deallocate(on, memory.allocate(on, 4_KiB), 4_KiB); });
  until([&] { return memory.numbers().waiting == 1; });
  std::atomic<bool> done{false};
  std::thread small([&] {
    void* const p = memory.allocate(on, 1_KiB);
    until([&] { return done.load(); });
    memory.deallocate(on, p, 1_KiB);
  });
  until([&] { return memory.numbers().waiting == 2; });
  memory.deallocate(on, held.back(), 1_KiB);
  held.pop_back();
  until([&] { return memory.numbers().rescued == 1; });
  CHECK(memory.numbers().waiting == 1);
  done = true;
  small.join();
  for (void* const p : held) memory.deallocate(on, p, 1_KiB);
  large.join();
  CHECK(memory.numbers().rescued == 2);
}

TEST_CASE("what can never be served, and other failures, do not wait") {
  source_state state;
  auto memory = make(source{&state} | pool{} | limit{1_KiB} | wait_for_memory{long_enough});
  std::string const what = message_of<out_of_memory>([&] { memory.allocate(on, SIZE_MAX - 10); });
  CHECK(contains(what, "no free could serve this one"));
  state.fail = failing::other;
  CHECK_THROWS_AS(memory.allocate(on, 256), std::logic_error);
  CHECK(memory.numbers().timed_out == 0);
}

TEST_CASE("a plain bad_alloc of the upstream's is out of memory, too, and waits") {
  source_state state;
  auto memory = make(source{&state} | wait_for_memory{long_enough});
  void* const p = memory.allocate(on, 256);
  state.fail = failing::bad_alloc;
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (memory.numbers().waiting == 0 && !done) std::this_thread::yield();
    state.fail = failing::no;
    memory.deallocate(on, p, 256);
  });
  void* q = nullptr;
  CHECK_NOTHROW(q = memory.allocate(on, 256));
  done = true;
  other.join();
  memory.deallocate(on, q, q == nullptr ? 0 : 256);
  CHECK(memory.numbers().rescued == 1);

  state.fail = failing::bad_alloc;
  auto hasty = make(source{&state} | wait_for_memory{1});
  CHECK_THROWS_AS(hasty.allocate(on, 256), std::bad_alloc);
  CHECK(hasty.numbers().timed_out == 1);
}

TEST_CASE("in a capture a request is refused at once, and the capture is not broken") {
  watched_world const world;
  auto memory = make(device{} | pool{} | limit{4_MiB} | wait_for_memory{long_enough});
  weir::stream const s;
  capture_scope const declared;
  begin_capture(s);
  std::string const what = message_of<out_of_memory>([&] { memory.allocate(s, 8_MiB); });
  CHECK(contains(what, "this one did not wait: its stream is being captured"));
  captured_graph const graph(s);
}

TEST_CASE("nor does what a pool above takes for a capture wait") {
  watched_world const world;
  auto segments = make(device{} | limit{4_MiB} | wait_for_memory{20} | pool{});
  auto chunks = make(virtual_memory{} | limit{4_MiB} | wait_for_memory{20} | pool{});
  weir::stream const s;
  capture_scope const declared;
  begin_capture(s);
  CHECK_THROWS_AS(static_cast<void>(segments.allocate(s, 8_MiB)), out_of_memory);
  CHECK_THROWS_AS(static_cast<void>(chunks.allocate(s, 8_MiB)), out_of_memory);
  end_capture(s);
  CHECK(find<wait_for_memory_resource>(segments).numbers().timed_out == 0);
  CHECK(find<wait_for_memory_resource>(chunks).numbers().timed_out == 0);
}

TEST_CASE("a request from inside one that waits does not wait for that") {
  source_state state;
  wait_numbers inside;
  std::string text;
  std::function<void()> ask_inside;
  auto memory = make(source{&state} |
                     on_failure{{{"cache",
                                  [&](memory_request const&) {
                                    ask_inside();
                                    return std::size_t{0};
                                  }}}} |
                     wait_for_memory{50});
  ask_inside = [&] {
    if (memory.numbers().waiting == 0) return;  // the first time, when nobody waits yet
    text = message_of<out_of_memory>([&] { memory.allocate(on, 100); });
    state.fail = failing::no;  // there is enough for a small one
    memory.deallocate(on, memory.allocate(on, 100), 100);
    state.fail = failing::out_of_memory;
    inside = memory.numbers();
  };
  state.fail = failing::out_of_memory;
  CHECK(contains(message_of<out_of_memory>([&] { memory.allocate(on, 1000); }), "this one waited to the end"));
  CHECK(contains(text, "this one did not wait: it was made inside of one that waits"));
  CHECK(inside.waiting == 1);
  CHECK(inside.rescued == 0);
  CHECK(inside.timed_out == 0);
  CHECK(memory.numbers().timed_out == 1);
}

TEST_CASE("so does one that maps memory") {
  test_growable below(0);
  wait_numbers inside;
  std::function<void()> map_inside;
  auto memory = make(share(below) |
                     on_failure{{{"cache",
                                  [&](memory_request const&) {
                                    map_inside();
                                    return std::size_t{0};
                                  }}}} |
                     wait_for_memory{50});
  constexpr std::size_t chunk = test_growable::chunk;
  address_range const range = memory.reserve_range(2 * chunk);
  void* const second = static_cast<std::byte*>(range.begin) + chunk;
  map_inside = [&] {
    if (memory.numbers().waiting == 0) return;
    CHECK_FALSE(memory.map(second, chunk));
    below.capacity = chunk;
    CHECK(memory.map(second, chunk));
    CHECK(memory.unmap(second, chunk));
    below.capacity = 0;
    inside = memory.numbers();
  };
  CHECK_FALSE(memory.map(range.begin, chunk));
  CHECK(inside.waiting == 1);
  CHECK(inside.rescued == 0);
  CHECK(inside.timed_out == 0);
  memory.release_range(range);
}

TEST_CASE("a pool above does not wait for more than it needs, and once for that") {
  auto memory = make(device{} | limit{.max_bytes = 10_MiB} | wait_for_memory{20} | pool{.growth_bytes = 8_MiB});
  auto const& waits = find<wait_for_memory_resource>(memory);
  weir::stream const s;
  void* const first = memory.allocate(s, 8_MiB);
  void* const second = memory.allocate(s, 1_MiB);  // of 8, 4 and 2 MiB the last fits
  CHECK(memory.numbers().reserved.current == 10_MiB);
  CHECK(waits.numbers().timed_out == 0);
  CHECK_THROWS_AS(static_cast<void>(memory.allocate(s, 5_MiB)), out_of_memory);
  CHECK(waits.numbers().timed_out == 1);
  memory.deallocate(s, first, 8_MiB);
  memory.deallocate(s, second, 1_MiB);
}

TEST_CASE("who can do with less neither passes who has waited for long nor waits behind") {
  source_state state;
  auto memory = make(source{&state} | limit{8_KiB} | wait_for_memory{2000});
  void* const held = memory.allocate(on, 7_KiB);
  std::atomic<bool> done{false};
  std::thread large([&] {
    message_of<out_of_memory>([&] { memory.deallocate(on, memory.allocate(on, 8_KiB), 8_KiB); });
    done = true;
  });
  until([&] { return memory.numbers().waiting == 1; });
  std::string refused;
  until([&] {  // in the first half of that thread's time this is served
    detail::can_do_with_less const hint(true);
    refused = message_of<out_of_memory>([&] { memory.deallocate(on, memory.allocate(on, 1_KiB), 1_KiB); });
    return !refused.empty() || done;
  });
  CHECK(contains(refused, "refused by wait_for_memory; chain: wait_for_memory > limit(8.00 KiB) > source"));
  CHECK(contains(refused, "this one did not wait: who asked can do with less"));
  memory.deallocate(on, held, 7_KiB);
  large.join();
  CHECK(memory.numbers().rescued == 1);
}

TEST_CASE("a failure of another kind ends a wait") {
  source_state state;
  auto memory = make(source{&state} | limit{1_KiB} | wait_for_memory{long_enough});
  void* const p = memory.allocate(on, 1_KiB);
  std::atomic<bool> threw{false};
  std::thread other([&] {
    try {
      memory.deallocate(on, memory.allocate(on, 512), 512);
    } catch (std::logic_error const&) {
      threw = true;
    }
  });
  until([&] { return memory.numbers().waiting == 1; });
  state.fail = failing::other;
  memory.deallocate(on, p, 1_KiB);
  other.join();
  CHECK(threw);
  CHECK(memory.numbers().waiting == 0);
}

TEST_CASE("what a request was charged with that failed below the budget wakes who waits, too") {
  std::atomic<bool> may_fail = false;
  std::atomic<int> asked = 0;
  auto const take = [&](stream_ref, std::size_t bytes, std::size_t alignment) -> void* {
    if (bytes != 3_KiB) return std::aligned_alloc(alignment, bytes);
    ++asked;
    until([&] { return may_fail.load(); });
    throw std::runtime_error("broken");
  };
  auto const give = [](stream_ref, void* p, std::size_t, std::size_t) { std::free(p); };
  auto memory = make(host_callback{.allocate = take, .deallocate = give} | limit{4_KiB} | wait_for_memory{long_enough});
  std::thread failing([&] { CHECK_THROWS_AS(memory.allocate(on, 3_KiB), std::runtime_error); });
  until([&] { return asked == 1; });
  auto const begin = std::chrono::steady_clock::now();
  std::thread other([&] { memory.deallocate(on, memory.allocate(on, 2_KiB), 2_KiB); });
  until([&] { return memory.upstream().refused() >= 2; });  // when it came, and when it began to wait
  may_fail = true;
  failing.join();
  other.join();
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(long_enough));
  CHECK(memory.numbers().rescued == 1);
}

TEST_CASE("no free is missed, whenever it comes") {
  source_state state;
  auto memory = make(source{&state} | limit{256} | wait_for_memory{long_enough});
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) memory.deallocate(on, memory.allocate(on, 256), 256);
    });
  for (auto& thread : threads) thread.join();
  CHECK(memory.numbers().timed_out == 0);
  CHECK(memory.numbers().waiting == 0);
  CHECK(state.peak_bytes == 256);
}

TEST_CASE("threads with requests of all sizes are all served, on an erased stack too") {
  source_state state;
  {
    any_resource const memory(source{&state} | limit{8_KiB} | wait_for_memory{long_enough});
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        auto random = t + 1;
        for (int i = 0; i < 300; ++i) {
          random = random * 1664525 + 1013904223;
          std::size_t const bytes = 1_KiB * (1 + (random >> 16) % 8);
          memory.deallocate(on, memory.allocate(on, bytes), bytes);
        }
      });
    for (auto& thread : threads) thread.join();
  }
  CHECK(state.live_count == 0);
}
