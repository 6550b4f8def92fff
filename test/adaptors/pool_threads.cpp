// needs: tsan
// The pool under threads: streams of their own, streams they share, blocks that change hands, and a limit.
#include <weir/adaptors/pool.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/device.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "support/streams_at_work.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

constexpr int thread_count = 8;

void run_threads(int count, auto work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(work, i);
  for (auto& thread : threads) thread.join();
}

struct block {
  void* p;
  std::size_t bytes;
};

/// A source that takes its time to free, as CUDA does.
class slow_source_resource : public source_resource {
 public:
  using source_resource::source_resource;
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    for (int i = 0; i < 20; ++i) std::this_thread::yield();
    source_resource::deallocate(stream, p, bytes, alignment);
  }
};
struct slow_source {
  source_state* state;
  slow_source_resource operator()() const { return slow_source_resource(*state); }
};

/// Every block is written by its owner alone; another one's write would be a data race, and change the value.
template <class Pool, class StreamOf>
void traffic(Pool& memory, int thread, int steps, StreamOf stream_of, std::atomic<int>& wrong) {
  std::mt19937 random(static_cast<unsigned>(thread) + 1);
  std::vector<block> mine;
  auto const value = static_cast<unsigned char>(thread + 1);
  auto const give = [&](stream_ref stream, block b) {
    auto const* const bytes = static_cast<unsigned char const*>(b.p);
    if (bytes[0] != value || bytes[b.bytes - 1] != value) ++wrong;
    memory.deallocate(stream, b.p, b.bytes);
  };
  for (int step = 0; step < steps; ++step) {
    stream_ref const stream = stream_of(thread, step);
    if (random() % 2 == 0 || mine.empty()) {
      std::size_t const bytes = 1 + random() % 20'000;
      try {
        void* const p = memory.allocate(stream, bytes);
        std::fill_n(static_cast<unsigned char*>(p), bytes, value);
        mine.push_back({p, bytes});
      } catch (out_of_memory const&) {
      }
    } else {
      std::swap(mine[random() % mine.size()], mine.back());
      give(stream, mine.back());
      mine.pop_back();
    }
  }
  for (block const b : mine) give(stream_of(thread, 0), b);
}

}  // namespace

TEST_CASE("threads on streams of their own never share a byte") {
  sim::reset();
  source_state state;
  std::atomic<int> wrong{0};
  {
    auto memory = make(source{&state} | pool{});
    std::vector<weir::stream> streams(thread_count);
    run_threads(thread_count, [&](int thread) {
      traffic(
          memory, thread, 2000, [&](int t, int) -> stream_ref { return streams[static_cast<std::size_t>(t)]; }, wrong);
    });
    pool_numbers const n = memory.numbers();
    CHECK(n.allocated.current == 0);
    CHECK(n.requested.current == 0);
    CHECK(n.allocations == n.deallocations);
    CHECK(n.reserved.current == state.live_bytes);
  }
  CHECK(wrong == 0);
  CHECK(state.live_bytes == 0);
}

TEST_CASE("threads that share streams, and use each other's, never share a byte") {
  sim::reset();
  source_state state;
  std::atomic<int> wrong{0};
  {
    auto memory = make(source{&state} | pool{.max_bytes = 4_MiB, .pending = when_pending::wait});
    destroyable_stream const shared[3];
    weir::stream const lasting;
    auto const any = [&](int thread, int step) -> stream_ref {
      switch ((thread + step) % 6) {
        case 0:
          return cudaStreamLegacy;
        case 1:
          return cudaStreamPerThread;
        case 2:
          return lasting;
        default:
          return shared[(thread + step) % 3];
      }
    };
    run_threads(thread_count, [&](int thread) { traffic(memory, thread, 1500, any, wrong); });
    CHECK(memory.numbers().allocated.current == 0);
  }
  CHECK(wrong == 0);
  CHECK(state.live_bytes == 0);
}

TEST_CASE("streams that come and go in every thread neither leak nor pile up") {
  sim::reset();
  {
    auto memory = make(device{} | pool{.initial_bytes = 16_MiB});
    run_threads(thread_count, [&](int) {
      for (int i = 0; i < 200; ++i) {
        destroyable_stream const s;
        void* const p = memory.allocate(s, 10'000);
        cudaMemsetAsync(p, 1, 10'000, s.get());
        memory.deallocate(s, p, 10'000);
      }
    });
    CHECK(memory.snapshot().lanes <= 4 * thread_count);
    CHECK(memory.numbers().growths == 1);
  }
  CHECK(sim::calls("cudaEventCreateWithFlags") == sim::calls("cudaEventDestroy"));
  CHECK(sim::live_bytes(0) == 0);
}

TEST_CASE("what one thread allocates another may free") {
  sim::reset();
  source_state state;
  {
    auto memory = make(source{&state} | pool{});
    std::mutex mutex;
    std::vector<block> handed_over;
    std::atomic<int> freed{0};
    run_threads(thread_count, [&](int thread) {
      weir::stream const stream;
      for (int i = 0; i < 1000; ++i) {
        if (thread % 2 == 0) {
          block const b{memory.allocate(stream, 1000), 1000};
          std::lock_guard const lock(mutex);
          handed_over.push_back(b);
        } else {
          block b{};
          {
            std::lock_guard const lock(mutex);
            if (handed_over.empty()) continue;
            b = handed_over.back();
            handed_over.pop_back();
          }
          memory.deallocate(stream, b.p, b.bytes);
          ++freed;
        }
      }
    });
    for (block const b : handed_over) memory.deallocate(host_order, b.p, b.bytes);
    CHECK(memory.numbers().deallocations == thread_count / 2 * 1000);
    CHECK(memory.numbers().requested.current == 0);
  }
  CHECK(state.live_bytes == 0);
}

TEST_CASE("max_bytes is never exceeded, while threads grow the pool, run it dry and trim it") {
  sim::reset();
  source_state state;
  {
    auto memory = make(slow_source{&state} | pool{.max_bytes = 8_MiB, .growth_bytes = 2_MiB});
    std::atomic<int> refused{0};
    run_threads(thread_count, [&](int thread) {
      std::vector<block> mine;
      for (int i = 0; i < 300; ++i) {
        std::size_t const bytes = (i + thread) % 5 == 0 ? 3_MiB : 700'000;
        try {
          mine.push_back({memory.allocate(host_order, bytes), bytes});
        } catch (out_of_memory const&) {
          ++refused;
        }
        if (mine.size() > 2 || i % 3 == 0) {
          for (block const b : mine) memory.deallocate(host_order, b.p, b.bytes);
          mine.clear();
        }
        if (i % 10 == thread) memory.trim(static_cast<std::size_t>(i % 4) * 2_MiB);
        if (i % 25 == thread) memory.synchronize();
      }
      for (block const b : mine) memory.deallocate(host_order, b.p, b.bytes);
    });
    CHECK(state.peak_bytes <= 8_MiB);
    CHECK(memory.numbers().out_of_memory == static_cast<std::uint64_t>(refused));
    CHECK(memory.numbers().allocated.current == 0);
    CHECK(memory.numbers().reserved.current == state.live_bytes);
    memory.trim();
    CHECK(state.live_bytes == 0);
  }
  CHECK(state.live_bytes == 0);
}

TEST_CASE("a request is not refused because another thread is just giving memory back") {
  sim::reset();
  source_state state;
  std::atomic<int> refused{0};
  {
    // Each always has room, but only while what the other one trims does not count as held for good.
    auto memory = make(slow_source{&state} | pool{.max_bytes = 8_MiB, .growth_bytes = 2_MiB, .max_split_bytes = 3_MiB});
    run_threads(2, [&](int thread) {
      std::size_t const bytes = thread == 0 ? 2_MiB - 256 : 6_MiB;
      for (int i = 0; i < 300; ++i) {
        try {
          memory.deallocate(host_order, memory.allocate(host_order, bytes), bytes);
        } catch (out_of_memory const&) {
          ++refused;
        }
        if (thread == 0) memory.trim();
      }
    });
  }
  CHECK(refused == 0);
  CHECK(state.peak_bytes <= 8_MiB);
}

TEST_CASE("numbers can be read while threads work, and always balance") {
  sim::reset();
  source_state state;
  auto memory = make(source{&state} | pool{});
  std::vector<weir::stream> streams(4);
  std::atomic<int> wrong{0}, running{4};
  run_threads(5, [&](int thread) {
    if (thread < 4) {
      traffic(
          memory, thread, 2000, [&](int t, int) -> stream_ref { return streams[static_cast<std::size_t>(t)]; }, wrong);
      --running;
      return;
    }
    while (running != 0) {
      pool_numbers const n = memory.snapshot().numbers;
      if (n.reserved.current != n.allocated.current + n.free + n.pending) ++wrong;
      if (n.requested.current > n.allocated.current || n.allocated.current > n.allocated.peak) ++wrong;
    }
  });
  CHECK(wrong == 0);
}
