#include <weir/cuda/stream.hpp>
#include <weir/pool/stream_ordered_heap.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <array>
#include <thread>
#include <vector>

#include "support/small_blocks_of_a_segment.hpp"

using namespace weir;
using namespace weir::test;
using detail::block_id;
using detail::stream_ordered_heap;
using detail::unit_bytes;

TEST_CASE_FIXTURE(reuse_of_a_segment,
                  "a stream has its own blocks and the shared ones, and no others, without asking") {
  block_id const first = ready(a, 60);
  block_id const second = ready(b, 40);
  REQUIRE(first != 0);
  REQUIRE(second != 0);
  free_behind_work(a, first);
  sim::reset_counters();
  CHECK(ready(b, 10) == 0);
  block_id const again = ready(a, 10);
  CHECK(reuse[first].right == again);  // cut off its end
  CHECK(sim::calls() == sim::calls("cudaStreamGetId") + sim::calls("cudaStreamGetCaptureInfo"));
  CHECK(reuse.valid());
}

TEST_CASE_FIXTURE(reuse_of_a_segment, "the tighter of an own and a shared block is taken") {
  block_id const own = ready(a, 20);
  block_id const between = ready(a, 1);
  free_behind_work(a, own);
  block_id const part = ready(a, 15);
  CHECK(reuse[own].right == part);  // 20 of its own, 79 shared
  REQUIRE(between != 0);
  reuse.give(part, who(a));
  block_id const most = ready(b, 61);
  REQUIRE(most != 0);
  CHECK(shared() == 18);
  CHECK(reuse[ready(a, 16)].address() < reuse[most].address());  // 18 are tighter than 20
}

TEST_CASE_FIXTURE(reuse_of_a_segment, "asking finds what is done, and nothing else") {
  block_id const first = ready(a, 50), second = ready(b, 50);
  free_behind_work(a, first);
  free_behind_work(b, second);
  CHECK(done(c, 50) == 0);
  CHECK(shared() == 0);
  b.finish();
  CHECK(done(c, 50) == second);
  CHECK(done(c, 50) == 0);
  a.finish();
  CHECK(done(c, 50) == first);
  CHECK(sim::calls("cudaStreamWaitEvent") == 0);
}

TEST_CASE_FIXTURE(reuse_of_a_segment, "asking joins an own block with shared and known neighbours") {
  block_id const first = ready(a, 30), second = ready(b, 30), third = ready(c, 40);
  free_behind_work(a, first);
  free_behind_work(b, second);
  CHECK(done(b, 60) == 0);  // b knows nothing of a
  block_id const part = waiting(b, 25);
  CHECK(part != 0);  // now it does
  CHECK(sim::calls("cudaStreamWaitEvent") == 1);
  free_behind_work(b, part);
  CHECK(done(b, 60) != 0);
  CHECK(sim::calls("cudaStreamWaitEvent") == 1);
  CHECK(reuse.valid());
  REQUIRE(third != 0);
}

TEST_CASE_FIXTURE(reuse_of_a_segment, "events that are due are recorded by who asks on a stream, not in host order") {
  weir::stream const giver, taker;
  reuse.add_segment(0x7f10'0000'0000u, 1 << 20);
  for (int i = 0; i < 100; ++i) free_behind_work(giver, ready(giver, 1));  // as many frees as an event is worth
  CHECK(done(taker, 100) != 0);                                            // asks, and sees work that is not done
  reuse.plan_events(reuse.free_bytes());
  SUBCASE("when most of what is free was freed") { free_behind_work(giver, ready(giver, 600'000)); }
  SUBCASE("when little was freed that is so aligned that it stood in the way of as much") {
    auto aligned = units(1);
    aligned.alignment = std::size_t{1} << (aligned.alignment_log = 27);  // 128 MiB
    free_behind_work(giver, reuse.take_ready(who(giver), aligned));
  }
  sim::reset_counters();
  CHECK(ready(host_order, 10) != 0);
  CHECK(sim::calls() == 0);
  CHECK(ready(taker, 10) != 0);
  CHECK(sim::calls("cudaEventRecord") == 1);
  sim::reset_counters();
  CHECK(ready(taker, 10) != 0);
  CHECK(sim::calls("cudaEventRecord") == 0);
}

TEST_CASE_FIXTURE(reuse_of_a_segment, "events are recorded early for what several streams freed together, too") {
  std::size_t count = 2;
  SUBCASE("where they have a list more") {}
  SUBCASE("where they have more lists than a search looks at") { count = 12; }
  std::vector<weir::stream> const givers(count);
  weir::stream const taker;
  reuse.add_segment(0x7f10'0000'0000u, 1 << 20);
  std::vector<std::array<block_id, 2>> taken;
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t j = 0; j < i; ++j) taken.push_back({ready(givers[i], 1), ready(givers[j], 1)});
  auto const free_all = [&](std::size_t which) {
    for (std::size_t i = 0, at = 0; i < count; ++i)
      for (std::size_t j = 0; j < i; ++j, ++at) {
        reuse.try_to_reserve_lists(2);
        free_behind_work(givers[i], givers[j], taken[at][which]);
      }
  };
  free_all(0);
  CHECK(done(taker, 100) != 0);  // asks, and sees work that is not done
  reuse.plan_events(reuse.free_bytes());
  free_all(1);                                                    // behind which there is no event yet
  free_behind_work(givers[1], givers[0], ready(taker, 600'000));  // most of what is free: now they are due
  sim::reset_counters();
  CHECK(ready(taker, 10) != 0);
  CHECK(sim::calls("cudaEventRecord") == count);
  CHECK(reuse.valid());
}

TEST_CASE_FIXTURE(reuse_of_a_segment,
                  "of few streams a search looks at all that they freed together, asking each once") {
  std::vector<weir::stream> const givers(12);
  weir::stream const taker;
  reuse.add_segment(0x7f10'0000'0000u, 1000);
  reuse.try_to_reserve_lists(100);
  std::vector<block_id> taken;
  for (std::size_t i = 0; i < 66; ++i) taken.push_back(ready(taker, 10));
  REQUIRE(ready(taker, 1000 - 66 * 10) != 0);
  REQUIRE(ready(taker, 100) != 0);
  for (std::size_t i = 0, at = 0; i < givers.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) free_behind_work(givers[i], givers[j], taken[at++]);
  sim::reset_counters();
  CHECK(reuse.take_done(who(taker), units(10), reuse.next_lists()) == 0);
  CHECK(sim::calls("cudaEventRecord") == 12);
  CHECK(sim::calls("cudaEventQuery") == 12);
  for (weir::stream const& giver : givers) REQUIRE(cudaStreamSynchronize(giver.get()) == cudaSuccess);
  CHECK(reuse.take_done(who(taker), units(10), reuse.next_lists()) != 0);
  CHECK(shared() == 65 * 10);
}

TEST_CASE_FIXTURE(reuse_of_a_segment, "in a host function, which may not call CUDA, they are left out") {
  weir::stream const giver, taker;
  reuse.add_segment(0x7f10'0000'0000u, 1 << 20);
  for (int i = 0; i < 100; ++i) free_behind_work(giver, ready(giver, 1));
  CHECK(done(taker, 100) != 0);
  reuse.plan_events(reuse.free_bytes());
  free_behind_work(giver, ready(giver, 600'000));
  struct asked {
    stream_ordered_heap* heap;
    detail::stream_identity who;
    block_id taken = 0;
  } one{&reuse, who(taker)};
  REQUIRE(cudaLaunchHostFunc(
              taker.get(),
              [](void* given) {
                auto& ask = *static_cast<asked*>(given);
                ask.taken = ask.heap->take_ready(ask.who, units(10));
              },
              &one) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(taker.get()) == cudaSuccess);
  CHECK(one.taken != 0);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK(reuse.valid());
}

TEST_CASE_FIXTURE(reuse_of_a_segment, "waiting joins the owners of a run, each once") {
  block_id const first = ready(a, 30), second = ready(b, 30), third = ready(a, 40);
  free_behind_work(a, first);
  free_behind_work(b, second);
  free_behind_work(a, third);
  block_id const all = waiting(c, 100);
  CHECK(reuse[all].size == 100);
  CHECK(sim::calls("cudaStreamWaitEvent") >= 2);
  CHECK(sim::calls("cudaStreamWaitEvent") <= 3);  // a's second block is behind a later event
  CHECK(shared() == 0);
  CHECK(reuse.valid());
}

TEST_CASE_FIXTURE(reuse_of_a_segment, "what a run leaves over is no one's before the work of all its parts is done") {
  destroyable_stream const d;
  block_id const first = ready(a, 50), second = ready(b, 30), third = ready(c, 20);
  free_behind_work(c, third);  // c's own event stands before the waits that the run costs it
  free_behind_work(a, first);
  free_behind_work(b, second);
  CHECK(waiting(c, 80) != 0);
  CHECK(waiting(d, 20) != 0);
  d.finish();
  CHECK(cudaStreamQuery(a.get()) == cudaSuccess);
  CHECK(cudaStreamQuery(b.get()) == cudaSuccess);
}

TEST_CASE_FIXTURE(reuse_of_a_segment, "where a wait fails nothing is taken") {
  block_id const first = ready(a, 100);
  free_behind_work(a, first);
  auto taker = who(b);
  CHECK(reuse.take_ready(taker, units(1)) == 0);  // now it is known
  taker.stream = reinterpret_cast<cudaStream_t>(std::uintptr_t{0x1000});
  CHECK(reuse.take_waiting(taker, units(100), reuse.all_lists()) == 0);
  CHECK(pending(a) == 100);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK(waiting(b, 100) == first);
}

TEST_CASE_FIXTURE(reuse_of_a_segment, "in host order only what is done is taken, and what is freed is everyone's") {
  block_id const first = ready(host_order, 100);
  REQUIRE(first != 0);
  free_behind_work(a, first);
  CHECK(done(host_order, 1) == 0);
  CHECK(waiting(host_order, 1) == 0);
  a.finish();
  block_id const again = done(host_order, 100);
  CHECK(again == first);
  reuse.give(again, who(host_order));
  CHECK(ready(b, 100) == first);
}

TEST_CASE_FIXTURE(small_blocks_of_a_segment,
                  "a stream has slots when it has had blocks of the size, if it does not end") {
  CHECK(small(s) == nullptr);
  CHECK(make(s) == nullptr);
  void* const p = slot(s);
  REQUIRE(p != nullptr);
  CHECK(is_slot(p));
  CHECK(small(s) != nullptr);
  CHECK(small(t) == nullptr);
  CHECK(slot(a) == nullptr);
  CHECK(make(host_order) == nullptr);
  CHECK(reuse.has_slabs());
}

TEST_CASE_FIXTURE(small_blocks_of_a_segment, "slots become blocks, and the heap has what a stream had at hand") {
  void *const p = slot(s), *const q = small(s);
  give(s, q);
  CHECK(reuse.make_blocks(reuse.find_slot(p, size * unit_bytes, unit_bytes)));
  CHECK_FALSE(is_slot(p));
  CHECK_FALSE(reuse.has_slabs());
  block_id const id = reuse.find_live(p, size * unit_bytes, unit_bytes);
  REQUIRE(id != 0);
  CHECK(reuse.keep(id, who(s)));
  CHECK_FALSE(reuse.find_block(p));
  CHECK(reuse.find_live(p, size * unit_bytes, unit_bytes) == 0);
  CHECK(reuse.find_live(p, ~std::size_t{0} << 32, unit_bytes) == 0);  // nor as what its record says meanwhile
  std::size_t const before = pending(s);
  CHECK_FALSE(reuse.gather(who(t)));
  CHECK(reuse.gather(who(s)));
  CHECK(pending(s) == before + size);
  CHECK_FALSE(reuse.gather(who(s)));
  CHECK(reuse.valid());
}

TEST_CASE_FIXTURE(
    small_blocks_of_a_segment,
    "one stream after another gives what it has at hand until that is enough, and the others keep theirs") {
  sim::set_mode(sim::mode::immediate);
  weir::stream const asks;
  auto const at_hand = [&] { return (reuse.gather(who(s)) ? 1 : 0) + (reuse.gather(who(t)) ? 1 : 0); };
  auto const gathering = [&] { return reuse.take_gathering(who(asks), units(size - 1), reuse.all_lists()); };
  for (stream_ref const stream : {stream_ref(s), stream_ref(t)}) {
    CHECK(make(stream) == nullptr);
    block_id const id = ready(stream, size);
    REQUIRE(id != 0);
    REQUIRE(reuse.keep(id, who(stream)));
  }
  for (detail::units large = 64 * 1024; large != 0; large /= 2)
    while (ready(asks, large) != 0) continue;

  CHECK(gathering() != 0);
  SUBCASE("one") { CHECK(at_hand() == 1); }
  SUBCASE("all, for the next requests") {
    CHECK(gathering() != 0);
    CHECK(gathering() == 0);
    CHECK(at_hand() == 0);
  }
  CHECK(reuse.valid());
}

TEST_CASE_FIXTURE(small_blocks_of_a_segment,
                  "a search takes the one block that another stream has at hand, which keeps the others") {
  sim::set_mode(sim::mode::immediate);
  CHECK(make(s) == nullptr);
  block_id const first = ready(s, size), second = ready(s, size);
  for (block_id const id : {first, second}) REQUIRE(reuse.keep(id, who(s)));
  weir::stream const asks;
  REQUIRE(ready(asks, size) != 0);
  CHECK(reuse.take_gathering(who(asks), units(size), reuse.all_lists()) == second);
  CHECK(reuse.find_live(reinterpret_cast<void*>(reuse[second].address()), size * unit_bytes, unit_bytes) == second);
  CHECK(small(s) == reinterpret_cast<void*>(reuse[first].address()));
  CHECK(pending(s) == 0);
  CHECK(reuse.valid());
}

TEST_CASE_FIXTURE(small_blocks_of_a_segment,
                  "what others have at hand is asked for now and then, and had once its work is done") {
  CHECK(make(s) == nullptr);
  block_id const id = ready(s, size);
  REQUIRE(cudaLaunchHostFunc(
              s.get(), [](void*) {}, nullptr) == cudaSuccess);
  REQUIRE(reuse.keep(id, who(s)));
  auto const elsewhere = [&](stream_ref stream) {
    block_id found = 0;
    for (int i = 0; i < 1000 && found == 0; ++i) found = reuse.take_elsewhere(who(stream).key, units(size));
    return found;
  };
  CHECK(elsewhere(t) == 0);  // a stream that is not known yet
  REQUIRE(ready(t, size) != 0);
  REQUIRE(ready(a, size) != 0);
  CHECK(elsewhere(t) == 0);
  s.synchronize();
  CHECK(elsewhere(a) == 0);  // nobody asks for a stream that may end
  CHECK(elsewhere(t) == id);
  CHECK(elsewhere(t) == 0);
  CHECK(small(s) == nullptr);
  CHECK(reuse.valid());
}

TEST_CASE_FIXTURE(small_blocks_of_a_segment, "room for many streams that may come does not count as so many streams") {
  sim::set_mode(sim::mode::immediate);
  reuse.try_to_reserve_lists(100);
  CHECK(make(s) == nullptr);
  block_id const id = ready(s, size);
  REQUIRE(reuse.keep(id, who(s)));
  REQUIRE(ready(t, size) != 0);
  block_id found = 0;
  for (int i = 0; i < 1000 && found == 0; ++i) found = reuse.take_elsewhere(who(t).key, units(size));
  CHECK(found == id);
}

TEST_CASE_FIXTURE(small_blocks_of_a_segment, "of very many streams nobody looks at what each has at hand") {
  sim::set_mode(sim::mode::immediate);
  std::vector<weir::stream> const others(100);
  for (stream_ref const other : others) REQUIRE(ready(other, 1) != 0);
  CHECK(make(s) == nullptr);
  block_id const id = ready(s, size);
  REQUIRE(reuse.keep(id, who(s)));
  for (int i = 0; i < 1000; ++i) REQUIRE(reuse.take_elsewhere(who(others.back()).key, units(size)) == 0);
  CHECK(small(s) == reinterpret_cast<void*>(reuse[id].address()));
}

TEST_CASE_FIXTURE(small_blocks_of_a_segment,
                  "a slab that is in use stays when streams' memory is gathered, and may be made blocks") {
  void* const p = slot(s);
  reuse.gather();
  CHECK(is_slot(p));
  CHECK_FALSE(reuse.some_slab_went());
  CHECK_FALSE(reuse.adopt());
  CHECK(reuse.make_blocks());
  CHECK_FALSE(is_slot(p));
  CHECK(reuse.some_slab_went());
  CHECK_FALSE(reuse.make_blocks());
}

TEST_CASE_FIXTURE(small_blocks_of_a_segment, "a stream whose slots others free has none of them any more") {
  std::vector<void*> taken{slot(s)};
  while (taken.size() < 1000) {
    void* p = small(s);
    if (p == nullptr) p = make(s);
    if (p == nullptr) break;
    taken.push_back(p);
  }
  REQUIRE(taken.size() == 1000);
  std::size_t refused = 0;
  for (void* const p : taken) {
    auto const found = reuse.find_slot(p, size * unit_bytes, unit_bytes);
    if (found && reuse.give(found, who(t))) continue;
    ++refused;
    if (found) REQUIRE(reuse.make_blocks(found));
    REQUIRE(reuse.give(reuse.find_live(p, size * unit_bytes, unit_bytes), who(t)) != 0);
  }
  CHECK(refused > 900);
  CHECK_FALSE(reuse.has_slabs());
  CHECK(slot(s) == nullptr);
  CHECK(slot(t) != nullptr);  // others may have some
  CHECK(reuse.valid());
}

TEST_CASE_FIXTURE(small_blocks_of_a_segment, "the slabs of a thread that ended become blocks") {
  void* p = nullptr;
  std::thread([&] { p = slot(cudaStreamPerThread); }).join();
  REQUIRE(is_slot(p));
  CHECK(reuse.adopt());
  CHECK_FALSE(is_slot(p));
  CHECK(reuse.find_live(p, size * unit_bytes, unit_bytes) != 0);
}
