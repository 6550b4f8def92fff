// needs: tsan
// Whatever one thread waits for inside a pool, others go on: no lock is held across what blocks.
#include <weir/adaptors/arena.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/device.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "support/streams_at_work.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

/// A door: who comes to it is seen, and waits until it is opened.
class door {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    somebody_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void wait_for_somebody() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return somebody_; });
  }
  void open() {
    std::lock_guard const lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool somebody_ = false, open_ = false;
};

/// Runs `blocks` in a thread until it stands at the door, then `goes_on` in another, and only then opens the door.
/// False if `goes_on` did not end while the door was closed.
template <class Blocks, class GoesOn>
bool goes_on_behind(door& d, Blocks blocks, GoesOn goes_on) {
  std::thread blocked(blocks);
  d.wait_for_somebody();
  auto other = std::async(std::launch::async, goes_on);
  // Far longer than it takes: only a thread that is stuck is still there then.
  bool const went_on = other.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  d.open();
  blocked.join();
  other.get();
  return went_on;
}

/// A source whose calls wait at a door from some time on.
struct guarded_state {
  source_state inner;
  door* at_allocate = nullptr;
};
class guarded_resource : public source_resource {
 public:
  explicit guarded_resource(guarded_state& state) : source_resource(state.inner), state_(&state) {}
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    if (state_->at_allocate != nullptr) state_->at_allocate->pass();
    return source_resource::allocate(stream, bytes, alignment);
  }

 private:
  guarded_state* state_;
};
struct guarded {
  guarded_state* state;
  guarded_resource operator()() const { return guarded_resource(*state); }
};

template <class Memory>
void use(Memory& memory, stream_ref stream) {
  for (int i = 0; i < 100; ++i) memory.deallocate(stream, memory.allocate(stream, 1000), 1000);
}

/// Work on a stream that waits at a door.
void queue(stream_ref stream, door& d) {
  REQUIRE(cudaLaunchHostFunc(
              stream.get(), [](void* at) { static_cast<door*>(at)->pass(); }, &d) == cudaSuccess);
}

}  // namespace

TEST_CASE("while a thread grows the pool, others find memory") {
  guarded_state state;
  weir::stream const a, b;
  auto memory = make(guarded{&state} | pool{.initial_bytes = 4_MiB});
  use(memory, b);
  door d;
  state.at_allocate = &d;
  void* large = nullptr;
  CHECK(goes_on_behind(
      d, [&] { large = memory.allocate(a, 64_MiB); }, [&] { use(memory, b); }));
  memory.deallocate(a, large, 64_MiB);
}

TEST_CASE("while a thread gives memory back, others find memory") {
  source_state state;
  weir::stream const b;
  auto memory = make(source{&state} | pool{.growth_bytes = 2_MiB});
  void* const kept = memory.allocate(b, 1_MiB);
  memory.deallocate(host_order, memory.allocate(b, 8_MiB), 8_MiB);
  door d;
  bool closed = true;  // only the first comes to the door
  state.on_deallocate = [&] {
    if (std::exchange(closed, false)) d.pass();
  };
  CHECK(goes_on_behind(
      d, [&] { memory.trim(); }, [&] { use(memory, b); }));
  state.on_deallocate = nullptr;
  memory.deallocate(b, kept, 1_MiB);
}

TEST_CASE("while a thread waits for all work on freed memory, others allocate and free") {
  lazy_world const world;
  weir::stream const a, b;
  auto memory = make(device{} | pool{.initial_bytes = 4_MiB});
  use(memory, b);
  void* const p = memory.allocate(a, 1000);
  door d;
  queue(a, d);
  memory.deallocate(a, p, 1000);
  CHECK(goes_on_behind(
      d, [&] { memory.synchronize(); }, [&] { use(memory, b); }));
}

TEST_CASE("while a thread that is out of memory waits for a stream, others allocate and free") {
  lazy_world const world;
  weir::stream const a, b;
  auto memory = make(device{} | pool{.initial_bytes = 4_MiB, .max_bytes = 4_MiB});
  void* const p = memory.allocate(a, 3_MiB);
  use(memory, b);
  door d;
  queue(a, d);
  memory.deallocate(a, p, 3_MiB);
  void* q = nullptr;
  // In host order, since a stream would wait on the device instead.
  CHECK(goes_on_behind(
      d, [&] { q = memory.allocate(host_order, 3_MiB); }, [&] { use(memory, b); }));
  CHECK(q != nullptr);
  memory.deallocate(host_order, q, 3_MiB);
}

namespace {

/// Waits in host order for the work on `first`, which another thread is faster to have again; that one frees `second`
/// then, which serves after one more wait. Both have 3 MiB, the first of `a`, the other of `b`.
template <class Memory>
void be_slower(Memory& memory, stream_ref a, stream_ref b, void* first, void* second) {
  door d, never_closed;
  never_closed.open();
  queue(a, d);
  queue(b, never_closed);
  memory.deallocate(a, first, 3_MiB);
  void *faster = nullptr, *slower = nullptr;
  CHECK(goes_on_behind(
      d, [&] { slower = memory.allocate(host_order, 3_MiB); },
      [&] {
        faster = memory.allocate(a, 3_MiB);
        memory.deallocate(b, second, 3_MiB);
      }));
  CHECK(slower != nullptr);
  memory.deallocate(a, faster, 3_MiB);
  memory.deallocate(host_order, slower, 3_MiB);
}

}  // namespace

TEST_CASE("a thread that waited in vain, since another one was faster, waits for what that one freed") {
  lazy_world const world;
  weir::stream const a, b;
  auto memory = make(device{} | pool{.initial_bytes = 7_MiB, .max_bytes = 7_MiB});
  use(memory, b);  // so that its list comes first
  void* const first = memory.allocate(a, 3_MiB);
  void* const second = memory.allocate(b, 3_MiB);
  be_slower(memory, a, b, first, second);
  CHECK(memory.numbers().out_of_memory == 0);
}

TEST_CASE("so does a thread that waited for all arenas in vain") {
  lazy_world const world;
  weir::stream const a, b;
  auto memory = make(device{} | arena{.max_bytes = 8_MiB, .growth_bytes = 4_MiB, .max_arenas = 1});
  memory.deallocate(b, memory.allocate(b, 3_MiB), 3_MiB);  // so that its list comes first
  void* const second = memory.allocate(b, 3_MiB);
  void* const first = memory.allocate(a, 3_MiB);
  be_slower(memory, a, b, first, second);
}

TEST_CASE("a thread that waited in vain has what another one gave back meanwhile") {
  lazy_world const world;
  weir::stream const a, b;
  source_state state;
  auto memory = make(source{&state} | pool{.max_bytes = 6_MiB, .growth_bytes = 2_MiB});
  void* const kept = memory.allocate(a, 2_MiB);
  void* const pending = memory.allocate(a, 2_MiB);
  void* const idle = memory.allocate(b, 2_MiB);
  door d;
  queue(a, d);
  memory.deallocate(a, pending, 2_MiB);
  void *own = nullptr, *slower = nullptr;
  CHECK(goes_on_behind(
      d, [&] { slower = memory.allocate(host_order, 2_MiB); },
      [&] {
        own = memory.allocate(a, 2_MiB);
        memory.deallocate(host_order, idle, 2_MiB);
        memory.trim();
      }));
  CHECK(slower != nullptr);
  CHECK(memory.numbers().out_of_memory == 0);
  for (void* const p : {kept, own}) memory.deallocate(a, p, 2_MiB);
  memory.deallocate(host_order, slower, 2_MiB);
}

TEST_CASE("while one arena's thread waits, another's goes on") {
  lazy_world const world;
  weir::stream const a, b;
  auto memory = make(device{} | arena{});
  door d;
  CHECK(goes_on_behind(
      d,
      [&] {
        void* const p = memory.allocate(a, 1000);
        queue(a, d);
        memory.deallocate(a, p, 1000);
        memory.synchronize();
      },
      [&] { use(memory, b); }));
}
