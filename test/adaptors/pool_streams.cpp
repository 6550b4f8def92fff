// The pool and the order of streams: what costs a call, who waits for whom, and that no order is ever broken.
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/host.hpp>
#include <weir/testing/checked.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "support/streams_at_work.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

stream_ref const legacy = cudaStreamLegacy;

/// Allocates and frees in an order that splits, merges and reuses.
template <class Pool>
void churn(Pool& memory, stream_ref stream) {
  std::vector<void*> blocks;
  for (std::size_t i = 1; i <= 100; ++i) blocks.push_back(memory.allocate(stream, i * 300));
  for (std::size_t i = 0; i < 100; i += 2) memory.deallocate(stream, blocks[i], (i + 1) * 300);
  for (std::size_t i = 0; i < 100; i += 2) blocks[i] = memory.allocate(stream, (i + 1) * 300);
  for (std::size_t i = 0; i < 100; ++i) memory.deallocate(stream, blocks[i], (i + 1) * 300);
}

/// The runtime calls that `work` makes.
template <class F>
std::uint64_t calls_of(F work) {
  sim::reset_counters();
  work();
  return sim::calls();
}

}  // namespace

TEST_CASE("traffic on the default stream makes no CUDA call") {
  for (sim::mode const mode : {sim::mode::immediate, sim::mode::lazy}) {
    lazy_world const world;
    sim::set_mode(mode);
    auto memory = make(device{} | pool{.initial_bytes = 8_MiB});
    CHECK(calls_of([&] { memory.deallocate(legacy, memory.allocate(legacy, 1), 1); }) == 0);
    CHECK(calls_of([&] { churn(memory, legacy); }) == 0);
    CHECK(calls_of([&] { churn(memory, stream_ref()); }) == 0);
    CHECK(calls_of([&] { churn(memory, cudaStreamPerThread); }) <= 6);  // the first look at what the other freed
    CHECK(calls_of([&] { churn(memory, cudaStreamPerThread); }) == 0);
    CHECK(memory.numbers().growths <= 2);
  }
}

TEST_CASE("neither does traffic on a persistent stream, after the first look at it") {
  lazy_world const world;
  auto memory = make(device{} | pool{.initial_bytes = 8_MiB});
  weir::stream const s;
  memory.deallocate(s, memory.allocate(s, 1), 1);
  CHECK(calls_of([&] { churn(memory, s); }) == 0);
}

TEST_CASE("neither does traffic on any stream, where streams are promised to outlive the pool") {
  lazy_world const world;
  destroyable_stream const s;
  auto memory = make(device{} | pool{.initial_bytes = 8_MiB, .streams = stream_lifetime::outlives_pool});
  memory.deallocate(s, memory.allocate(s, 1), 1);
  CHECK(calls_of([&] { churn(memory, s); }) == 0);
}

TEST_CASE("a stream that may end costs two calls an allocation and two a free") {
  lazy_world const world;
  destroyable_stream const s;
  auto memory = make(device{} | pool{.initial_bytes = 8_MiB});
  for (int i = 0; i < 300; ++i) memory.deallocate(s, memory.allocate(s, 1), 1);  // its events are made
  for (int i = 0; i < 300; ++i) {
    void* p = nullptr;
    CHECK(calls_of([&] { p = memory.allocate(s, 1000); }) == 2);
    CHECK(sim::calls("cudaStreamGetId") == 1);
    CHECK(sim::calls("cudaStreamGetCaptureInfo") == 1);
    CHECK(calls_of([&] { memory.deallocate(s, p, 1000); }) == 2);
    CHECK(sim::calls("cudaStreamGetCaptureInfo") == 1);
    CHECK(sim::calls("cudaEventRecord") == 1);
  }
}

TEST_CASE("with captures promised to be declared, one call an allocation and one a free, and two while one is") {
  lazy_world const world;
  destroyable_stream const s;
  auto memory = make(device{} | pool{.initial_bytes = 8_MiB, .declared_captures = true});
  for (int i = 0; i < 300; ++i) memory.deallocate(s, memory.allocate(s, 1), 1);  // its events are made
  for (int i = 0; i < 300; ++i) {
    std::optional<capture_scope> declared;
    if (i % 2 == 1) declared.emplace();
    std::size_t const calls = declared ? 2 : 1;
    void* p = nullptr;
    CHECK(calls_of([&] { p = memory.allocate(s, 1000); }) == calls);
    CHECK(sim::calls("cudaStreamGetId") == 1);
    CHECK(calls_of([&] { memory.deallocate(s, p, 1000); }) == calls);
    CHECK(sim::calls("cudaEventRecord") == 1);
  }
}

TEST_CASE("of frees in a row on a stream that may end one in five asks who that is") {
  lazy_world const world;
  destroyable_stream const s;
  auto memory = make(device{} | pool{.initial_bytes = 8_MiB});
  std::vector<void*> blocks(50);
  for (int round = 0; round < 20; ++round) {  // its events are made
    for (void*& p : blocks) p = memory.allocate(s, 1000);
    sim::reset_counters();
    for (void* p : blocks) memory.deallocate(s, p, 1000);
  }
  CHECK(sim::calls("cudaStreamGetId") == 10);
  CHECK(sim::calls() == 50 * 2 + 10);
}

TEST_CASE("an allocation on a stream that may end is one call where that has nothing of its own") {
  lazy_world const world;
  auto memory = make(device{} | pool{.initial_bytes = 8_MiB});
  destroyable_stream const s, t;
  std::vector<void*> blocks;
  blocks.push_back(memory.allocate(s, 1_MiB));
  blocks.push_back(memory.allocate(s, 1_MiB));  // from now on it is known which list its handle has
  for (int i = 0; i < 4; ++i) {
    CHECK(calls_of([&] { blocks.push_back(memory.allocate(s, 1_MiB)); }) == 1);
    CHECK(sim::calls("cudaStreamGetCaptureInfo") == 1);
  }
  memory.deallocate(t, blocks[0], 1_MiB);
  CHECK(calls_of([&] { blocks[0] = memory.allocate(s, 1_MiB); }) == 1);
  memory.deallocate(s, blocks[1], 1_MiB);
  void* again = nullptr;
  CHECK(calls_of([&] { again = memory.allocate(s, 1_MiB); }) == 2);  // that is its own, if it is who freed it
  CHECK(again == blocks[1]);
  for (void* p : blocks) memory.deallocate(s, p, 1_MiB);
}

TEST_CASE("memory whose work is pending is not given to another stream: the pool grows") {
  lazy_world const world;
  destroyable_stream const s, t;
  auto memory = make(device{} | pool{.initial_bytes = 2_MiB});
  void* const p = memory.allocate(s, 2_MiB);
  fill(s, p, 2_MiB, 1);
  memory.deallocate(s, p, 2_MiB);
  CHECK(memory.numbers().pending == 2_MiB);
  sim::reset_counters();
  void* const q = memory.allocate(t, 2_MiB);
  CHECK(q != p);
  CHECK(memory.numbers().growths == 2);
  CHECK(memory.numbers().waits == 0);
  CHECK(sim::calls("cudaStreamWaitEvent") == 0);
  CHECK(sim::calls("cudaEventSynchronize") + sim::calls("cudaDeviceSynchronize") == 0);
  // On its own stream it may be had at once.
  CHECK(memory.allocate(s, 2_MiB) == p);
  memory.deallocate(s, p, 2_MiB);
  memory.deallocate(t, q, 2_MiB);
}

TEST_CASE("or, if so asked, the stream waits for just that work, once") {
  lazy_world const world;
  destroyable_stream const s, t;
  queued_checks checks;
  auto memory = make(device{} | pool{.initial_bytes = 2_MiB, .pending = when_pending::wait});
  void* const p = memory.allocate(s, 1_MiB);
  fill(s, p, 1_MiB, 1);
  checks.expect(s, p, 1_MiB, 1);
  memory.deallocate(s, p, 1_MiB);
  void* const rest = memory.allocate(s, 1_MiB);  // so that nothing else is free
  if (rest == p) {
    // the stream got its own block back: free it again, and take what is left instead
    void* const other = memory.allocate(s, 1_MiB);
    memory.deallocate(s, p, 1_MiB);
    CHECK(other != p);
  }
  sim::reset_counters();
  void* const q = memory.allocate(t, 1_MiB);
  CHECK(q == p);
  CHECK(sim::calls("cudaStreamWaitEvent") == 2);  // for what s freed since it allocated, too: who did that is not known
  CHECK(memory.numbers().waits == 1);
  CHECK(memory.numbers().growths == 1);
  fill(t, q, 1_MiB, 2);
  checks.expect(t, q, 1_MiB, 2);
  t.finish();  // without the wait this would run before anything on s
  s.finish();
  CHECK(checks.done() == 2);
  CHECK(checks.wrong() == 0);
  memory.deallocate(t, q, 1_MiB);
}

TEST_CASE("who has waited for a stream need not wait again for what it freed before") {
  lazy_world const world;
  destroyable_stream const s, t;
  auto memory = make(device{} | pool{.initial_bytes = 6_MiB, .pending = when_pending::wait});
  void* blocks[6];
  for (void*& p : blocks) p = memory.allocate(s, 1_MiB);
  for (std::size_t i : {0u, 2u, 4u}) memory.deallocate(s, blocks[i], 1_MiB);  // no neighbours
  void* const again = memory.allocate(s, 1_MiB);  // from now on it is known who freed the others
  sim::reset_counters();
  void* const first = memory.allocate(t, 1_MiB);
  void* const second = memory.allocate(t, 1_MiB);
  CHECK(sim::calls("cudaStreamWaitEvent") == 1);
  CHECK(memory.numbers().growths == 1);
  for (void* p : {first, second}) memory.deallocate(t, p, 1_MiB);
  for (void* p : {again, blocks[1], blocks[3], blocks[5]}) memory.deallocate(s, p, 1_MiB);
}

TEST_CASE("memory whose work is done costs a query and no wait") {
  for (when_pending const pending : {when_pending::grow, when_pending::wait}) {
    lazy_world const world;
    destroyable_stream const s, t;
    auto memory = make(device{} | pool{.initial_bytes = 2_MiB, .pending = pending});
    void* const p = memory.allocate(s, 2_MiB);
    fill(s, p, 2_MiB, 1);
    memory.deallocate(s, p, 2_MiB);
    sim::run_all();
    sim::reset_counters();
    CHECK(memory.allocate(t, 2_MiB) == p);
    CHECK(sim::calls("cudaEventQuery") >= 1);
    CHECK(sim::calls("cudaStreamWaitEvent") == 0);
    CHECK(memory.numbers().growths == 1);
    memory.deallocate(t, p, 2_MiB);
  }
}

TEST_CASE("the lasting and the default streams' memory goes to others by the same rules") {
  lazy_world const world;
  weir::stream const lasting;
  for (stream_ref const s : {legacy, stream_ref(cudaStreamPerThread), stream_ref(lasting)}) {
    destroyable_stream const t;
    queued_checks checks;
    auto memory = make(device{} | pool{.initial_bytes = 2_MiB, .pending = when_pending::wait});
    void* const p = memory.allocate(s, 2_MiB);
    fill(s, p, 2_MiB, 1);
    checks.expect(s, p, 2_MiB, 1);
    memory.deallocate(s, p, 2_MiB);
    sim::reset_counters();
    void* const q = memory.allocate(t, 2_MiB);
    CHECK(q == p);
    CHECK(sim::calls("cudaStreamWaitEvent") == 1);
    fill(t, q, 2_MiB, 2);
    checks.expect(t, q, 2_MiB, 2);
    t.finish();
    sim::run_all();
    CHECK(checks.wrong() == 0);
    memory.deallocate(t, q, 2_MiB);
  }
}

TEST_CASE("neighbours freed on several streams become one block for a stream that waits for all of them") {
  lazy_world const world;
  destroyable_stream const a, b, t;
  queued_checks checks;
  auto memory = make(device{} | pool{.initial_bytes = 2_MiB, .pending = when_pending::wait});
  void* const p = memory.allocate(a, 1_MiB);
  void* const q = memory.allocate(b, 1_MiB);
  fill(a, p, 1_MiB, 1);
  fill(b, q, 1_MiB, 2);
  checks.expect(a, p, 1_MiB, 1);
  checks.expect(b, q, 1_MiB, 2);
  memory.deallocate(a, p, 1_MiB);
  memory.deallocate(b, q, 1_MiB);
  sim::reset_counters();
  void* const both = memory.allocate(t, 2_MiB);
  CHECK(both == std::min(p, q));
  CHECK(sim::calls("cudaStreamWaitEvent") == 2);
  fill(t, both, 2_MiB, 3);
  checks.expect(t, both, 2_MiB, 3);
  t.finish();
  sim::run_all();
  CHECK(checks.wrong() == 0);
  memory.deallocate(t, both, 2_MiB);
}

TEST_CASE("without the waits they stay apart") {
  lazy_world const world;
  destroyable_stream const a, b, t;
  auto memory = make(device{} | pool{.initial_bytes = 2_MiB});
  void* const p = memory.allocate(a, 1_MiB);
  void* const q = memory.allocate(b, 1_MiB);
  memory.deallocate(a, p, 1_MiB);
  memory.deallocate(b, q, 1_MiB);
  fill(a, p, 0, 0);
  sim::touch(a.get(), p, 1, sim::access::write);
  void* const both = memory.allocate(t, 2_MiB);
  CHECK(both != std::min(p, q));
  CHECK(sim::calls("cudaStreamWaitEvent") == 0);
  memory.deallocate(t, both, 2_MiB);
}

TEST_CASE("in host order only memory is given whose work is done") {
  lazy_world const world;
  destroyable_stream const s;
  auto memory = make(device{} | pool{.initial_bytes = 2_MiB, .pending = when_pending::wait});
  void* const p = memory.allocate(s, 2_MiB);
  fill(s, p, 2_MiB, 1);
  memory.deallocate(s, p, 2_MiB);
  void* const q = memory.allocate(host_order, 2_MiB);
  CHECK(q != p);
  memory.deallocate(host_order, q, 2_MiB);
  CHECK(memory.numbers().pending == 2_MiB);
  CHECK(memory.numbers().free == 2_MiB);
  // What was freed in host order is everyone's at once.
  destroyable_stream const t;
  sim::reset_counters();
  CHECK(memory.allocate(t, 2_MiB) == q);
  CHECK(sim::calls("cudaStreamWaitEvent") == 0);
  memory.deallocate(t, q, 2_MiB);
}

TEST_CASE("in host order a pool that may not grow lets the host wait") {
  lazy_world const world;
  destroyable_stream const s;
  bool ran = false;
  auto memory = make(device{} | pool{.max_bytes = 2_MiB});
  void* const p = memory.allocate(s, 2_MiB);
  REQUIRE(cudaLaunchHostFunc(
              s.get(), [](void* flag) { *static_cast<bool*>(flag) = true; }, &ran) == cudaSuccess);
  memory.deallocate(s, p, 2_MiB);
  void* const q = memory.allocate(host_order, 2_MiB);
  CHECK(q == p);
  CHECK(ran);
  CHECK(memory.numbers().synchronizations == 1);
  memory.deallocate(host_order, q, 2_MiB);
}

namespace {

/// One that has this handle, which must have been destroyed.
cudaStream_t stream_with(cudaStream_t handle) {
  std::vector<cudaStream_t> others;
  cudaStream_t s = nullptr;
  do {
    if (s != nullptr) others.push_back(s);
    REQUIRE(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
  } while (s != handle && others.size() < 1000);
  for (cudaStream_t const other : others) REQUIRE(cudaStreamDestroy(other) == cudaSuccess);
  REQUIRE(s == handle);
  return s;
}

/// Two blocks of 1 MiB that fill a pool. The first was freed on a stream that ended with its work queued, the second
/// then on another stream with the same handle, whose work is done where `second_is_done`, else queued.
struct freed_on_one_handle {
  queued_checks checks;
  void *first = nullptr, *second = nullptr;
  cudaStream_t handle = nullptr;

  void use(void* p, unsigned char value) {
    fill(handle, p, 1_MiB, value);
    checks.expect(handle, p, 1_MiB, value);
  }
  template <class Memory>
  void free(Memory& memory, bool second_is_done) {
    REQUIRE(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking) == cudaSuccess);
    first = memory.allocate(handle, 1_MiB);
    second = memory.allocate(handle, 1_MiB);
    use(first, 1);
    memory.deallocate(handle, first, 1_MiB);
    REQUIRE(cudaStreamDestroy(handle) == cudaSuccess);
    REQUIRE(stream_with(handle) == handle);
    use(second, 2);
    sim::reset_counters();
    memory.deallocate(handle, second, 1_MiB);
    CHECK(sim::calls("cudaStreamGetId") == 0);
    if (second_is_done) REQUIRE(cudaStreamSynchronize(handle) == cudaSuccess);
  }
  void end() {
    sim::run_all();
    CHECK(checks.done() == 2);
    CHECK(checks.wrong() == 0);
    REQUIRE(cudaStreamDestroy(handle) == cudaSuccess);
  }
};

}  // namespace

TEST_CASE("a free on a dead stream's handle says nothing of what the dead one's work is up to") {
  lazy_world const world;
  auto memory = make(device{} | pool{.initial_bytes = 2_MiB});
  freed_on_one_handle freed;
  freed.free(memory, true);
  destroyable_stream const t;
  void* const p = memory.allocate(t, 1_MiB);  // of a new segment
  CHECK(p != freed.first);
  CHECK(p != freed.second);  // behind what the dead one freed, since nobody knows who freed this
  fill(t, p, 1_MiB, 3);
  t.finish();
  CHECK(freed.checks.done() == 1);
  sim::run_all();
  CHECK(memory.allocate(t, 2_MiB) == std::min(freed.first, freed.second));
  freed.end();
}

TEST_CASE("a stream with a dead one's handle waits for what the dead one freed") {
  lazy_world const world;
  auto memory = make(device{} | pool{.initial_bytes = 2_MiB, .max_bytes = 2_MiB});
  freed_on_one_handle freed;
  freed.free(memory, false);
  cudaStream_t const s = freed.handle;
  void* const p = memory.allocate(s, 2_MiB);
  CHECK(sim::calls("cudaStreamWaitEvent") == 2);
  fill(s, p, 2_MiB, 3);
  REQUIRE(cudaStreamSynchronize(s) == cudaSuccess);  // which would overtake the dead one's work
  memory.deallocate(s, p, 2_MiB);
  freed.end();
}

TEST_CASE("who waits for what was freed on a handle waits for all that had it") {
  for (int which = 0; which < 4; ++which) {
    bool const by_host = which % 2 != 0, second_is_done = which / 2 != 0;
    CAPTURE(by_host);
    CAPTURE(second_is_done);
    lazy_world const world;
    auto memory = make(device{} | pool{.initial_bytes = 2_MiB, .max_bytes = 2_MiB});
    freed_on_one_handle freed;
    freed.free(memory, second_is_done);
    destroyable_stream const t;
    stream_ref const user = by_host ? stream_ref(host_order) : stream_ref(t);
    void* const p = memory.allocate(user, 2_MiB);
    if (by_host) {
      CHECK(freed.checks.done() == 2);
    } else {
      fill(t, p, 2_MiB, 3);
      t.finish();
    }
    memory.deallocate(user, p, 2_MiB);
    freed.end();
  }
}

// A new stream often gets the handle of one that was destroyed; its memory must not come with it.
TEST_CASE("one-shot streams neither strand memory nor get each other's too early") {
  lazy_world const world;
  queued_checks checks;
  auto memory = make(device{} | pool{.initial_bytes = 4_MiB, .max_bytes = 64_MiB});
  std::set<cudaStream_t> handles;
  std::vector<cudaStream_t> alive;
  std::mt19937 random(3);
  for (int i = 0; i < 5000; ++i) {
    cudaStream_t s = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
    handles.insert(s);
    auto const value = static_cast<unsigned char>(i);
    std::size_t const bytes = 1 + random() % 4096;
    void* const p = memory.allocate(s, bytes);
    fill(s, p, bytes, value);
    checks.expect(s, p, bytes, value);
    memory.deallocate(s, p, bytes);
    if (random() % 3 == 0) {
      REQUIRE(cudaStreamSynchronize(s) == cudaSuccess);  // some run before all that was queued earlier
    } else if (random() % 16 == 0) {
      alive.push_back(s);
      continue;
    }
    REQUIRE(cudaStreamDestroy(s) == cudaSuccess);
    if (i % 500 == 499) sim::run_all();
    if (alive.size() > 20) {
      std::shuffle(alive.begin(), alive.end(), random);
      for (cudaStream_t old : alive) {
        REQUIRE(cudaStreamSynchronize(old) == cudaSuccess);
        REQUIRE(cudaStreamDestroy(old) == cudaSuccess);
      }
      alive.clear();
    }
  }
  CHECK(handles.size() < 200);  // handles did come back
  sim::run_all();
  CHECK(checks.done() == 5000);
  CHECK(checks.wrong() == 0);
  CHECK(memory.numbers().reserved.current <= 8_MiB);
  for (cudaStream_t old : alive) REQUIRE(cudaStreamDestroy(old) == cudaSuccess);
  // Everything is found again, in one piece.
  sim::reset_counters();
  memory.trim(8_MiB);
  CHECK(memory.snapshot().lanes <= 4);
  void* const all = memory.allocate(legacy, 4_MiB);
  memory.deallocate(legacy, all, 4_MiB);
}

TEST_CASE("a stream that was waited for is forgotten as any other") {
  lazy_world const world;
  auto memory = make(device{} | pool{.initial_bytes = 4_MiB});
  {
    destroyable_stream const s;
    void* const p = memory.allocate(s, 1000);
    fill(s, p, 1000, 1);
    memory.deallocate(s, p, 1000);
    CHECK(memory.snapshot().lanes == 1);
    memory.synchronize();
  }
  memory.trim();
  CHECK(memory.snapshot().lanes == 0);
}

TEST_CASE("one-shot streams make no more state and events than live at a time") {
  lazy_world const world;
  sim::set_mode(sim::mode::immediate);
  auto memory = make(device{} | pool{.initial_bytes = 4_MiB});
  for (int i = 0; i < 5000; ++i) {
    destroyable_stream const s;
    void* const p = memory.allocate(s, 1000);
    fill(s, p, 1000, 1);
    memory.deallocate(s, p, 1000);
  }
  CHECK(memory.snapshot().lanes <= 8);
  CHECK(sim::calls("cudaEventCreateWithFlags") <= 64);
  CHECK(memory.snapshot().host_bytes < 1_MiB);
  CHECK(memory.numbers().growths == 1);
}

TEST_CASE("streams that may end and go on are not forgotten for each other") {
  lazy_world const world;
  sim::set_mode(sim::mode::immediate);
  for (std::size_t const count : {5u, 8u, 12u, 40u}) {
    auto memory = make(device{} | pool{.initial_bytes = 4_MiB});
    std::vector<std::unique_ptr<destroyable_stream>> streams(count);
    for (auto& s : streams) s = std::make_unique<destroyable_stream>();
    auto const use_all = [&] {
      for (auto const& s : streams) memory.deallocate(*s, memory.allocate(*s, 1000), 1000);
    };
    for (int i = 0; i < 300; ++i) use_all();  // their events are made, and there are as many lists as they need
    CHECK(calls_of([&] { use_all(); }) == 4 * count);
    CHECK(sim::calls("cudaEventQuery") == 0);
    CHECK(memory.snapshot().lanes == count);
  }
}

TEST_CASE("streams that go on beside one-shot streams do not have all of those remembered") {
  lazy_world const world;
  sim::set_mode(sim::mode::immediate);
  auto memory = make(device{} | pool{.initial_bytes = 4_MiB});
  std::vector<std::unique_ptr<destroyable_stream>> lasting(2);
  for (auto& s : lasting) s = std::make_unique<destroyable_stream>();
  for (int i = 0; i < 5000; ++i) {
    destroyable_stream const one_shot;
    for (auto const& s : lasting) memory.deallocate(*s, memory.allocate(*s, 1000), 1000);
    memory.deallocate(one_shot, memory.allocate(one_shot, 1000), 1000);
  }
  CHECK(memory.snapshot().lanes <= 12);
  CHECK(memory.snapshot().host_bytes < 1_MiB);
}

TEST_CASE("threads that end leave no memory behind that nobody can have") {
  lazy_world const world;
  sim::set_mode(sim::mode::immediate);
  auto memory = make(device{} | pool{.growth_bytes = 2_MiB});
  for (int i = 0; i < 100; ++i)
    std::thread([&] {
      void* const p = memory.allocate(cudaStreamPerThread, 2_MiB);
      REQUIRE(cudaMemsetAsync(p, 1, 2_MiB, cudaStreamPerThread) == cudaSuccess);
      memory.deallocate(cudaStreamPerThread, p, 2_MiB);
    }).join();
  CHECK(memory.numbers().reserved.current <= 8_MiB);
  CHECK(memory.snapshot().lanes <= 8);
}

TEST_CASE("each thread's default stream is a stream of its own") {
  lazy_world const world;
  queued_checks checks;
  auto memory = make(device{} | pool{.initial_bytes = 2_MiB, .max_bytes = 4_MiB});
  void* const p = memory.allocate(cudaStreamPerThread, 2_MiB);
  fill(cudaStreamPerThread, p, 2_MiB, 1);
  checks.expect(cudaStreamPerThread, p, 2_MiB, 1);
  memory.deallocate(cudaStreamPerThread, p, 2_MiB);
  std::thread([&] {
    void* const q = memory.allocate(cudaStreamPerThread, 2_MiB);
    CHECK(q != p);
    void* const r = memory.allocate(cudaStreamPerThread, 2_MiB);  // only with a wait
    CHECK(r == p);
    fill(cudaStreamPerThread, r, 2_MiB, 2);
    checks.expect(cudaStreamPerThread, r, 2_MiB, 2);
    REQUIRE(cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess);
    memory.deallocate(cudaStreamPerThread, q, 2_MiB);
    memory.deallocate(cudaStreamPerThread, r, 2_MiB);
  }).join();
  sim::run_all();
  CHECK(checks.done() == 2);
  CHECK(checks.wrong() == 0);
}

TEST_CASE("a pool with little live on several streams seldom asks CUDA, as it may hold some MiB more") {
  fresh_world const world;
  auto memory = make(device{} | pool{});
  struct block {
    std::size_t bytes, stream;
    void* p;
  };
  std::vector<weir::stream> streams(8);
  std::vector<block> live(30);
  std::mt19937 random(1);
  auto const fill = [&](block& b) {
    b.bytes = 1 + random() % 64_KiB;
    b.stream = random() % streams.size();
    b.p = memory.allocate(streams[b.stream], b.bytes);
  };
  for (block& b : live) fill(b);
  auto const churn_all = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      block& b = live[random() % live.size()];
      memory.deallocate(streams[b.stream], b.p, b.bytes);
      fill(b);
    }
  };
  churn_all(10'000);
  CHECK(calls_of([&] { churn_all(10'000); }) < 4'000);
  CHECK(memory.numbers().reserved.peak <= memory.numbers().allocated.peak + 8_MiB);
  for (block const& b : live) memory.deallocate(streams[b.stream], b.p, b.bytes);
}

TEST_CASE("a layer below is not asked for more than is needed: it may wait, or have other memory, before it refuses") {
  fresh_world const world;
  auto on_source = make(device{} | pool{});
  auto on_layer = make(device{} | limit{.max_bytes = 1_GiB} | pool{});
  weir::stream const s;
  auto const most_held = [&](auto& memory) {
    std::mt19937 random(1);
    for (int i = 0; i < 5000; ++i) {
      std::size_t const bytes = 1 + random() % 1_MiB;
      memory.deallocate(s, memory.allocate(s, bytes), bytes);
    }
    return memory.numbers().reserved.peak;
  };
  CHECK(most_held(on_source) > 2_MiB);
  CHECK(most_held(on_layer) == 2_MiB);
}

TEST_CASE("a source that fails otherwise while a pool asks for more room than it needs fails no request") {
  fresh_world const world;
  source_state state;
  auto memory = make(source{&state} | pool{});
  weir::stream const s;
  memory.deallocate(s, memory.allocate(s, 1_MiB), 1_MiB);
  state.fail = failing::other;
  std::mt19937 random(1);
  for (int i = 0; i < 5000; ++i) {
    std::size_t const bytes = 1 + random() % 1_MiB;
    void* p = nullptr;
    REQUIRE_NOTHROW(p = memory.allocate(s, bytes));
    memory.deallocate(s, p, bytes);
  }
}

TEST_CASE("where a question for what others have at hand gives one block each time, it is asked less often") {
  fresh_world const world;
  auto memory = make(device{} | pool{.initial_bytes = 8_MiB});
  weir::stream const giver, taker;
  sim::reset_counters();
  for (int i = 0; i < 4000; ++i) {
    memory.deallocate(giver, memory.allocate(giver, 200'000), 200'000);       // one is at hand
    memory.deallocate(host_order, memory.allocate(taker, 200'000), 200'000);  // and now and then goes to the other
  }
  CHECK(sim::calls("cudaEventQuery") > 0);
  CHECK(sim::calls("cudaEventQuery") <= 4000 / 64);
}

namespace {

/// The most that a pool held where a stream frees what others allocate, and is done with that `behind` frees later. The
/// source waits for the device, as cudaMalloc may.
template <class Stream>
std::size_t most_held_behind(std::size_t behind, std::size_t size, std::size_t alignment) {
  lazy_world const world;
  source_state state;
  state.on_allocate = [] { REQUIRE(cudaDeviceSynchronize() == cudaSuccess); };
  auto memory = make(source{&state} | pool{});
  Stream const consumer, producer;
  std::vector<cudaEvent_t> events(behind);
  for (cudaEvent_t& e : events) REQUIRE(cudaEventCreateWithFlags(&e, cudaEventDisableTiming) == cudaSuccess);
  for (std::size_t i = 0; i < 20'000; ++i) {
    cudaEvent_t const e = events[i % behind];
    if (i >= behind) REQUIRE(cudaEventSynchronize(e) == cudaSuccess);
    void* const p = memory.allocate(i % 2 == 0 ? consumer : producer, size, alignment);
    REQUIRE(cudaLaunchHostFunc(
                consumer.get(), [](void*) {}, nullptr) == cudaSuccess);
    REQUIRE(cudaEventRecord(e, consumer.get()) == cudaSuccess);
    memory.deallocate(consumer, p, size, alignment);
  }
  REQUIRE(cudaStreamSynchronize(consumer.get()) == cudaSuccess);
  for (cudaEvent_t const e : events) CHECK(cudaEventDestroy(e) == cudaSuccess);
  return memory.numbers().reserved.peak;
}

}  // namespace

TEST_CASE("what a stream frees that others allocate is found when it is done, however long the stream goes on") {
  CHECK(most_held_behind<destroyable_stream>(300, 64_KiB, 256) <= 4 * 300 * 64_KiB);
  CHECK(most_held_behind<weir::stream>(300, 64_KiB, 256) <= 4 * 300 * 64_KiB);
  CHECK(most_held_behind<weir::stream>(300, 3_MiB, 256) <= 4 * 300 * 3_MiB);
  CHECK(most_held_behind<weir::stream>(300, 700, 2048) <= 16_MiB);
}

TEST_CASE("a free on a stream whose identity cannot be had waits for the stream") {
  lazy_world const world;
  destroyable_stream const s, t;
  queued_checks checks;
  auto memory = make(device{} | pool{.initial_bytes = 2_MiB});
  void* const p = memory.allocate(s, 2_MiB);
  fill(s, p, 2_MiB, 1);
  checks.expect(s, p, 2_MiB, 1);
  sim::fail_call(1, cudaErrorUnknown);
  memory.deallocate(s, p, 2_MiB);
  CHECK(checks.done() == 1);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK(memory.numbers().pending == 0);
  CHECK(memory.allocate(t, 2_MiB) == p);
  memory.deallocate(t, p, 2_MiB);
}

TEST_CASE("a free on a stream that is gone already waits for all work") {
  lazy_world const world;
  queued_checks checks;
  auto memory = make(device{} | pool{.initial_bytes = 2_MiB});
  cudaStream_t s = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
  void* const p = memory.allocate(s, 2_MiB);
  fill(s, p, 2_MiB, 1);
  checks.expect(s, p, 2_MiB, 1);
  REQUIRE(cudaStreamDestroy(s) == cudaSuccess);
  memory.deallocate(s, p, 2_MiB);
  CHECK(checks.done() == 1);
}

TEST_CASE("frees on more new streams than there is room for are still in order") {
  lazy_world const world;
  constexpr int count = 100;
  queued_checks checks;
  std::vector<std::unique_ptr<destroyable_stream>> streams;
  for (int i = 0; i < count; ++i) streams.push_back(std::make_unique<destroyable_stream>());
  auto memory = make(device{} | pool{.initial_bytes = 4_MiB});
  std::vector<void*> blocks;
  for (int i = 0; i < count; ++i) blocks.push_back(memory.allocate(host_order, 1000));
  for (std::size_t i = 0; i < count; ++i) {
    fill(*streams[i], blocks[i], 1000, static_cast<unsigned char>(i));
    checks.expect(*streams[i], blocks[i], 1000, static_cast<unsigned char>(i));
    memory.deallocate(*streams[i], blocks[i], 1000);
  }
  destroyable_stream const t;
  blocks.clear();
  for (std::size_t i = 0; i < 2 * count; ++i) {
    blocks.push_back(memory.allocate(t, 1000));
    fill(t, blocks.back(), 1000, 255);
  }
  t.finish();
  sim::run_all();
  CHECK(checks.done() == count);
  CHECK(checks.wrong() == 0);
  for (void* p : blocks) memory.deallocate(t, p, 1000);
}

TEST_CASE("what is freed on more new streams than there is room for is used again after the work of each") {
  lazy_world const world;
  constexpr std::size_t count = 20;
  queued_checks checks;
  std::vector<std::unique_ptr<destroyable_stream>> streams;
  for (std::size_t i = 0; i < count; ++i) streams.push_back(std::make_unique<destroyable_stream>());
  auto memory = make(device{} | pool{.max_bytes = count * 1_MiB});
  std::vector<void*> blocks;
  for (std::size_t i = 0; i < count; ++i) blocks.push_back(memory.allocate(host_order, 1_MiB));
  for (std::size_t i = 0; i < count; ++i) {
    fill(*streams[i], blocks[i], 1_MiB, static_cast<unsigned char>(i));
    checks.expect(*streams[i], blocks[i], 1_MiB, static_cast<unsigned char>(i));
    memory.deallocate(*streams[i], blocks[i], 1_MiB);
  }
  weir::stream const t;
  for (void*& p : blocks) {
    p = memory.allocate(t, 1_MiB);
    fill(t, p, 1_MiB, 255);
  }
  REQUIRE(cudaStreamSynchronize(t.get()) == cudaSuccess);
  CHECK(checks.done() == count);
  CHECK(checks.wrong() == 0);
  for (void* p : blocks) memory.deallocate(t, p, 1_MiB);
}

TEST_CASE("what is freed on many new streams while a capture is declared can be had once it is done, and given back") {
  lazy_world const world;
  constexpr std::size_t count = 20;
  std::vector<std::unique_ptr<destroyable_stream>> streams;
  for (std::size_t i = 0; i < count; ++i) streams.push_back(std::make_unique<destroyable_stream>());
  bool is_used_again = false;
  SUBCASE("by another stream") { is_used_again = true; }
  SUBCASE("when the pool ends") {}
  source_state state;
  capture_scope const declared;
  {
    auto memory = make(source{&state} | pool{.max_bytes = count * 1_MiB});
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < count; ++i) blocks.push_back(memory.allocate(host_order, 1_MiB));
    for (std::size_t i = 0; i < count; ++i) {
      REQUIRE(cudaLaunchHostFunc(
                  streams[i]->get(), [](void*) {}, nullptr) == cudaSuccess);
      memory.deallocate(*streams[i], blocks[i], 1_MiB);
    }
    sim::run_all();
    weir::stream const t;
    if (is_used_again) {
      for (void*& p : blocks) CHECK_NOTHROW(p = memory.allocate(t, 1_MiB));
      for (void* p : blocks) memory.deallocate(host_order, p, 1_MiB);
    }
  }
  CHECK(state.live_bytes == 0);
}

TEST_CASE("who frees on many new streams at a time waits for none of them, and then has room for as many") {
  lazy_world const world;
  bool they_come_again = false;
  SUBCASE("the same again") { they_come_again = true; }
  SUBCASE("others each time") {}
  auto memory = make(async{} | pool{});
  weir::stream const takes;
  std::vector<std::unique_ptr<destroyable_stream>> streams(40);
  for (int round = 0; round < 4; ++round) {
    for (auto& s : streams)
      if (s == nullptr || !they_come_again) s = std::make_unique<destroyable_stream>();
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < streams.size(); ++i) blocks.push_back(memory.allocate(takes, 1_MiB));
    sim::reset_counters();
    for (std::size_t i = 0; i < streams.size(); ++i) {
      REQUIRE(cudaLaunchHostFunc(
                  streams[i]->get(), [](void*) {}, nullptr) == cudaSuccess);
      memory.deallocate(*streams[i], blocks[i], 1_MiB);
    }
    for (char const* const waits : {"cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize"})
      CHECK(sim::calls(waits) == 0);
    CHECK((sim::calls("cudaStreamWaitEvent") != 0) == (round == 0));
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  }
}

TEST_CASE("a pool waits for its own device, whichever is current when it ends") {
  lazy_world const world;
  queued_checks checks;
  source_state state;
  {
    auto memory = make(source{&state} | pool{.initial_bytes = 2_MiB});
    for (stream_ref const s : {legacy, stream_ref(cudaStreamPerThread)}) {
      void* const p = memory.allocate(s, 1_MiB);
      checks.expect(s, p, 0, 0);
      memory.deallocate(s, p, 1_MiB);
    }
    // And streams that could leave no event behind.
    for (std::uint64_t k = 2; k <= 4; ++k) {
      destroyable_stream const s;
      void* const p = memory.allocate(s, 1000);
      checks.expect(s, p, 0, 0);
      sim::fail_call(k, cudaErrorUnknown);
      memory.deallocate(s, p, 1000);
      sim::clear_failure();
    }
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
  }
  CHECK(checks.done() == 5);
  CHECK(state.live_bytes == 0);
  int device = -1;
  REQUIRE(cudaGetDevice(&device) == cudaSuccess);
  CHECK(device == 1);
}

TEST_CASE("whichever device is current, a stream's frees are ordered by events of its own device") {
  lazy_world const world;
  auto memory = make(device{} | pool{.initial_bytes = 2_MiB});
  destroyable_stream const s, t;
  void* const p = memory.allocate(s, 2_MiB);
  fill(s, p, 2_MiB, 1);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  memory.deallocate(s, p, 2_MiB);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  s.finish();
  CHECK(memory.allocate(t, 2_MiB) == p);
  CHECK(memory.numbers().growths == 1);
  memory.deallocate(t, p, 2_MiB);
}

TEST_CASE("streams of another device are ordered by events of that device") {
  lazy_world const world;
  queued_checks checks;
  auto memory = make(device{} | pool{.initial_bytes = 2_MiB, .pending = when_pending::wait});
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  auto far = std::make_unique<destroyable_stream>();
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  destroyable_stream const near;
  void* const p = memory.allocate(*far, 2_MiB);
  fill(*far, p, 2_MiB, 1);
  checks.expect(*far, p, 2_MiB, 1);
  memory.deallocate(*far, p, 2_MiB);
  far.reset();
  CHECK(memory.allocate(near, 2_MiB) == p);
  CHECK(memory.numbers().growths == 1);
  CHECK(memory.numbers().synchronizations == 0);
  fill(near, p, 2_MiB, 2);
  checks.expect(near, p, 2_MiB, 2);
  near.finish();
  sim::run_all();
  CHECK(checks.wrong() == 0);
  memory.deallocate(near, p, 2_MiB);
}

// The order of every reuse shows in what the memory holds: a block's writer finds it changed if the pool gave it away
// before, or took it from somebody too early. Streams run in an order as unlike that of the calls as CUDA allows.
TEST_CASE("random work on many streams of all kinds never sees another's bytes") {
  struct block {
    void* p;
    std::size_t bytes, alignment;
    unsigned char value;
    std::size_t stream;
  };
  for (unsigned seed = 1; seed <= 24; ++seed) {
    CAPTURE(seed);
    lazy_world const world;
    std::mt19937 random(seed);
    auto const below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    queued_checks checks;
    weir::stream const lasting[2];
    std::vector<cudaStream_t> destroyable(5);
    for (auto& s : destroyable)
      REQUIRE(cudaStreamCreateWithFlags(&s, seed % 3 ? cudaStreamNonBlocking : 0u) == cudaSuccess);
    auto const stream_at = [&](std::size_t i) -> stream_ref {
      if (i < destroyable.size()) return destroyable[i];
      if (i < destroyable.size() + 2) return lasting[i - destroyable.size()];
      return i == destroyable.size() + 2 ? stream_ref(cudaStreamPerThread) : legacy;
    };
    auto memory = make(device{} | pool{.initial_bytes = 256_KiB,
                                       .max_bytes = seed % 4 == 0 ? 0 : 1_MiB,
                                       .growth_bytes = 64_KiB,
                                       .max_split_bytes = seed % 5 == 0 ? 1_MiB : 0,
                                       .release_threshold = seed % 7 == 0 ? 512_KiB : ~std::size_t{0},
                                       .pending = seed % 2 ? when_pending::wait : when_pending::grow,
                                       .synchronize = seed % 6 != 0});
    std::vector<block> blocks;
    std::size_t requested = 0;
    for (int step = 0; step < 1500; ++step) {
      std::size_t const i = below(destroyable.size() + 4);
      switch (below(12)) {
        case 0:
        case 1:
        case 2:
        case 3:
        case 4: {
          std::size_t const bytes = 1 + below(std::size_t{1} << (4 + below(14)));
          std::size_t const alignment = std::size_t{1} << below(14);
          try {
            void* const p = memory.allocate(stream_at(i), bytes, alignment);
            REQUIRE(reinterpret_cast<std::uintptr_t>(p) % std::max(alignment, default_alignment) == 0);
            for (block const& b : blocks)
              REQUIRE((static_cast<std::byte*>(p) + bytes <= b.p || static_cast<std::byte*>(b.p) + b.bytes <= p));
            blocks.push_back({p, bytes, alignment, static_cast<unsigned char>(step), i});
            requested += bytes;
            fill(stream_at(i), p, bytes, blocks.back().value);
          } catch (out_of_memory const&) {
          }
          break;
        }
        case 5:
        case 6:
        case 7:
        case 8:
          if (!blocks.empty()) {
            std::swap(blocks[below(blocks.size())], blocks.back());
            block const b = blocks.back();
            blocks.pop_back();
            checks.expect(stream_at(b.stream), b.p, b.bytes, b.value);
            memory.deallocate(stream_at(b.stream), b.p, b.bytes, b.alignment);
            requested -= b.bytes;
          }
          break;
        case 9:
          REQUIRE(cudaStreamSynchronize(stream_at(i).get()) == cudaSuccess);
          break;
        case 10:
          if (below(20) == 0) memory.synchronize();
          if (below(20) == 0) memory.trim(below(1_MiB));
          break;
        default:
          // A stream ends, and a new one takes its place and perhaps its handle. Its blocks go on to others, in order.
          if (i < destroyable.size()) {
            for (block& b : blocks)
              if (b.stream == i) {
                REQUIRE(cudaStreamSynchronize(destroyable[i]) == cudaSuccess);
                b.stream = destroyable.size();
              }
            REQUIRE(cudaStreamDestroy(destroyable[i]) == cudaSuccess);
            REQUIRE(cudaStreamCreateWithFlags(&destroyable[i], cudaStreamNonBlocking) == cudaSuccess);
          }
      }
      pool_numbers const n = memory.numbers();
      REQUIRE(n.requested.current == requested);
      REQUIRE(n.allocated.current + n.free + n.pending == n.reserved.current);
      REQUIRE(checks.wrong() == 0);
    }
    for (block const& b : blocks) {
      checks.expect(stream_at(b.stream), b.p, b.bytes, b.value);
      memory.deallocate(stream_at(b.stream), b.p, b.bytes, b.alignment);
    }
    std::vector<std::size_t> order(destroyable.size() + 4);
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    for (std::size_t const i : order) REQUIRE(cudaStreamSynchronize(stream_at(i).get()) == cudaSuccess);
    sim::run_all();  // what streams that ended had left
    REQUIRE(checks.done() == static_cast<int>(checks.queued()));
    REQUIRE(checks.wrong() == 0);
    for (cudaStream_t s : destroyable) REQUIRE(cudaStreamDestroy(s) == cudaSuccess);
    memory.synchronize();
    memory.trim();
    CHECK(memory.numbers().reserved.current == 0);
    CHECK(sim::live_bytes(0) == 0);
  }
}

TEST_CASE("a stream whose device CUDA did not say at first is waited for on its own device") {
  for (std::uint64_t failing = 1; failing <= 6; ++failing) {
    CAPTURE(failing);
    lazy_world const world;
    sim::check_order(true);
    auto memory = make(device{.device = 0} | pool{.max_bytes = 2_MiB} | checked{"pool"});
    device_guard const elsewhere(1);
    destroyable_stream const far;
    sim::fail_call(failing, cudaErrorUnknown);
    void* p = nullptr;
    try {
      p = memory.allocate(far.get(), 2_MiB);
    } catch (std::exception const&) {  // a call without which there is no memory
    }
    sim::clear_failure();
    if (p == nullptr) continue;
    sim::touch(far.get(), p, 2_MiB, sim::access::write);
    memory.deallocate(far.get(), p, 2_MiB);
    device_guard const back(0);
    weir::stream const near;
    void* const q = memory.allocate(near, 2_MiB);
    sim::touch(near.get(), q, 2_MiB, sim::access::write);
    memory.deallocate(near, q, 2_MiB);
    CHECK(sim::report_count() == 0);
  }
}

TEST_CASE("what a call costs does not grow with the number of streams that have freed memory") {
  lazy_world const world;
  source_state state;
  {
    auto memory = make(source{&state} | pool{});
    std::vector<std::unique_ptr<destroyable_stream>> streams(600);
    std::uint64_t most = 0;
    for (auto& s : streams) {
      s = std::make_unique<destroyable_stream>();
      REQUIRE(cudaLaunchHostFunc(
                  s->get(), [](void*) {}, nullptr) == cudaSuccess);
      sim::reset_counters();
      memory.deallocate(*s, memory.allocate(*s, 1_MiB), 1_MiB);
      most = std::max(most, sim::calls());
    }
    CHECK(memory.snapshot().lanes == streams.size());
    CHECK(most < 200);
  }
  CHECK(state.live_bytes == 0);
}

TEST_CASE("with very many streams, all of whose work is done, a pool holds as little as with few") {
  lazy_world const world;
  sim::set_mode(sim::mode::immediate);
  auto const most_held = [](std::size_t count) {
    auto memory = make(device{} | pool{});
    std::vector<stream> const streams(count);
    std::mt19937 random(1);
    struct block {
      void* p;
      std::size_t bytes, stream;
    };
    std::vector<block> live(200);
    auto const allocate = [&](block& b) {
      b.bytes = 1 + random() % 100'000;
      b.stream = random() % count;
      b.p = memory.allocate(streams[b.stream], b.bytes);
    };
    for (block& b : live) allocate(b);
    for (int i = 0; i < 20'000; ++i) {
      block& b = live[random() % live.size()];
      memory.deallocate(streams[b.stream], b.p, b.bytes);
      allocate(b);
    }
    for (block& b : live) memory.deallocate(streams[b.stream], b.p, b.bytes);
    return memory.numbers().reserved.peak;
  };
  CHECK(most_held(500) <= most_held(4) + 2 * 16_MiB);  // so much may lie idle in any pool, and a step may pass that
}

TEST_CASE("before a request is refused, every stream is looked at") {
  lazy_world const world;
  source_state state;
  constexpr std::size_t count = 200;
  auto memory = make(source{&state} | pool{.growth_bytes = 2_MiB, .synchronize = false});
  std::vector<std::unique_ptr<destroyable_stream>> streams(count);
  std::vector<void*> blocks(count);
  for (std::size_t i = 0; i < count; ++i) {
    streams[i] = std::make_unique<destroyable_stream>();
    blocks[i] = memory.allocate(*streams[i], 1_MiB);
    memory.deallocate(*streams[i], memory.allocate(*streams[i], 256), 256);  // so that the pool remembers the stream
  }
  CHECK(memory.snapshot().lanes == count);
  state.fail = failing::out_of_memory;
  SUBCASE("for what is done") {
    for (std::size_t i = 0; i < count; ++i) {
      memory.deallocate(*streams[i], blocks[i], 1_MiB);
      streams[i]->finish();
      blocks[i] = memory.allocate(host_order, 1_MiB);
    }
    CHECK(memory.numbers().waits == 0);
  }
  SUBCASE("for what can be waited for") {
    destroyable_stream const other;
    for (std::size_t i = 0; i < count; ++i) {
      memory.deallocate(*streams[i], blocks[i], 1_MiB);
      blocks[i] = memory.allocate(other, 1_MiB);
    }
    CHECK(memory.numbers().waits > count / 2);  // a few come with a neighbour that was waited for
  }
  CHECK(memory.numbers().out_of_memory == 0);
  for (void* const p : blocks) memory.deallocate(host_order, p, 1_MiB);
}
