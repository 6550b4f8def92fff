// needs: tsan
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/on_failure.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/layers.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/captures.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

stream_ref const on;
using reclaiming = on_failure_resource<source_resource>;
static_assert(resource<reclaiming>);
static_assert(device_accessible<reclaiming> && host_accessible<reclaiming> && host_ordered<reclaiming>);

/// Blocks that can go: a cache on a stack.
template <class Memory>
class cache {
 public:
  explicit cache(Memory& memory) : memory_(memory) {}
  ~cache() { evict(~std::size_t{0}); }
  cache(cache const&) = delete;
  cache& operator=(cache const&) = delete;

  void fill(std::size_t count, std::size_t bytes) {
    for (std::size_t i = 0; i < count; ++i) blocks_.push_back({memory_.allocate(on, bytes), bytes});
  }
  std::size_t evict(std::size_t bytes) {
    std::lock_guard const lock(mutex_);
    std::size_t gone = 0;
    for (; gone < bytes && !blocks_.empty(); blocks_.pop_back()) {
      memory_.deallocate(on, blocks_.back().p, blocks_.back().bytes);
      gone += blocks_.back().bytes;
    }
    return gone;
  }
  std::size_t size() const { return blocks_.size(); }

 private:
  struct block {
    void* p;
    std::size_t bytes;
  };
  Memory& memory_;
  std::mutex mutex_;
  std::vector<block> blocks_;
};

auto nothing() {
  return [](memory_request const&) { return std::size_t{0}; };
}

/// Reclaimers that say their letter and give what they are told.
struct recorded {
  std::string order;
  std::function<std::size_t(char)> gives = [](char) { return std::size_t{0}; };
  auto named(char c) {
    return [this, c](memory_request const&) {
      order += c;
      return gives(c);
    };
  }
};

}  // namespace

TEST_CASE("a pool that can grow by less does so before a reclaimer is called") {
  sim::reset();
  sim::set_capacity(0, 12_MiB);
  std::vector<std::size_t> missing;
  auto const count = [&](memory_request const& request) {
    missing.push_back(request.bytes);
    return std::size_t{0};
  };
  auto memory = make(device{} | on_failure{{{"cache", count}}} | pool{.growth_bytes = 8_MiB});
  void* const first = memory.allocate(on, 8_MiB);
  void* const second = memory.allocate(on, 1_MiB);  // 8 MiB are not to be had, 4 are
  CHECK(missing.empty());
  CHECK_THROWS_AS(memory.allocate(on, 5_MiB), out_of_memory);
  CHECK(missing == std::vector{std::size_t{5_MiB}});
  auto const numbers = find<on_failure_resource>(memory).numbers();
  CHECK(numbers.calls == 1);
  CHECK(numbers.refused == 1);
  memory.deallocate(on, first, 8_MiB);
  memory.deallocate(on, second, 1_MiB);
}

TEST_CASE("wrong options are refused with their values") {
  CHECK(contains(on_failure{}.problem(), "no reclaimers"));
  CHECK(contains(on_failure{{{"a", nothing()}, {"b", {}}}}.problem(), "reclaimers[1] has no function"));
  CHECK(contains(on_failure{{{"a", nothing()}}, 0}.problem(), "max_rounds is 0; it must be at least 1"));
  CHECK(on_failure{{{"a", nothing()}}}.valid());
  source_state state;
  CHECK_THROWS_AS(static_cast<void>(make(source{&state} | on_failure{})), std::invalid_argument);
}

TEST_CASE("what the upstream serves passes through, and calls nobody") {
  source_state state;
  recorded calls;
  auto memory = make(source{&state} | on_failure{{{"a", calls.named('a')}}});
  CHECK(memory.allocate(on, 0) == nullptr);
  memory.deallocate(on, nullptr, 0);
  CHECK(state.calls == 0);
  void* const p = memory.allocate(on, 1000, 512);
  CHECK(state.live_bytes == 1000);
  memory.deallocate(on, p, 1000, 512);
  CHECK(state.live_count == 0);
  CHECK(calls.order.empty());
  CHECK(memory.numbers().calls == 0);
}

TEST_CASE("a cache gives back what is missing, and the request is served") {
  source_state state;
  auto pooled = make(source{&state} | limit{10_KiB});
  cache images(pooled);
  std::size_t asked_for = 0;
  auto memory = make(share(pooled) | on_failure{{{"images", [&](memory_request const& missing) {
                                                    asked_for = missing.rounded;
                                                    return images.evict(missing.bytes);
                                                  }}}});
  images.fill(8, 1_KiB);
  void* const p = memory.allocate(on, 4000);
  CHECK(asked_for == 4000);
  CHECK(images.size() == 4);
  CHECK(memory.numbers().calls == 1);
  CHECK(memory.numbers().reclaimed_bytes == 4_KiB);
  CHECK(memory.numbers().rescued == 1);
  CHECK(memory.numbers().refused == 0);
  memory.deallocate(on, p, 4000);
}

TEST_CASE("reclaimers are asked in their order, the upstream after each that gave something") {
  source_state state;
  recorded calls;
  calls.gives = [&](char c) {
    if (c == 'c') state.fail = failing::no;
    return std::size_t{c == 'a' ? 0u : 1u};
  };
  state.on_allocate = [&] { calls.order += '?'; };
  state.fail = failing::out_of_memory;
  auto memory = make(
      source{&state} |
      on_failure{{{"a", calls.named('a')}, {"b", calls.named('b')}, {"c", calls.named('c')}, {"d", calls.named('d')}}});
  void* const p = memory.allocate(on, 256);
  CHECK(calls.order == "?ab?c?");
  memory.deallocate(on, p, 256);
}

TEST_CASE("rounds end when none gave anything, or there were as many as there may be") {
  source_state state;
  state.fail = failing::out_of_memory;
  recorded calls;
  int left = 3;
  calls.gives = [&](char c) { return std::size_t{c == 'b' && left-- > 0 ? 1u : 0u}; };
  auto patient = make(source{&state} | on_failure{{{"a", calls.named('a')}, {"b", calls.named('b')}}, 100});
  CHECK_THROWS_AS(patient.allocate(on, 256), out_of_memory);
  CHECK(calls.order == "abababab");  // three rounds in which b gave, and one in which none did

  calls = {};
  calls.gives = [](char) { return std::size_t{1}; };
  auto hasty = make(source{&state} | on_failure{{{"a", calls.named('a')}, {"b", calls.named('b')}}, 2});
  CHECK_THROWS_AS(hasty.allocate(on, 256), out_of_memory);
  CHECK(calls.order == "abab");
  CHECK(hasty.numbers().refused == 1);
  CHECK(hasty.numbers().rescued == 0);
}

TEST_CASE("the refusal says what each reclaimer gave") {
  source_state state;
  state.fail = failing::out_of_memory;
  auto memory =
      make(source{&state} |
           on_failure{{{"images", [](memory_request const&) { return 3_KiB; }},
                       {"tables\n", nothing()},
                       {"", [](memory_request const&) -> std::size_t { throw std::runtime_error("no\nway"); }}},
                      2,
                      "search"});
  std::string const what = message_of<out_of_memory>([&] { memory.allocate(on, 256); });
  CHECK(contains(what, "refused by source; chain: search: on_failure > source"));
  CHECK(contains(what, "reclaimers gave 6.00 KiB in 6 calls; 0 requests served after that, 1 refused"));
  CHECK(contains(what, "reclaimer  images gave 6.00 KiB in 2 calls\n"));
  CHECK(contains(what, "reclaimer  tables\\n gave nothing in 2 calls\n"));
  CHECK(contains(what, "reclaimer  number 3 gave nothing in 2 calls; it threw: no\\nway\n"));
  // The state of the layer alone has no line of a request.
  CHECK_FALSE(contains(report_of(memory).lines(), "images"));
}

TEST_CASE("what is not a std::exception passes through, and so do failures that are not out of memory") {
  source_state state;
  state.fail = failing::out_of_memory;
  auto memory = make(source{&state} | on_failure{{{"a", [](memory_request const&) -> std::size_t { throw 42; }}}});
  CHECK_THROWS_AS(memory.allocate(on, 256), int);
  state.fail = failing::other;
  CHECK_THROWS_AS(memory.allocate(on, 256), std::logic_error);
  state.fail = failing::null;  // is out of memory
  CHECK_THROWS_AS(memory.allocate(on, 256), int);
  state.fail = failing::no;
  memory.deallocate(on, memory.allocate(on, 256), 256);
}

TEST_CASE("a plain bad_alloc of the upstream's is out of memory, too") {
  source_state state;
  state.fail = failing::bad_alloc;
  auto const evict = [&](memory_request const&) {
    state.fail = failing::no;
    return std::size_t{256};
  };
  auto memory = make(source{&state} | on_failure{{{"cache", evict}}});
  memory.deallocate(on, memory.allocate(on, 256), 256);
  CHECK(memory.numbers().rescued == 1);

  state.fail = failing::bad_alloc;
  auto in_vain = make(source{&state} | on_failure{{{"empty", nothing()}}});
  CHECK_THROWS_AS(in_vain.allocate(on, 256), std::bad_alloc);
  CHECK(in_vain.numbers().refused == 1);
}

TEST_CASE("a request from inside a reclaimer calls none, on any layer between") {
  source_state state;
  std::size_t calls = 0;
  std::string inner;
  std::function<void()> ask_again;
  auto memory = make(source{&state} | limit{4_KiB} | on_failure{{{"asks", [&](memory_request const&) {
                                                                    ++calls;
                                                                    ask_again();
                                                                    return std::size_t{0};
                                                                  }}}});
  auto above = make(share(memory) | on_failure{{{"other", nothing()}}});
  ask_again = [&] {
    memory.deallocate(on, memory.allocate(on, 1000), 1000);  // may allocate and free
    inner = message_of<out_of_memory>([&] { above.allocate(on, 5000); });
  };
  CHECK_THROWS_AS(memory.allocate(on, 8_KiB), out_of_memory);
  CHECK(calls == 1);
  CHECK(contains(inner, "reclaimers not called: one of them made this request"));
  CHECK(above.numbers().calls == 1);  // another layer's are called
  CHECK_THROWS_AS(memory.allocate(on, 8_KiB), out_of_memory);
  CHECK(calls == 2);  // and the thread's next request calls them again
}

TEST_CASE("a request too large to count flushes no cache") {
  source_state state;
  recorded calls;
  auto memory = make(source{&state} | pool{} | on_failure{{{"a", calls.named('a')}}});
  CHECK_THROWS_AS(memory.allocate(on, SIZE_MAX - 10), out_of_memory);
  CHECK(calls.order.empty());
}

TEST_CASE("a reclaimer may trim the stack below and another one") {
  sim::reset();
  sim::set_capacity(0, 8_MiB);
  {
    auto other = make(async{.device = 0} | pool{});
    auto memory = make(device{.device = 0} | on_failure{{{"the other pool", [&](memory_request const&) {
                                                            synchronize(other);
                                                            return trim(other);
                                                          }}}});
    weir::stream const s;
    other.deallocate(s, other.allocate(s, 6_MiB), 6_MiB);
    void* const p = memory.allocate(s, 6_MiB);
    CHECK(memory.numbers().rescued == 1);
    memory.deallocate(s, p, 6_MiB);
  }
  CHECK(sim::live_allocations() == 0);
  sim::reset();
}

TEST_CASE("in a capture no reclaimer is called, and the capture is not broken") {
  watched_world const world;
  recorded calls;
  auto memory = make(device{} | pool{} | limit{4_MiB} | on_failure{{{"a", calls.named('a')}}});
  weir::stream const s;
  capture_scope const declared;
  begin_capture(s);
  std::string const what = message_of<out_of_memory>([&] { memory.allocate(s, 8_MiB); });
  CHECK(contains(what, "reclaimers not called: the stream is being captured"));
  captured_graph const graph(s);
  CHECK(calls.order.empty());
}

TEST_CASE("nor for what a pool above takes for one") {
  watched_world const world;
  recorded calls;
  auto segments = make(device{} | limit{4_MiB} | on_failure{{{"a", calls.named('a')}}} | pool{});
  auto chunks = make(virtual_memory{} | limit{4_MiB} | on_failure{{{"b", calls.named('b')}}} | pool{});
  weir::stream const s;
  capture_scope const declared;
  begin_capture(s);
  CHECK_THROWS_AS(static_cast<void>(segments.allocate(s, 8_MiB)), out_of_memory);
  CHECK_THROWS_AS(static_cast<void>(chunks.allocate(s, 8_MiB)), out_of_memory);
  end_capture(s);
  CHECK(calls.order.empty());
  CHECK_THROWS_AS(static_cast<void>(segments.allocate(s, 8_MiB)), out_of_memory);
  CHECK_FALSE(calls.order.empty());
}

TEST_CASE("what a soft limit's function asks another stack for is none of the capture that it was called in") {
  watched_world const world;
  recorded calls;
  auto other = make(device{} | limit{2_MiB} | on_failure{{{"a", calls.named('a')}}});
  auto memory = make(device{} |
                     limit{.max_bytes = 64_MiB,
                           .soft_bytes = 1_MiB,
                           .on_soft =
                               [&](std::size_t) {
                                 CHECK_THROWS_AS(static_cast<void>(other.allocate(host_order, 4_MiB)), out_of_memory);
                               }} |
                     pool{});
  weir::stream const s;
  capture_scope const declared;
  begin_capture(s);
  void* const p = memory.allocate(s, 4_MiB);
  memory.deallocate(s, p, 4_MiB);
  end_capture(s);
  CHECK_FALSE(calls.order.empty());
}

TEST_CASE("what a reclaimer uses again in a capture is not taken for the request's") {
  watched_world const world;
  auto below = make(device{} | pool{.max_bytes = 2_MiB});
  auto other = make(share(below) | limit{64_MiB});
  weir::stream const s, captured;
  void *cached = nullptr, *again = nullptr;
  auto memory = make(share(below) |
                     on_failure{{{"cache",
                                  [&](memory_request const&) {
                                    below.deallocate(host_order, cached, 1_MiB);
                                    again = other.allocate(captured, 256_KiB);
                                    return 1_MiB;
                                  }}}} |
                     limit{64_MiB});
  capture_scope const declared;
  begin_capture(captured);
  void* const a = memory.allocate(captured, 256_KiB);
  void* const between = memory.allocate(captured, 256_KiB);
  void* const b = memory.allocate(captured, 512_KiB);
  memory.deallocate(captured, a, 256_KiB);
  memory.deallocate(captured, b, 512_KiB);
  cached = below.allocate(host_order, 1_MiB);
  CHECK(memory.captured() == 768_KiB);
  void* const p = memory.allocate(s, 1_MiB);
  REQUIRE(again != nullptr);
  CHECK(memory.captured() == 768_KiB);
  CHECK(memory.used() == 2_MiB);
  other.deallocate(captured, again, 256_KiB);
  memory.deallocate(captured, between, 256_KiB);
  memory.deallocate(s, p, 1_MiB);
  captured_graph const graph(captured);
  below.release_captured();
  CHECK(memory.used() == 0);
}

TEST_CASE("an erased stack keeps its reclaimers") {
  source_state state;
  state.fail = failing::out_of_memory;
  any_resource const memory(source{&state} | on_failure{{{"a", [&](memory_request const&) {
                                                            state.fail = failing::no;
                                                            return std::size_t{1};
                                                          }}}});
  memory.deallocate(on, memory.allocate(on, 256), 256);
  CHECK(state.live_count == 0);
}

TEST_CASE("threads that fail at the same time call the reclaimers at the same time") {
  source_state state;
  auto pooled = make(source{&state} | limit{64_KiB});
  cache images(pooled);
  auto memory =
      make(share(pooled) |
           on_failure{{{"images", [&](memory_request const& missing) { return images.evict(missing.bytes); }}}, 100});
  images.fill(64, 1_KiB);
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      std::vector<void*> mine;
      for (int k = 0; k < 16; ++k) try {
          mine.push_back(memory.allocate(on, 1_KiB));
        } catch (out_of_memory const&) {
          ++refused;
        }
      for (void* const p : mine) memory.deallocate(on, p, 1_KiB);
    });
  for (auto& thread : threads) thread.join();
  // Who finds the cache empty finds room, since all of these requests have room together.
  CHECK(refused == 0);
  CHECK(memory.numbers().refused == 0);
  CHECK(pooled.used() == images.size() * 1_KiB);
}

TEST_CASE("who gets nothing because another thread was given all asks the upstream again") {
  source_state state;
  state.fail = failing::out_of_memory;
  bool is_first = true;
  std::function<void()> request;
  auto memory = make(source{&state} | on_failure{{{"a", [&](memory_request const&) {
                                                     if (!is_first) {
                                                       state.fail = failing::no;
                                                       return std::size_t{1};
                                                     }
                                                     is_first = false;
                                                     std::thread(request).join();
                                                     return std::size_t{0};
                                                   }}}});
  request = [&] { memory.deallocate(on, memory.allocate(on, 256), 256); };
  request();
  CHECK(memory.numbers().rescued == 2);
  CHECK(memory.numbers().calls == 2);
}
