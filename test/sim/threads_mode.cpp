// needs: tsan
// Threads mode: streams are at work while the program goes on.

#include "support.hpp"

#include <weir/sim/sim.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <latch>
#include <mutex>
#include <thread>
#include <vector>

using namespace sim_test;

namespace {

/// A semaphore. Not the standard one, which reads `errno` when it has waited: the thread sanitizer takes that, in a
/// stream, for a race with the thread that the stream is worked on by.
class flag {
 public:
  void release(int times = 1) {
    std::lock_guard const lock(mutex_);
    count_ += times;
    changed_.notify_all();
  }
  void acquire() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return count_ > 0; });
    --count_;
  }
  bool try_acquire_for(std::chrono::minutes time) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, time, [this] { return count_ > 0; })) return false;
    --count_;
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};
void set(void* what) { static_cast<flag*>(what)->release(); }
void wait_for(void* what) { static_cast<flag*>(what)->acquire(); }

/// Fails instead of waiting for ever.
void await(flag& f) { REQUIRE(f.try_acquire_for(std::chrono::minutes(1))); }

struct fresh_with_threads : fresh {
  fresh_with_threads() { sim::set_mode(sim::mode::threads); }
  ~fresh_with_threads() { go_on.release(10); }  // a test that failed leaves nothing that waits

  /// A host function that has begun, and goes on when `go_on` is set.
  void hold_up(cudaStream_t stream) {
    ok(cudaLaunchHostFunc(stream, set, &begun));
    ok(cudaLaunchHostFunc(stream, wait_for, &go_on));
    await(begun);
  }

  flag begun, go_on;
};

}  // namespace

TEST_CASE_FIXTURE(fresh_with_threads, "what is queued runs though nobody waits for it") {
  flag reached;
  ok(cudaLaunchHostFunc(make_stream(), set, &reached));
  await(reached);
}

TEST_CASE_FIXTURE(fresh_with_threads, "two streams are at work at once") {
  std::latch both(2);
  auto const meet = [](void* l) { static_cast<std::latch*>(l)->arrive_and_wait(); };
  cudaStream_t const a = make_stream(), b = make_stream();
  ok(cudaLaunchHostFunc(a, meet, &both));
  ok(cudaLaunchHostFunc(b, meet, &both));
  ok(cudaStreamSynchronize(a));
  ok(cudaStreamSynchronize(b));
  CHECK(both.try_wait());
}

TEST_CASE_FIXTURE(fresh_with_threads, "a stream that hangs holds up neither the others nor the program") {
  flag reached;
  cudaStream_t const slow = make_stream(), other = make_stream();
  hold_up(slow);
  ok(cudaLaunchHostFunc(other, set, &reached));
  await(reached);
  ok(cudaStreamSynchronize(other));
  CHECK_EQ(cudaStreamQuery(slow), cudaErrorNotReady);
  go_on.release();
  ok(cudaStreamSynchronize(slow));
  CHECK_EQ(cudaStreamQuery(slow), cudaSuccess);
}

TEST_CASE_FIXTURE(fresh_with_threads, "streams keep their order, and what events and the legacy stream add to it") {
  cudaStream_t const a = make_stream(), b = make_stream(), blocking = make_stream(cudaStreamDefault);
  cudaEvent_t const end = make_event();
  diary first, second;  // each is written by one stream at a time
  for (int i = 0; i < 200; ++i) {
    first.mark(a, i);
    ok(cudaEventRecord(end, a));
    ok(cudaStreamWaitEvent(b, end, 0));
    first.mark(b, 1000 + i);
    ok(cudaEventRecord(end, b));
    ok(cudaStreamWaitEvent(a, end, 0));
    second.mark(blocking, i);
    second.mark(cudaStreamLegacy, 1000 + i);
  }
  ok(cudaDeviceSynchronize());
  numbers expected;
  for (int i = 0; i < 200; ++i) expected.push_back(i), expected.push_back(1000 + i);
  CHECK_EQ(first.reached(), expected);
  CHECK_EQ(second.reached(), expected);
}

TEST_CASE_FIXTURE(fresh_with_threads, "memory is written and freed in stream order, by many threads") {
  constexpr std::size_t bytes = 1000;
  std::vector<std::thread> programs;
  std::atomic<int> wrong = 0;
  for (unsigned char t = 0; t < 4; ++t)
    programs.emplace_back([t, &wrong] {
      cudaStream_t s = nullptr;
      wrong += cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) != cudaSuccess;
      for (int i = 0; i < 100; ++i) {
        void* p = nullptr;
        std::vector<unsigned char> copy(bytes);
        wrong += cudaMallocAsync(&p, bytes, s) != cudaSuccess;
        wrong += cudaMemsetAsync(p, t, bytes, s) != cudaSuccess;
        wrong += cudaMemcpyAsync(copy.data(), p, bytes, cudaMemcpyDeviceToHost, s) != cudaSuccess;
        wrong += cudaFreeAsync(p, s) != cudaSuccess;
        wrong += cudaStreamSynchronize(s) != cudaSuccess;
        wrong += copy != std::vector<unsigned char>(bytes, t);
      }
      wrong += cudaStreamDestroy(s) != cudaSuccess;
    });
  for (std::thread& p : programs) p.join();
  CHECK_EQ(wrong, 0);
  CHECK_EQ(sim::live_allocations(), 0);
}

TEST_CASE_FIXTURE(fresh_with_threads, "another mode takes over what is left") {
  diary d;
  cudaStream_t const s = make_stream();
  hold_up(s);
  for (int i = 0; i < 3; ++i) d.mark(s, i);
  go_on.release();
  sim::set_mode(sim::mode::lazy);
  d.mark(s, 3);
  CHECK_EQ(cudaStreamQuery(s), cudaErrorNotReady);
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(d.reached(), numbers{0, 1, 2, 3});
}

TEST_CASE_FIXTURE(fresh_with_threads, "a graph and a failure that stays") {
  cudaStream_t const s = make_stream();
  diary d;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t execution = nullptr;
  ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  d.mark(s, 1);
  ok(cudaStreamEndCapture(s, &graph));
  ok(cudaGraphInstantiate(&execution, graph, 0));
  ok(cudaGraphLaunch(execution, s));
  ok(cudaGraphLaunch(execution, s));
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(d.reached(), numbers{1, 1});
  sim::fail_from(1, cudaErrorLaunchFailure);
  CHECK_EQ(cudaGraphLaunch(execution, s), cudaErrorLaunchFailure);
  sim::clear_failure();
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(d.reached(), numbers{1, 1});
  ok(cudaGraphExecDestroy(execution));
  ok(cudaGraphDestroy(graph));
}

TEST_CASE_FIXTURE(fresh_with_threads, "who waits goes on to wait when another thread changes the mode") {
  for (sim::mode const next : {sim::mode::lazy, sim::mode::immediate, sim::mode::random, sim::mode::pct}) {
    sim::set_mode(sim::mode::threads);
    diary d;
    cudaStream_t const s = make_stream();
    hold_up(s);
    d.mark(s, 1);
    std::thread waits([&] { CHECK_EQ(cudaStreamSynchronize(s), cudaSuccess); });
    std::thread changes([&] { sim::set_mode(next); });
    std::thread changes_too([&] { sim::set_mode(next); });
    go_on.release();
    for (std::thread* t : {&waits, &changes, &changes_too}) t->join();
    CHECK_EQ(d.reached(), numbers{1});
    ok(cudaStreamDestroy(s));
  }
}

TEST_CASE_FIXTURE(fresh_with_threads, "the threads begin when nobody else is at work") {
  sim::set_mode(sim::mode::lazy);
  diary d;
  cudaStream_t const s = make_stream();
  ok(cudaLaunchHostFunc(s, set, &begun));
  ok(cudaLaunchHostFunc(s, wait_for, &go_on));
  for (int i = 0; i < 3; ++i) d.mark(s, i);
  std::thread waits([&] { CHECK_EQ(cudaStreamSynchronize(s), cudaSuccess); });
  await(begun);
  ok(cudaStreamDestroy(s));
  std::thread changes([] { sim::set_mode(sim::mode::threads); });
  go_on.release();
  waits.join();
  changes.join();
  CHECK_EQ(d.reached(), numbers{0, 1, 2});
}

namespace {

/// Two host functions that each wait for the other to begin.
struct meeting {
  flag one_is_there, other_is_there;

  static void one(void* m) {
    static_cast<meeting*>(m)->one_is_there.release();
    static_cast<meeting*>(m)->other_is_there.acquire();
  }
  static void other(void* m) {
    static_cast<meeting*>(m)->one_is_there.acquire();
    static_cast<meeting*>(m)->other_is_there.release();
  }
};

}  // namespace

TEST_CASE_FIXTURE(fresh_with_threads, "two host functions that meet do so though the mode ends") {
  meeting both;
  cudaStream_t const a = make_stream(), b = make_stream();
  hold_up(b);  // so that the second is still queued
  ok(cudaLaunchHostFunc(b, meeting::other, &both));
  ok(cudaLaunchHostFunc(a, meeting::one, &both));
  std::thread ends([] { sim::set_mode(sim::mode::immediate); });
  go_on.release();
  ends.join();
  CHECK_EQ(cudaStreamQuery(a), cudaSuccess);
  CHECK_EQ(cudaStreamQuery(b), cudaSuccess);
}

TEST_CASE_FIXTURE(fresh_with_threads, "host functions that are queued when the mode ends may meet too") {
  for (int i = 0; i < 50; ++i) {
    sim::set_mode(sim::mode::threads);
    meeting both;
    cudaStream_t const a = make_stream(), b = make_stream();
    hold_up(b);
    cudaEvent_t const held_up = make_event();
    ok(cudaEventRecord(held_up, b));
    ok(cudaStreamWaitEvent(a, held_up, 0));  // so that neither has begun
    ok(cudaLaunchHostFunc(a, meeting::one, &both));
    ok(cudaLaunchHostFunc(b, meeting::other, &both));
    std::thread ends([] { sim::set_mode(sim::mode::immediate); });
    for (int k = 0; k < 50; ++k) std::this_thread::yield();  // as a rule the mode is ending then
    go_on.release();
    ends.join();
    CHECK_EQ(cudaStreamQuery(a), cudaSuccess);
    CHECK_EQ(cudaStreamQuery(b), cudaSuccess);
  }
}
