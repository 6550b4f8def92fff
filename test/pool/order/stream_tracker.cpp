#include <weir/pool/order/stream_tracker.hpp>

#include <weir/cuda/event.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/destroyable_stream.hpp>
#include <support/sim_fixture.hpp>

#include <memory>
#include <thread>
#include <vector>

using namespace weir;
using detail::stream_tracker;
using weir::test::destroyable_stream;
using weir::test::lazy_world;

namespace {

void queue_work(stream_ref stream) {
  REQUIRE(cudaLaunchHostFunc(
              stream.get(), [](void*) {}, nullptr) == cudaSuccess);
}

struct clock_with_lists : stream_tracker {
  bool all_last;
  explicit clock_with_lists(int device = 0, bool last = false) : stream_tracker(device), all_last(last) {
    while (!has_spare(8)) add_lists();
  }
  detail::list_id list(stream_ref stream) {
    detail::stream_key const key = detail::stream_identity::known_key(stream, all_last);
    bool const ask = detail::stream_identity::must_ask(stream, key);
    return list_of(ask ? detail::stream_identity::ask(stream, key).key : key, stream);
  }
  cudaEvent_t begin_wait(detail::list_id list) { return stream_tracker::begin_wait(list, issued(list)).event; }
  detail::sequence_number poll(detail::list_id list) {
    questions calls(*this);
    return stream_tracker::poll(list, calls);
  }
};

}  // namespace

TEST_CASE("a free leaves an event behind only where the stream may end") {
  lazy_world const world;
  clock_with_lists clock;
  weir::stream const lasting;
  destroyable_stream const m;
  for (stream_ref const s : {stream_ref(cudaStreamLegacy), stream_ref(cudaStreamPerThread), stream_ref(lasting)}) {
    auto const list = clock.list(s);
    sim::reset_counters();
    clock.on_free(list);
    CHECK(sim::calls() == 0);
  }
  auto const list = clock.list(m);
  clock.on_free(list);
  sim::reset_counters();
  clock.on_free(list);
  CHECK(sim::calls("cudaEventRecord") == 1);
  CHECK(sim::calls() == 1);
}

TEST_CASE("polling says what is done, without waiting") {
  lazy_world const world;
  clock_with_lists clock;
  weir::stream const lasting;
  destroyable_stream const m;
  for (stream_ref const s :
       {stream_ref(cudaStreamLegacy), stream_ref(cudaStreamPerThread), stream_ref(lasting), stream_ref(m)}) {
    auto const list = clock.list(s);
    queue_work(s);
    auto const t = clock.on_free(list);
    CHECK(clock.poll(list) < t);
    CHECK(clock.poll(list) < t);
    REQUIRE(cudaStreamSynchronize(s.get()) == cudaSuccess);
    CHECK(clock.poll(list) == t);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
  }
  CHECK(sim::calls("cudaEventSynchronize") == 0);
  CHECK(sim::calls("cudaDeviceSynchronize") == 0);
}

TEST_CASE("a stream that never rests is still seen to make progress") {
  lazy_world const world;
  clock_with_lists clock;
  destroyable_stream const m;
  auto const list = clock.list(m);
  std::vector<weir::event> reached(1000);
  std::vector<detail::sequence_number> sequences;
  sim::reset_counters();
  for (std::size_t i = 0; i < reached.size(); ++i) {
    queue_work(m);
    sequences.push_back(clock.on_free(list));
    reached[i].record(m);
    if (i < 50) continue;
    reached[i - 50].synchronize();  // the stream is always 50 frees behind
    auto const done = clock.poll(list);
    REQUIRE(done <= sequences[i - 50]);
    if (i >= 250) REQUIRE(done >= sequences[i - 250]);
  }
  CHECK(sim::calls("cudaEventCreateWithFlags") <= 4);
}

TEST_CASE("a join is one wait, and none for what is known") {
  lazy_world const world;
  clock_with_lists clock;
  destroyable_stream const giver, taker;
  auto const from = clock.list(giver), to = clock.list(taker);
  queue_work(giver);
  auto const first = clock.on_free(from);
  auto const second = clock.on_free(from);
  sim::reset_counters();
  CHECK(clock.join(to, taker, from, second));
  CHECK(sim::calls("cudaStreamWaitEvent") == 1);
  CHECK(clock.available(to, from, first));
  CHECK(clock.join(to, taker, from, first));
  CHECK(sim::calls("cudaStreamWaitEvent") == 1);
  auto const third = clock.on_free(from);
  CHECK_FALSE(clock.available(to, from, third));
}

TEST_CASE("a join with a stream that left no event records one then") {
  lazy_world const world;
  clock_with_lists clock;
  weir::stream const giver;
  destroyable_stream const taker;
  auto const from = clock.list(giver), to = clock.list(taker);
  queue_work(giver);
  auto const t = clock.on_free(from);
  CHECK(sim::calls("cudaEventRecord") == 0);
  CHECK(clock.join(to, taker, from, t));
  CHECK(sim::calls("cudaEventRecord") == 1);
  CHECK(sim::calls("cudaStreamWaitEvent") == 1);
}

TEST_CASE("a free on a handle goes to the list of the stream that had it when CUDA was asked last") {
  lazy_world const world;
  clock_with_lists clock;
  destroyable_stream const m, other;
  weir::stream const lasting;
  CHECK(clock.list_unasked(m) == detail::shared);  // it never was
  auto const list = clock.list(m);
  clock.on_free(list);
  CHECK(clock.list_unasked(m) == list);
  CHECK(clock.list_unasked(other) == detail::shared);
  clock.on_free(clock.list(lasting));
  CHECK(clock.list_unasked(lasting) == detail::shared);
  sim::reset_counters();
  for (int i = 0; i < detail::stream_tracker::timeline::max_unconfirmed; ++i) {
    auto const given = clock.on_free_unasked(list);
    CHECK(given == clock.issued(list));
  }
  CHECK(sim::calls("cudaStreamGetId") == 0);
  auto const issued = clock.issued(list);
  CHECK(clock.on_free_unasked(list) == detail::sequence_number::none);  // too many: ask
  CHECK(clock.issued(list) == issued);
  clock.confirm(list);
  CHECK(clock.on_free_unasked(list) > issued);

  SUBCASE("not while somebody waits for one of its events") {
    CHECK(clock.begin_wait(list) != nullptr);
    CHECK(clock.list_unasked(m) == detail::shared);
    clock.end_wait(list);
    CHECK(clock.list_unasked(m) == list);
  }
  SUBCASE("not while something freed there has no event") {
    sim::fail_call(1, cudaErrorUnknown);
    clock.on_free(list);
    sim::clear_failure();
    CHECK(clock.list_unasked(m) == detail::shared);
    clock.on_free(list);
    CHECK(clock.list_unasked(m) == list);
  }
  SUBCASE("not where the list came to be another stream's") {
    sim::run_all();
    clock.poll(list);
    clock.retire(list);
    CHECK(clock.list_unasked(m) == detail::shared);
    CHECK(clock.list(other) == list);
    CHECK(clock.list_unasked(m) == detail::shared);
  }
}

TEST_CASE("a free whose event cannot be recorded changes nothing where CUDA was not asked who its stream is") {
  lazy_world const world;
  clock_with_lists clock;
  destroyable_stream const m;
  auto const list = clock.list(m);
  auto const t = clock.on_free(list);
  sim::fail_call(3, cudaErrorUnknown);  // which device is current, the creation, the record
  CHECK(clock.on_free_unasked(list) == detail::sequence_number::none);
  sim::clear_failure();
  CHECK(clock.issued(list) == t);
  CHECK(clock.list_unasked(m) == list);
  sim::run_all();
  CHECK(clock.poll(list) == t);
}

TEST_CASE("where an event cannot be had, nobody is told that the work is done") {
  for (int fails = 1; fails <= 3; ++fails) {
    CAPTURE(fails);
    lazy_world const world;
    clock_with_lists clock;
    auto giver = std::make_unique<destroyable_stream>();
    destroyable_stream const taker;
    auto const from = clock.list(*giver), to = clock.list(taker);
    queue_work(*giver);
    sim::fail_call(static_cast<std::uint64_t>(fails), cudaErrorUnknown);  // the device, the creation, the record
    auto const t = clock.on_free(from);
    sim::clear_failure();
    giver.reset();  // whoever has this handle next must not be asked
    destroyable_stream const next;
    CHECK(clock.poll(from) < t);
    CHECK_FALSE(clock.join(to, taker, from, t));
    CHECK(clock.begin_wait(from) == nullptr);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    clock.complete(from, t);
    CHECK(clock.available(to, from, t));
  }
}

TEST_CASE("another thread's default stream is waited for through the legacy stream") {
  lazy_world const world;
  clock_with_lists clock;
  destroyable_stream const taker;
  bool ran = false;
  auto const to = clock.list(taker);
  detail::list_id from{};
  detail::sequence_number t{};
  std::thread([&] {
    from = clock.list(cudaStreamPerThread);
    REQUIRE(cudaLaunchHostFunc(
                cudaStreamPerThread, [](void* flag) { *static_cast<bool*>(flag) = true; }, &ran) == cudaSuccess);
    t = clock.on_free(from);
  }).join();
  CHECK(clock.join(to, taker, from, t));
  REQUIRE(cudaStreamSynchronize(taker.get()) == cudaSuccess);
  CHECK(ran);
}

TEST_CASE("polling does not disturb another thread's stream while that thread runs") {
  lazy_world const world;
  clock_with_lists clock;
  auto const list = clock.list(cudaStreamPerThread);
  auto const t = clock.on_free(list);
  std::thread([&] {
    CHECK(clock.poll(list) < t);
    CHECK(sim::calls("cudaEventRecord") == 0);
  }).join();
  CHECK(clock.poll(list) < t);  // now it has an event behind it
  sim::run_all();
  CHECK(clock.poll(list) == t);
}

TEST_CASE("what a thread that ended left behind is found to be done") {
  lazy_world const world;
  clock_with_lists clock;
  detail::list_id list{};
  detail::sequence_number t{};
  std::thread([&] {
    list = clock.list(cudaStreamPerThread);
    queue_work(cudaStreamPerThread);
    t = clock.on_free(list);
  }).join();
  CHECK(clock.poll(list) < t);
  sim::run_all();
  CHECK(clock.poll(list) == t);
}

TEST_CASE("events belong to the stream's device, whichever is current") {
  lazy_world const world;
  clock_with_lists clock;
  destroyable_stream const near;
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  destroyable_stream const far;
  for (stream_ref const s : {stream_ref(far), stream_ref(near), stream_ref(cudaStreamLegacy)}) {
    auto const list = clock.list(s);
    for (int i = 0; i < 6; ++i) {  // more often than there are events to be made
      queue_work(s);
      auto const t = clock.on_free(list);
      CHECK(clock.poll(list) < t);
      sim::run_all();
      CHECK(clock.poll(list) == t);
    }
    CHECK(clock.device_of(list) == (s == stream_ref(far) ? 1 : 0));
  }
  int current = -1;
  REQUIRE(cudaGetDevice(&current) == cudaSuccess);
  CHECK(current == 1);
}

TEST_CASE("a stream that captures when it is met is asked for its device once it does not") {
  lazy_world const world;
  clock_with_lists clock;
  weir::stream const near;
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  weir::stream const far;
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamBeginCapture(far.get(), cudaStreamCaptureModeGlobal) == cudaSuccess);
  auto const list = clock.list(far), other = clock.list(near);
  CHECK_FALSE(clock.knows_device_of(list));
  auto t = clock.on_free(list);
  CHECK_FALSE(clock.cover(list));
  CHECK_FALSE(clock.knows_device_of(list));
  REQUIRE(cudaStreamEndCapture(far.get(), &graph) == cudaSuccess);
  REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
  queue_work(far);
  t = clock.on_free(list);
  CHECK(clock.poll(list) < t);
  CHECK(clock.knows_device_of(list));
  CHECK(clock.device_of(list) == 1);
  CHECK(clock.join(other, near, list, t));
  sim::run_all();
  CHECK(clock.poll(list) == t);
}

TEST_CASE("a free list that is met again for another device's stream gets events of that device") {
  lazy_world const world;
  {
    clock_with_lists clock;
    for (int i = 0; i < 20; ++i) {
      REQUIRE(cudaSetDevice(i % 2) == cudaSuccess);
      destroyable_stream const m;
      auto const list = clock.list(m);
      auto const t = clock.on_free(list);
      sim::run_all();
      CHECK(clock.poll(list) == t);
      clock.retire(list);
      CHECK_FALSE(clock.is_open(list));
    }
  }
  CHECK(sim::calls("cudaEventCreateWithFlags") == sim::calls("cudaEventDestroy"));
}

TEST_CASE("streams that cannot end keep their free lists") {
  lazy_world const world;
  clock_with_lists clock;
  weir::stream const lasting;
  for (stream_ref const s : {stream_ref(cudaStreamLegacy), stream_ref(lasting)}) {
    auto const list = clock.list(s);
    clock.retire(list);
    CHECK(clock.is_open(list));
  }
}

TEST_CASE("there is room for as many streams more as found no list, each counted once, and no more than a bound") {
  // The lists that a tracker has spare after these streams found none, `times` in turn.
  auto const spare_after = [](std::uint64_t streams, int times) {
    detail::stream_tracker clock(0);
    while (times-- > 0)
      for (std::uint64_t id = 1; id <= streams; ++id)
        clock.missed_list(detail::stream_identity::key_for(detail::stream_identity::destroyable, id));
    while (clock.is_short_of_lists()) clock.add_lists();
    std::size_t lists = 0;
    while (clock.has_spare(lists + 1)) ++lists;
    return lists;
  };
  std::size_t const at_first = spare_after(0, 0);
  CHECK(spare_after(1, 100) == at_first + 1);
  CHECK(spare_after(3, 100) == at_first + 3);
  CHECK(spare_after(50, 1) == at_first + 50);
  CHECK(spare_after(3000, 1) < 300);
}

TEST_CASE("a stream that found no list though there was room is not counted") {
  detail::stream_tracker clock(0);
  while (clock.is_short_of_lists()) clock.add_lists();
  for (std::uint64_t id = 1; id <= 50; ++id)
    clock.missed_list(detail::stream_identity::key_for(detail::stream_identity::destroyable, id));
  CHECK_FALSE(clock.is_short_of_lists());
}

TEST_CASE("the last list is for what comes after streams without one, whatever takes the others") {
  lazy_world const world;
  clock_with_lists clock;
  std::vector<weir::stream> const streams(20);
  SUBCASE("streams") {
    for (auto const& s : streams) clock.list(s);
  }
  SUBCASE("captures") {
    while (clock.open_captured() != detail::shared) {
    }
  }
  SUBCASE("what streams use together") {
    auto all = clock.list(streams[0]);
    for (std::size_t i = 1; i < 4 && all != detail::shared; ++i) all = clock.both(all, clock.list(streams[i]));
    while (clock.open_captured() != detail::shared) {
    }
  }
  CHECK(clock.list(streams.back()) == detail::shared);
  auto const list = clock.list_behind(streams.back());
  CHECK(list != detail::shared);
  CHECK(clock.list_behind(streams.front()) == list);
  CHECK(clock.open_captured() == detail::shared);
}

TEST_CASE("a captured free list is no stream's, and never done before it is ended") {
  lazy_world const world;
  clock_with_lists clock;
  destroyable_stream const m;
  auto const list = clock.open_captured(), other = clock.list(m);
  CHECK(list != other);
  CHECK(clock.open_captured() != list);
  CHECK(clock.is_captured(list));
  CHECK_FALSE(clock.is_captured(other));
  sim::reset_counters();
  auto const t = clock.on_free(list);
  CHECK(clock.poll(list) < t);
  CHECK_FALSE(clock.cover(list));
  CHECK_FALSE(clock.join(other, m, list, t));
  CHECK(clock.begin_wait(list) == nullptr);
  clock.retire(list);
  CHECK(clock.is_open(list));
  CHECK(sim::calls() == 0);
  CHECK(clock.end_captured(list) == t);
  CHECK_FALSE(clock.is_open(list));
  CHECK_FALSE(clock.is_captured(list));
}

TEST_CASE("the device is not waited for while a stream that is known here captures") {
  lazy_world const world;
  clock_with_lists clock;
  weir::stream const lasting, blocking(weir::stream::kind::blocking);
  clock.list(lasting);
  CHECK(clock.may_wait_for_device());
  cudaGraph_t graph = nullptr;
  for (cudaStream_t const s : {lasting.get(), blocking.get()}) {  // the other one by the legacy stream
    REQUIRE(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal) == cudaSuccess);
    CHECK_FALSE(clock.may_wait_for_device());
    REQUIRE(cudaStreamEndCapture(s, &graph) == cudaSuccess);
    REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(clock.may_wait_for_device());
  }
}

TEST_CASE("a stream whose event the host waits for keeps its free list meanwhile") {
  lazy_world const world;
  clock_with_lists clock;
  destroyable_stream const m;
  auto const list = clock.list(m);
  clock.on_free(list);
  CHECK(clock.begin_wait(list) != nullptr);
  CHECK(clock.begin_wait(list) != nullptr);  // another thread
  for (bool const last : {false, true}) {
    clock.retire(list);
    CHECK(clock.is_open(list));
    clock.end_wait(list);
    CHECK(clock.is_open(list));
    if (last) clock.retire(list);
  }
  CHECK_FALSE(clock.is_open(list));
}

TEST_CASE("a free list that was a capture's between streams of two devices records on each") {
  lazy_world const world;
  clock_with_lists clock;
  detail::list_id first{};
  {
    device_guard const on_other(1);
    destroyable_stream const m;
    first = clock.list(m);
    for (int i = 0; i < detail::stream_timeline<cudaEvent_t>::max_events; ++i) {  // all the events that a free list has
      clock.on_free(first);
      clock.complete(first, clock.issued(first));
    }
    clock.retire(first);
  }
  REQUIRE(clock.open_captured() == first);
  clock.end_captured(first);
  destroyable_stream const m;
  REQUIRE(clock.list(m) == first);
  clock.on_free(first);
  CHECK(clock.begin_wait(first) != nullptr);
  clock.end_wait(first);
}

TEST_CASE("what was freed after the work of two lists is done when both are") {
  lazy_world const world;
  clock_with_lists clock;
  destroyable_stream const a, b;
  auto const one = clock.list(a), other = clock.list(b);
  auto const both = clock.both(one, other);
  CHECK(clock.is_joint(both));
  queue_work(a);
  queue_work(b);
  auto const t = clock.on_free(both);
  CHECK(clock.poll(both) < t);
  a.finish();
  CHECK(clock.poll(both) < t);
  b.finish();
  CHECK(clock.poll(both) == t);
}

TEST_CASE("who wants what was freed after two lists waits for each, unless it is one of them") {
  lazy_world const world;
  clock_with_lists clock;
  destroyable_stream const a, b, c;
  auto const one = clock.list(a), other = clock.list(b), taker = clock.list(c);
  auto const both = clock.both(one, other);
  queue_work(a);
  queue_work(b);
  auto const t = clock.on_free(both);
  CHECK_FALSE(clock.available(one, both, t));
  sim::reset_counters();
  CHECK(clock.join(one, a, both, t));
  CHECK(sim::calls("cudaStreamWaitEvent") == 1);
  CHECK(clock.available(one, both, t));
  CHECK_FALSE(clock.available(taker, both, t));
  CHECK(clock.join(taker, c, both, t));
  CHECK(sim::calls("cudaStreamWaitEvent") == 3);
  CHECK(clock.available(taker, both, t));
}

TEST_CASE("streams that a list of two needs are not forgotten before it is") {
  lazy_world const world;
  clock_with_lists clock;
  destroyable_stream const a, b;
  auto const one = clock.list(a), other = clock.list(b);
  auto const both = clock.both(one, other);
  clock.on_free(both);
  clock.retire(one);
  clock.retire(other);
  CHECK(clock.is_open(one));
  CHECK(clock.is_open(other));
  CHECK(clock.joint_count() == 1);
  clock.retire(both);
  CHECK_FALSE(clock.is_open(both));
  CHECK(clock.joint_count() == 0);
  clock.retire(one);
  clock.retire(other);
  CHECK_FALSE(clock.is_open(one));
  CHECK_FALSE(clock.is_open(other));
}

TEST_CASE("a stream seen of late has its list, another has none before it is met") {
  lazy_world const world;
  clock_with_lists clock;
  auto const key = detail::stream_identity::known_key(cudaStreamLegacy, false);
  CHECK(clock.list_seen(key) == detail::shared);
  auto const list = clock.list(cudaStreamLegacy);
  CHECK(clock.list_seen(key) == list);
  CHECK(clock.list_seen(detail::stream_key::none) == detail::shared);
}

TEST_CASE("memory is kept only for streams that do not end, or whose end is noticed") {
  lazy_world const world;
  clock_with_lists clock, promised(0, true);
  weir::stream const lasting;
  destroyable_stream const m, n;
  for (stream_ref const s : {stream_ref(cudaStreamLegacy), stream_ref(cudaStreamPerThread), stream_ref(lasting)})
    CHECK(clock.is_lasting(clock.list(s)));
  CHECK(promised.is_lasting(promised.list(m)));
  auto const one = clock.list(m);
  CHECK_FALSE(clock.is_lasting(one));
  CHECK_FALSE(clock.is_lasting(clock.both(one, clock.list(n))));
  CHECK_FALSE(clock.is_lasting(clock.both(clock.list(cudaStreamLegacy), clock.list(lasting))));
  while (!clock.has_spare(2)) clock.add_lists();
  auto const captured = clock.open_captured();
  REQUIRE(clock.is_captured(captured));
  CHECK_FALSE(clock.is_lasting(captured));
}

TEST_CASE("a thread's default stream has ended with its thread, other streams have not") {
  lazy_world const world;
  clock_with_lists clock;
  weir::stream const lasting;
  auto list = detail::shared;
  std::thread([&] {
    list = clock.list(cudaStreamPerThread);
    CHECK_FALSE(clock.has_ended(list));
  }).join();
  CHECK(clock.has_ended(list));
  for (stream_ref const s : {stream_ref(cudaStreamLegacy), stream_ref(cudaStreamPerThread), stream_ref(lasting)})
    CHECK_FALSE(clock.has_ended(clock.list(s)));
}

TEST_CASE("what was freed up to a number is done when the work before it is, later frees are not") {
  lazy_world const world;
  clock_with_lists clock;
  weir::stream const s;
  auto const list = clock.list(s);
  CHECK(clock.is_done(list, detail::sequence_number::none));
  queue_work(s);
  auto const first = clock.number_free(list);
  CHECK_FALSE(clock.is_done(list, first));
  clock.poll(list);
  s.synchronize();
  clock.poll(list);
  CHECK(clock.is_done(list, first));
  CHECK(clock.is_done(list));
  auto const second = clock.number_free(list);
  CHECK(clock.is_done(list, first));
  CHECK_FALSE(clock.is_done(list, second));
  CHECK_FALSE(clock.is_done(list));
}
