// needs: tsan
#include <weir/adaptors/arena.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/host.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <semaphore>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "support/captures.hpp"
#include "support/sim_fixture.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

using arenas = arena_resource<source_resource>;
static_assert(resource<arenas>);
static_assert(device_accessible<arenas> && host_accessible<arenas> && host_ordered<arenas>);
static_assert(!host_accessible<arena_resource<device_resource>>);
static_assert(!device_accessible<arena_resource<host_resource>>);

std::string refusal(arena const& options) {
  source_state state;
  return message_of<std::invalid_argument>([&] { [[maybe_unused]] auto memory = make(source{&state} | options); });
}

/// Runs `work` on a thread of its own, to its end.
void elsewhere(auto work) { std::thread(work).join(); }

/// A thread that does as it is told and lives until the end of its scope.
class worker {
 public:
  worker() : thread_([this] { run(); }) {}
  ~worker() {
    work_ = nullptr;
    go_.release();
    thread_.join();
  }
  void operator()(std::function<void()> work) {
    work_ = std::move(work);
    go_.release();
    done_.acquire();
  }

 private:
  void run() {
    for (go_.acquire(); work_; go_.acquire()) {
      work_();
      done_.release();
    }
  }
  std::function<void()> work_;
  std::binary_semaphore go_{0}, done_{0};
  std::thread thread_;
};

template <class Memory>
void pass(Memory& memory, stream_ref stream, std::size_t bytes) {
  memory.deallocate(stream, memory.allocate(stream, bytes), bytes);
}

std::uint64_t blocking_calls() {
  return sim::calls("cudaDeviceSynchronize") + sim::calls("cudaStreamSynchronize") + sim::calls("cudaEventSynchronize");
}

}  // namespace

TEST_CASE("wrong options are refused with their values") {
  CHECK(contains(refusal({.max_arenas = 0}), "max_arenas is 0; it must be 1 to 64"));
  CHECK(contains(refusal({.max_arenas = 65}), "max_arenas is 65"));
  CHECK(contains(refusal({.max_bytes = 255}), "max_bytes is 255 B"));
  CHECK(contains(refusal({.growth_bytes = SIZE_MAX}), "growth_bytes is 18446744073709551615 B; it must be at most"));
  CHECK(arena{}.valid());
  CHECK(arena{.max_bytes = 256, .max_arenas = 1}.valid());
}

TEST_CASE_FIXTURE(fresh_world, "zero bytes are nothing, bad alignments are refused, good ones honoured") {
  source_state state;
  auto memory = make(source{&state} | arena{});
  CHECK(memory.allocate(host_order, 0) == nullptr);
  memory.deallocate(host_order, nullptr, 0);
  CHECK(state.calls == 0);
  CHECK(memory.arenas() == 0);
  CHECK_THROWS_AS(memory.allocate(host_order, 1, 3), std::invalid_argument);
  CHECK_THROWS_AS(memory.allocate(host_order, 1, 2 * max_alignment), std::invalid_argument);
  for (std::size_t alignment = 1; alignment <= max_alignment; alignment *= 2) {
    void* const p = memory.allocate(host_order, 1000, alignment);
    CHECK(reinterpret_cast<std::uintptr_t>(p) % alignment == 0);
    memory.deallocate(host_order, p, 1000, alignment);
  }
}

TEST_CASE_FIXTURE(fresh_world, "each thread that allocates has an arena, and who only frees has none") {
  source_state state;
  {
    auto memory = make(source{&state} | arena{});
    void* const p = memory.allocate(host_order, 1000);
    CHECK(memory.arenas() == 1);
    elsewhere([&] { memory.deallocate(host_order, p, 1000); });
    CHECK(memory.arenas() == 1);
    CHECK(memory.numbers().allocated.current == 0);
    CHECK(memory.allocate(host_order, 1000) == p);  // it came home
    elsewhere([&] { pass(memory, host_order, 1); });
    CHECK(memory.arenas() == 2);
    CHECK(state.live_count == 2);
    memory.deallocate(host_order, p, 1000);
  }
  CHECK(state.live_count == 0);
}

TEST_CASE_FIXTURE(fresh_world, "a thread that only frees takes no arena from those that allocate") {
  source_state state;
  auto memory = make(source{&state} | arena{.max_arenas = 2});
  void* const p = memory.allocate(host_order, 1000);
  worker frees, allocates;
  frees([&] { memory.deallocate(host_order, p, 1000); });
  allocates([&] { pass(memory, host_order, 1000); });
  CHECK(memory.arenas() == 2);
}

TEST_CASE_FIXTURE(fresh_world, "memory freed by a thread with an arena of its own goes home all the same") {
  auto memory = make(device{} | arena{});
  weir::stream const s;
  void* const p = memory.allocate(s, 1_MiB);
  worker other;
  other([&] {
    pass(memory, s, 1_MiB);
    memory.deallocate(s, p, 1_MiB);
  });
  CHECK(memory.allocate(s, 1_MiB) == p);
  memory.deallocate(s, p, 1_MiB);
  CHECK(memory.numbers().requested.current == 0);
  CHECK(memory.numbers().growths == 2);
}

TEST_CASE_FIXTURE(fresh_world, "a thousand threads one after the other share one arena and its memory") {
  source_state state;
  auto memory = make(source{&state} | arena{});
  for (int i = 0; i < 1000; ++i) elsewhere([&] { pass(memory, host_order, 1000); });
  CHECK(memory.arenas() == 1);
  CHECK(state.calls == 1);
  CHECK(memory.numbers().allocations == 1000);
}

TEST_CASE_FIXTURE(fresh_world, "more threads than arenas share them evenly") {
  source_state state;
  auto memory = make(source{&state} | arena{.max_arenas = 3});
  std::vector<std::unique_ptr<worker>> workers;
  std::vector<void*> got(7);
  for (std::size_t i = 0; i < 7; ++i) {
    workers.push_back(std::make_unique<worker>());
    (*workers.back())([&] { got[i] = memory.allocate(host_order, 1000); });
  }
  CHECK(memory.arenas() == 3);
  CHECK(state.live_count == 3);
  workers.clear();
  for (void* p : got) memory.deallocate(host_order, p, 1000);
  CHECK(memory.numbers().allocated.current == 0);
}

TEST_CASE_FIXTURE(fresh_world, "with an arena a stream, threads on one stream share, and other streams do not") {
  source_state state;
  auto memory = make(source{&state} | arena{.per = arena::owner::stream});
  weir::stream const a, b;
  void* const p = memory.allocate(a, 1000);
  memory.deallocate(a, p, 1000);
  elsewhere([&] {
    CHECK(memory.allocate(a, 1000) == p);
    memory.deallocate(a, p, 1000);
  });
  CHECK(memory.arenas() == 1);
  std::vector<weir::stream> many(20);
  for (auto const& s : many) pass(memory, s, 1000);
  CHECK(memory.arenas() > 1);
  pass(memory, host_order, 1000);
  pass(memory, cudaStreamLegacy, 1000);
  pass(memory, cudaStreamPerThread, 1000);
  void* const q = memory.allocate(a, 1000);  // freed on another stream: comes home, and is the other stream's there
  memory.deallocate(b, q, 1000);
  CHECK(memory.numbers().allocated.current == 0);
}

TEST_CASE_FIXTURE(fresh_world, "the budget is for all arenas together, exactly") {
  source_state state;
  auto memory = make(source{&state} | arena{.max_bytes = 6_MiB});
  worker other;
  void *p = nullptr, *q = nullptr;
  other([&] { p = memory.allocate(host_order, 4_MiB); });
  q = memory.allocate(host_order, 2_MiB);
  CHECK(state.live_bytes == 6_MiB);
  std::string const what = message_of<out_of_memory>([&] { memory.allocate(host_order, 1); });
  CHECK(contains(what, "refused by arena; chain: arena(6.00 MiB) > source"));
  CHECK(contains(what, "6.00 MiB reserved in 2 arenas = 6.00 MiB allocated + 0 B free + 0 B pending"));
  CHECK_THROWS_AS(memory.allocate(host_order, 6_MiB + 1), out_of_memory);
  CHECK(memory.numbers().out_of_memory == 2);
  CHECK(memory.numbers().reserved.peak == 6_MiB);
  memory.deallocate(host_order, p, 4_MiB);
  CHECK((p = memory.allocate(host_order, 1_MiB)) != nullptr);  // of the other's memory
  CHECK(state.peak_bytes == 6_MiB);
  memory.deallocate(host_order, p, 1_MiB);
  memory.deallocate(host_order, q, 2_MiB);
  void* const all = memory.allocate(host_order, 6_MiB);  // both arenas give back what they held
  CHECK(state.live_count == 1);
  memory.deallocate(host_order, all, 6_MiB);
}

TEST_CASE_FIXTURE(fresh_world, "out of memory gathers what all arenas have, and waits for their work only if it must") {
  for (auto const mode : {sim::mode::immediate, sim::mode::lazy}) {
    CAPTURE(static_cast<int>(mode));
    sim::reset();
    sim::set_mode(mode);
    sim::set_capacity(0, 32_MiB);
    {
      auto memory = make(device{} | arena{});
      worker other;
      weir::stream const a, b;
      std::vector<void*> got(8);
      other([&] {
        for (auto& p : got) p = memory.allocate(a, 4_MiB);
        for (auto p : got) cudaMemsetAsync(p, 1, 4_MiB, a.get());
      });
      CHECK_THROWS_AS(memory.allocate(b, 4_MiB), out_of_memory);
      sim::reset_counters();
      other([&] { memory.deallocate(a, got[0], 4_MiB); });
      void* const p = memory.allocate(b, 4_MiB);  // fits a freed block: the streams wait, the host does not
      CHECK(p == got[0]);
      CHECK(blocking_calls() == 0);
      other([&] {
        for (std::size_t i = 1; i < 8; ++i) memory.deallocate(a, got[i], 4_MiB);
      });
      memory.deallocate(b, p, 4_MiB);
      void* const big = memory.allocate(b, 31_MiB);  // no segment is so large: all go back first
      CHECK(sim::calls("cudaDeviceSynchronize") == 0);
      cudaMemsetAsync(big, 2, 31_MiB, b.get());
      memory.deallocate(b, big, 31_MiB);
      sim::run_all();
    }
    CHECK(sim::live_allocations() == 0);
  }
}

TEST_CASE_FIXTURE(fresh_world, "what others give the upstream while a request waits for work serves it") {
  sim::set_mode(sim::mode::lazy);
  source_state state;
  auto memory = make(source{&state} | arena{});
  weir::stream const a;
  void* const live = memory.allocate(a, 1_MiB);  // so that this arena has nothing to give back
  void* const p = memory.allocate(a, 1_MiB);
  cudaLaunchHostFunc(
      a.get(), [](void* of) { static_cast<source_state*>(of)->fail = failing::no; }, &state);
  memory.deallocate(a, p, 1_MiB);
  state.fail = failing::out_of_memory;
  pass(memory, host_order, 8_MiB);
  CHECK(memory.numbers().out_of_memory == 0);
  memory.deallocate(a, live, 1_MiB);
}

TEST_CASE_FIXTURE(fresh_world, "without the host's waiting, memory with work pending does not move") {
  sim::set_mode(sim::mode::lazy);
  sim::set_capacity(0, 4_MiB);
  auto memory = make(device{} | arena{.synchronize = false});
  weir::stream const a;
  void* const p = memory.allocate(a, 4_MiB);
  cudaMemsetAsync(p, 1, 4_MiB, a.get());
  memory.deallocate(a, p, 4_MiB);
  CHECK_THROWS_AS(memory.allocate(host_order, 4_MiB), out_of_memory);
  CHECK(blocking_calls() == 0);
  sim::run_all();
  pass(memory, host_order, 4_MiB);
}

TEST_CASE_FIXTURE(fresh_world, "the normal paths make no call that blocks, and on a persistent stream none at all") {
  auto memory = make(device{} | arena{});
  weir::stream const a, b;
  pass(memory, a, 1_MiB);
  sim::reset_counters();
  for (int i = 0; i < 100; ++i) pass(memory, a, 1000);
  CHECK(sim::calls() == 0);
  cudaStream_t destroyable = nullptr;
  cudaStreamCreateWithFlags(&destroyable, cudaStreamNonBlocking);
  void* const p = memory.allocate(destroyable, 1000);
  elsewhere([&] { memory.deallocate(destroyable, p, 1000); });
  pass(memory, b, 1000);
  for (int i = 0; i < 100; ++i) pass(memory, destroyable, 5_MiB);
  CHECK(blocking_calls() == 0);
  cudaStreamDestroy(destroyable);
}

TEST_CASE_FIXTURE(fresh_world, "trim works over all arenas and keeps what it is told to") {
  source_state state;
  auto memory = make(source{&state} | arena{});
  worker first, second;
  first([&] { pass(memory, host_order, 2_MiB); });
  second([&] { pass(memory, host_order, 4_MiB); });
  CHECK(memory.numbers().reserved.current == 6_MiB);
  CHECK(memory.trim(6_MiB) == 0);
  CHECK(memory.trim(4_MiB) == 2_MiB);
  CHECK(memory.trim() == 4_MiB);
  CHECK(memory.numbers().reserved.current == 0);
  CHECK(memory.numbers().reserved.peak == 6_MiB);
  CHECK(memory.arenas() == 2);
}

TEST_CASE_FIXTURE(fresh_world, "misuse is reported, by whichever thread and of whichever arena") {
  source_state state;
  auto memory = make(source{&state} | arena{});
  void* const p = memory.allocate(host_order, 1000);
  worker other;
  caught_misuse const misuse;
  auto const complains = [&](std::size_t bytes, std::size_t alignment) {
    memory.deallocate(host_order, p, bytes, alignment);
    other([&] { memory.deallocate(host_order, p, bytes, alignment); });
  };
  complains(1001, 256);
  CHECK(contains(misuse.last(), "weir: arena: deallocate of"));
  CHECK(contains(misuse.last(), "it was allocated with 1000 B aligned to 256"));
  complains(1000, 512);
  CHECK(misuse.count() == 4);
  other([&] { pass(memory, host_order, 1); });
  complains(0, 256);
  CHECK(misuse.count() == 6);
  int foreign = 0;
  memory.deallocate(host_order, &foreign, 4);
  CHECK(contains(misuse.last(), "it is not this resource's memory"));
  memory.deallocate(host_order, static_cast<std::byte*>(p) + 1, 1000);
  CHECK(contains(misuse.last(), "no live block starts there"));
  other([&] { memory.deallocate(host_order, p, 1000); });
  CHECK(misuse.count() == 8);
  complains(1000, 256);
  CHECK(misuse.count() == 10);
  CHECK(memory.numbers().allocated.current == 0);
}

TEST_CASE_FIXTURE(fresh_world, "threads outlive resources, and a resource at the same address starts anew") {
  source_state state;
  worker other;
  for (int round = 0; round < 50; ++round) {
    // Fewer arenas each time, so that a number remembered from before would be seen.
    struct made {
      arenas operator()() const { return make(source{state} | arena{.max_arenas = most}); }
      source_state* state;
      std::size_t most;
    };
    std::size_t const most = static_cast<std::size_t>(round % 4 + 1);
    alignas(arenas) static std::byte place[sizeof(arenas)];
    auto* const memory_here = ::new (place) arenas(made{&state, most}());
    void* p = nullptr;
    std::vector<std::unique_ptr<worker>> holders;  // so that numbers differ from round to round
    for (int i = 0; i < round % 3; ++i) {
      holders.push_back(std::make_unique<worker>());
      (*holders.back())([&] { pass(*memory_here, host_order, 1); });
    }
    other([&] { p = memory_here->allocate(host_order, 1000); });
    CHECK(memory_here->arenas() <= most);
    pass(*memory_here, host_order, 10);
    memory_here->deallocate(host_order, p, 1000);
    memory_here->~arenas();
    CHECK(state.live_count == 0);
  }
}

TEST_CASE_FIXTURE(fresh_world, "a thread may use many resources in turn") {
  source_state state;
  {
    std::vector<std::unique_ptr<arenas>> all;
    struct maker {
      source_state* state;
      arenas operator()() const { return make(source{state} | arena{}); }
    };
    for (int i = 0; i < 10; ++i) all.emplace_back(new arenas(maker{&state}()));
    for (int round = 0; round < 10; ++round) {
      for (auto& memory : all) pass(*memory, host_order, 1000);
      all.erase(all.begin());
    }
    CHECK(state.live_count == 0);
  }
}

namespace {
/// Frees after the thread's own lists are gone: it is made before them.
struct late_user {
  std::function<void()> at_end;
  ~late_user() {
    if (at_end) at_end();
  }
};
thread_local late_user last_words;
TEST_CASE("frees of another thread's blocks on many short-lived streams never make the host wait") {
  weir::sim::reset();
  auto memory = weir::make(weir::device{} | weir::arena{});
  void* const own = memory.allocate(weir::host_order, 4096);  // this thread has an arena, and the other has another
  std::vector<void*> blocks(40);
  std::thread([&] {
    for (void*& p : blocks) p = memory.allocate(weir::host_order, 4096);
  }).join();
  for (void* p : blocks) {
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
    weir::sim::reset_counters();
    memory.deallocate(stream, p, 4096);
    CHECK(weir::sim::calls("cudaStreamSynchronize") == 0);
    REQUIRE(cudaStreamDestroy(stream) == cudaSuccess);
  }
  memory.deallocate(weir::host_order, own, 4096);
}

}  // namespace

TEST_CASE_FIXTURE(fresh_world, "objects of a thread that outlive its arenas can still free and allocate") {
  source_state state;
  auto memory = make(source{&state} | arena{});
  auto other_memory = make(source{&state} | arena{});
  elsewhere([&] {
    last_words.at_end = nullptr;  // makes it, first
    void* const p = memory.allocate(host_order, 1000);
    void* const q = other_memory.allocate(host_order, 1000);
    last_words.at_end = [&, p, q] {
      memory.deallocate(host_order, p, 1000);
      pass(memory, host_order, 5000);
      other_memory.deallocate(host_order, q, 1000);
    };
  });
  CHECK(memory.numbers().allocated.current == 0);
  CHECK(other_memory.numbers().allocated.current == 0);
  CHECK(memory.arenas() == 1);
  elsewhere([&] { pass(memory, host_order, 1); });
  CHECK(memory.arenas() == 1);  // the arena had been given back
}

TEST_CASE_FIXTURE(fresh_world, "with caching off every request goes through") {
  setenv("WEIR_NO_CACHING", "1", 1);
  source_state state;
  auto memory = make(source{&state} | arena{});
  unsetenv("WEIR_NO_CACHING");
  void* const p = memory.allocate(host_order, 1000);
  CHECK(state.live_bytes == 1000);
  CHECK(memory.arenas() == 0);
  memory.deallocate(host_order, p, 1000);
  CHECK(state.live_bytes == 0);
}

TEST_CASE_FIXTURE(fresh_world, "sizes beyond all bounds are refused without asking anyone") {
  source_state state;
  auto memory = make(source{&state} | arena{});
  for (std::size_t const k : {0U, 1U, 255U, 256U, 1000U})
    CHECK_THROWS_AS(memory.allocate(host_order, SIZE_MAX - k), out_of_memory);
  CHECK(state.calls == 0);
}

TEST_CASE_FIXTURE(fresh_world, "whichever CUDA call fails, nothing is lost and the next try works") {
  for (auto const mode : {sim::mode::immediate, sim::mode::lazy})
    for (auto const per : {arena::owner::thread, arena::owner::stream})
      for (cudaError_t const code : {cudaErrorMemoryAllocation, cudaErrorUnknown}) {
        bool reached = true;
        for (std::uint64_t k = 1; reached; ++k) {
          CAPTURE(k);
          sim::reset();
          sim::set_mode(mode);
          sim::set_capacity(0, 16_MiB);
          {
            auto memory = make(device{} | arena{.per = per});
            cudaStream_t a = nullptr, b = nullptr;
            cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
            cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
            auto const run = [&] {
              std::vector<std::tuple<cudaStream_t, void*, std::size_t>> live;
              auto const take = [&](cudaStream_t s, std::size_t bytes) {
                try {
                  live.emplace_back(s, memory.allocate(s, bytes), bytes);
                } catch (out_of_memory const&) {
                } catch (cuda_error const&) {
                }
              };
              auto const drop = [&] {
                if (live.empty()) return;
                auto const [s, p, n] = live.back();
                live.pop_back();
                memory.deallocate(s, p, n);
              };
              take(a, 1000);
              take(b, 3_MiB);
              drop();
              take(a, 3_MiB);
              elsewhere([&] {
                take(a, 1000);
                take(b, 4_MiB);
                drop();
              });
              take(b, 13_MiB);
              while (!live.empty()) drop();
            };
            sim::reset_counters();
            sim::fail_call(k, code);
            run();
            reached = sim::calls() >= k;
            sim::clear_failure();
            run();
            CHECK(memory.numbers().requested.current == 0);
            cudaStreamDestroy(a);
            cudaStreamDestroy(b);
          }
          sim::run_all();
          // A call that fails while it frees a segment loses that segment: CUDA kept it.
          CHECK(sim::live_allocations() <= 1);
        }
      }
}

TEST_CASE_FIXTURE(fresh_world, "eight threads and eight streams, coming and going, never share a block") {
  for (auto const per : {arena::owner::thread, arena::owner::stream}) {
    sim::reset();
    sim::set_capacity(0, 256_MiB);
    {
      auto memory = make(device{} | arena{.max_bytes = 200_MiB, .per = per, .max_arenas = 5});
      std::atomic<int> wrong{0}, refused{0};
      weir::stream const shared_streams[4];
      for (int generation = 0; generation < 3; ++generation) {
        std::vector<std::thread> threads;
        // What one thread allocates, any may free.
        std::mutex handed_over_lock;
        struct block {
          stream_ref stream;
          unsigned char* p;
          std::size_t bytes;
          unsigned char value;
        };
        std::vector<block> handed_over;
        for (int t = 0; t < 8; ++t)
          threads.emplace_back([&, t] {
            cudaStream_t destroyable = nullptr;
            cudaStreamCreateWithFlags(&destroyable, cudaStreamNonBlocking);
            weir::stream const own;
            stream_ref const choice[] = {own, shared_streams[t % 4], destroyable, host_order};
            auto random = static_cast<std::uint32_t>(t + generation * 8 + 1);
            for (int i = 0; i < 150; ++i) {
              random = random * 1664525 + 1013904223;
              std::size_t const bytes = 1 + (random >> 8) % ((random >> 4) % 16 == 0 ? 8'000'000 : 8'000);
              stream_ref const s = choice[(random >> 3) % 4];
              try {
                auto* const p = static_cast<unsigned char*>(memory.allocate(s, bytes));
                auto const value = static_cast<unsigned char>(random >> 16);
                p[0] = p[bytes - 1] = value;
                std::lock_guard const lock(handed_over_lock);
                // A stream that ends must not be named again; its blocks go on under the thread's own one.
                handed_over.push_back({s.get() == destroyable ? stream_ref(own) : s, p, bytes, value});
                if (s.get() == destroyable) cudaStreamSynchronize(destroyable);
              } catch (out_of_memory const&) {
                ++refused;
              }
              block taken{host_order, nullptr, 0, 0};
              {
                std::lock_guard const lock(handed_over_lock);
                if (handed_over.size() > 20) {
                  std::swap(handed_over[random % handed_over.size()], handed_over.back());
                  taken = handed_over.back();
                  handed_over.pop_back();
                }
              }
              if (taken.p == nullptr) continue;
              if (taken.p[0] != taken.value || taken.p[taken.bytes - 1] != taken.value) ++wrong;
              memory.deallocate(taken.stream, taken.p, taken.bytes);
              if (i % 64 == 63) memory.trim(16_MiB);
              if (i % 50 == 49) memory.numbers();
            }
            cudaStreamDestroy(destroyable);
          });
        for (auto& t : threads) t.join();
        for (block const& b : handed_over) memory.deallocate(b.stream, b.p, b.bytes);
      }
      CHECK(wrong == 0);
      CHECK(refused == 0);
      CHECK(memory.arenas() <= 5);
      CHECK(memory.numbers().requested.current == 0);
      CHECK(memory.numbers().reserved.peak <= 200_MiB);
    }
    CHECK(sim::live_allocations() == 0);
  }
}

TEST_CASE_FIXTURE(fresh_world, "threads that run out at the same time do not lock each other up") {
  source_state state;
  {
    auto memory = make(source{&state} | arena{.max_bytes = 16_MiB});
    std::atomic<int> served{0}, refused{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 100; ++i) {
          std::size_t const bytes = static_cast<std::size_t>((i * 7 + t) % 12 + 1) * 1_MiB;
          try {
            pass(memory, host_order, bytes);
            ++served;
          } catch (out_of_memory const&) {
            ++refused;
          }
        }
      });
    for (auto& t : threads) t.join();
    CHECK(served + refused == 800);
    CHECK(served > 0);
    void* const all = memory.allocate(host_order, 16_MiB);
    memory.deallocate(host_order, all, 16_MiB);
    CHECK(state.peak_bytes <= 16_MiB);
  }
  CHECK(state.live_bytes == 0);
}

TEST_CASE("the memory of a capture is released in every arena") {
  watched_world const world;
  auto memory = make(device{} | arena{});
  {
    destroyable_stream const stream;
    begin_capture(stream, cudaStreamCaptureModeRelaxed);
    std::uint64_t const capture = capture_id(stream);
    auto const use = [&] { memory.deallocate(stream, memory.allocate(stream, 1_MiB), 1_MiB); };
    use();
    elsewhere(use);
    CHECK(memory.arenas() == 2);
    { captured_graph const graph(stream); }
    CHECK(memory.numbers().captured == 2_MiB);
    CHECK(memory.release_captured(capture) == 2_MiB);
    CHECK(memory.numbers().captured == 0);
  }
  std::size_t const held = memory.numbers().reserved.current;
  CHECK(memory.trim() == held);
}

TEST_CASE("a budget that is full in a capture makes arenas give nothing back for it") {
  watched_world const world;
  auto below = make(device{} | arena{});
  auto memory = make(share(below) | limit{1_MiB});
  void* const beside = below.allocate(host_order, 1_MiB);
  below.deallocate(host_order, below.allocate(host_order, 8_MiB), 8_MiB);
  weir::stream const s;
  capture_scope const declared;
  begin_capture(s);
  void* live[4];
  for (void*& p : live) p = memory.allocate(s, 256_KiB);
  memory.deallocate(s, live[0], 256_KiB);
  memory.deallocate(s, live[2], 256_KiB);
  std::size_t const held = below.numbers().reserved.current;
  CHECK_THROWS_AS(memory.allocate(s, 512_KiB), out_of_memory);  // the capture freed as much, but not in one piece
  CHECK(below.numbers().reserved.current == held);
  CHECK(held > 8_MiB);
  memory.deallocate(s, live[1], 256_KiB);
  memory.deallocate(s, live[3], 256_KiB);
  below.deallocate(host_order, beside, 1_MiB);
  captured_graph const graph(s);
}
