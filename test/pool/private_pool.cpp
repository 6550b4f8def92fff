#include <weir/pool/private_pool.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <random>
#include <utility>

#include "support/captures.hpp"
#include "support/destroyable_stream.hpp"
#include "support/streams_at_work.hpp"

using namespace weir;
using namespace weir::test;
using namespace weir::detail;

namespace {

constexpr auto shared = detail::shared;

/// Blocks of 10 units each, of a segment at an address that nobody touches, all live.
struct captured_memory {
  lazy_world const world;
  block_heap store;
  stream_tracker clock{0};
  private_pool captured{store, clock};

  captured_memory() {
    store.reserve();
    add_lists();
    store.add_segment(0x7f00'0000'0000u, 100);
  }
  void add_lists() {
    std::size_t const count = clock.list_count() + clock.lists_to_add();
    store.reserve_lists(count);
    captured.reserve(count);
    clock.add_lists();
  }
  static stream_identity who(std::uint64_t stream, std::uint64_t capture) {
    return {.stream = host_order, .key = stream_key{stream}, .capture = capture_key{capture}};
  }
  block_id take() {
    store.reserve();
    return store.take(store.find(shared, of_10()), of_10());
  }
  static block_heap::request of_10() {
    return block_heap::request::of(10 * unit_bytes, 10 * unit_bytes, unit_bytes, ~units{0});
  }
  block_id take_for(stream_identity const& asking) {
    block_id const id = take();
    captured.keep(id, captured.find_or_open(asking));
    return id;
  }
  bool may_have(stream_identity const& asking) {
    auto const list = captured.find(asking);
    return list != shared && store.find(list, of_10()) != 0;
  }
};

}  // namespace

TEST_CASE_FIXTURE(captured_memory, "each stream in each capture has a list of its own") {
  CHECK(captured.find(who(1, 7)) == shared);
  auto const list = captured.find_or_open(who(1, 7));
  CHECK(list != shared);
  CHECK(captured.find_or_open(who(1, 7)) == list);
  CHECK(captured.find(who(1, 7)) == list);
  CHECK(captured.find_or_open(who(2, 7)) != list);
  CHECK(captured.find_or_open(who(1, 8)) != list);
}

TEST_CASE_FIXTURE(captured_memory, "what a stream allocated and freed in a capture it may have again there") {
  CHECK(captured.give(take_for(who(1, 7)), who(1, 7)));
  CHECK(captured.free_bytes(capture_key::none) == 10 * unit_bytes);
  CHECK(may_have(who(1, 7)));
  CHECK_FALSE(may_have(who(2, 7)));
  CHECK_FALSE(may_have(who(1, 8)));
}

TEST_CASE_FIXTURE(captured_memory, "what is freed elsewhere than it was allocated nobody may have") {
  block_id const ordinary = take();
  captured.find_or_open(who(1, 7));
  captured.find_or_open(who(1, 8));
  SUBCASE("outside of the capture") { CHECK(captured.give(take_for(who(1, 7)), {.stream = host_order})); }
  SUBCASE("in another capture") { CHECK(captured.give(take_for(who(1, 7)), who(1, 8))); }
  SUBCASE("in a capture, but allocated outside") { CHECK(captured.give(ordinary, who(1, 7))); }
  CHECK(captured.free_bytes(capture_key::none) == 10 * unit_bytes);
  CHECK_FALSE(may_have(who(1, 7)));
  CHECK_FALSE(may_have(who(1, 8)));
}

TEST_CASE_FIXTURE(captured_memory, "lists are found whatever the order in which captures come and go") {
  while (clock.list_count() < 32) add_lists();
  std::mt19937 random(1);
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::pair<list_id, std::size_t>> lists;  // and their free bytes
  for (int i = 0; i < 3000; ++i) {
    std::uint64_t const capture = 1 + random() % 9, stream = 1 + random() % 3;
    if (random() % 4 == 0) {
      std::size_t kept = 0;
      for (std::uint64_t s = 1; s <= 3; ++s) {
        auto const known = lists.extract({capture, s});
        kept += known.empty() ? 0 : known.mapped().second;
      }
      CHECK(captured.free_bytes(capture_key{capture}) == kept);
      CHECK(captured.release(capture_key{capture}) == kept);
    } else if (store.free_bytes(shared) >= 10 * unit_bytes && captured.list_count() < 20) {
      block_id const id = take_for(who(stream, capture));
      auto& known = lists.try_emplace({capture, stream}, captured.find(who(stream, capture)), 0).first->second;
      CHECK(captured.give(id, who(stream, capture)));
      known.second += 10 * unit_bytes;
    }
    for (std::uint64_t c = 1; c <= 9; ++c)
      for (std::uint64_t s = 1; s <= 3; ++s) {
        auto const known = lists.find({c, s});
        CHECK(captured.find(who(s, c)) == (known == lists.end() ? shared : known->second.first));
      }
    CHECK(captured.list_count() == lists.size());
  }
}

TEST_CASE_FIXTURE(captured_memory, "a stream that was given the handle of one that ended has another list") {
  destroyable_stream const released, origin;
  void* memory = nullptr;
  cudaEvent_t fork = nullptr;
  REQUIRE(cudaMalloc(&memory, 16) == cudaSuccess);
  REQUIRE(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming) == cudaSuccess);
  auto const asked = [](stream_ref s) { return stream_identity::ask(s, stream_key::none); };
  begin_capture(released);
  begin_capture(origin);
  REQUIRE(cudaEventRecord(fork, origin.get()) == cudaSuccess);
  auto const first = asked(released);  // whose lists are ahead of the other capture's
  bool comes = false;
  SUBCASE("while lists of another capture go") { captured.enter(first); }
  SUBCASE("while lists of another capture come") {
    comes = true;
    add_lists();
  }
  list_id lists[2] = {};
  cudaStream_t handles[2] = {};
  for (int i = 0; i < 2; ++i) {
    destroyable_stream const side;
    handles[i] = side.get();
    REQUIRE(cudaStreamWaitEvent(side.get(), fork, 0) == cudaSuccess);
    captured.enter(asked(side));
    lists[i] = captured.find(asked(side));
    REQUIRE(cudaMemsetAsync(memory, 0, 16, side.get()) == cudaSuccess);
    CHECK(captured.find_or_open(asked(side)) == lists[i]);
    if (i == 0 && comes) captured.enter(first);
    if (i == 0 && !comes) captured.release(first.capture);
    order(side, origin);
  }
  CHECK(handles[0] == handles[1]);  // else this shows nothing
  CHECK(lists[0] != shared);
  CHECK(lists[1] != lists[0]);
  { captured_graph const graph(origin), none(released); }
  cudaEventDestroy(fork);
  cudaFree(memory);
}

TEST_CASE_FIXTURE(captured_memory,
                  "a list that a free opened without a place for where its stream stands is nobody's") {
  destroyable_stream const origin;
  cudaEvent_t fork = nullptr;
  REQUIRE(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming) == cudaSuccess);
  begin_capture(origin);
  REQUIRE(cudaEventRecord(fork, origin.get()) == cudaSuccess);
  list_id lists[2] = {};
  cudaStream_t handles[2] = {};
  for (int i = 0; i < 2; ++i) {
    destroyable_stream const side;
    handles[i] = side.get();
    REQUIRE(cudaStreamWaitEvent(side.get(), fork, 0) == cudaSuccess);
    auto const who = stream_identity::ask(side, stream_key::none);
    if (i == 1) captured.enter(who);  // which makes places for all lists
    lists[i] = captured.find_or_open(who);
    REQUIRE(cudaLaunchHostFunc(
                side.get(), [](void*) {}, nullptr) == cudaSuccess);
    order(side, origin);
  }
  CHECK(handles[0] == handles[1]);  // else this shows nothing
  CHECK(lists[0] != shared);
  CHECK(lists[1] != lists[0]);
  { captured_graph const graph(origin); }
  cudaEventDestroy(fork);
}

TEST_CASE_FIXTURE(captured_memory, "released memory is everyone's, and lists do not come back") {
  CHECK(captured.release(capture_key::none) == 0);
  captured.give(take_for(who(1, 7)), who(1, 7));
  block_id const live = take_for(who(2, 7));
  captured.give(take_for(who(1, 8)), who(1, 8));
  CHECK(captured.release(capture_key{7}) == 10 * unit_bytes);
  CHECK(captured.find(who(1, 7)) == shared);
  CHECK(store.blocks()[live].captured == shared);
  CHECK(captured.free_bytes(capture_key::none) == 10 * unit_bytes);
  CHECK(captured.release(capture_key::none) == 10 * unit_bytes);
  CHECK(captured.free_bytes(capture_key::none) == 0);
  CHECK(store.free_bytes(shared) == 90 * unit_bytes);
  CHECK(store.valid());
}

TEST_CASE_FIXTURE(captured_memory, "where no list is left, what was allocated in a capture can be freed all the same") {
  captured.enter(who(1, 7));
  block_id const one = take_for(who(1, 7)), other = take_for(who(1, 7));
  for (std::uint64_t capture = 8; captured.find_or_open(who(1, capture)) != shared;) ++capture;
  SUBCASE("outside of the capture") { CHECK(captured.give(one, {.stream = host_order})); }
  SUBCASE("by another stream of the capture") { CHECK(captured.give(one, who(2, 7))); }
  CHECK_FALSE(may_have(who(1, 7)));
  CHECK(captured.give(other, who(1, 7)));
  CHECK(captured.release(capture_key{7}) == 20 * unit_bytes);
  CHECK(store.valid());
}

TEST_CASE_FIXTURE(captured_memory,
                  "captures share a list for what they free where none is left, until all are released") {
  CHECK(captured.give(take(), who(1, 7)));
  std::uint64_t last = 8;
  while (captured.find_or_open(who(1, last)) != shared) ++last;
  CHECK(captured.give(take(), who(1, last)));
  CHECK(captured.give(take(), who(1, last + 1)));
  CHECK_FALSE(may_have(who(1, last)));
  CHECK(captured.free_bytes(capture_key::none) == 30 * unit_bytes);
  CHECK(captured.list_count() == last - 7);
  SUBCASE("one after the other") {
    CHECK(captured.release(capture_key{last}) == 0);
    CHECK(captured.free_bytes(capture_key{last}) != 0);  // still kept
    CHECK(captured.release(capture_key{7}) == 0);
    CHECK(captured.release(capture_key{last}) == 0);  // again
    CHECK(captured.release(capture_key{last + 1}) == 30 * unit_bytes);
    CHECK(captured.free_bytes(capture_key{last}) == 0);
    CHECK(captured.list_count() == last - 8);  // of those in between
  }
  SUBCASE("and released again for what one frees afterwards") {
    CHECK(captured.release(capture_key{last}) == 0);
    CHECK(captured.give(take(), who(1, last)));
    CHECK(captured.release(capture_key{7}) == 0);
    CHECK(captured.release(capture_key{last + 1}) == 0);
    CHECK(captured.release(capture_key{last}) == 40 * unit_bytes);
  }
  SUBCASE("all at once") {
    CHECK(captured.release(capture_key::none) == 30 * unit_bytes);
    CHECK(captured.list_count() == 0);
  }
  CHECK(captured.free_bytes(capture_key::none) == 0);
  CHECK(store.free_bytes(shared) == 100 * unit_bytes);
  CHECK(store.valid());
}
