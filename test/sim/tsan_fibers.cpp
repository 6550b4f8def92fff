// needs: tsan
// What the thread sanitizer says of work on streams: a race is reported where CUDA promises no order, whatever order
// the work really ran in, and nothing is where it does. Without that sanitizer the same programs run, and nothing is
// said.

#include "support.hpp"

#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>

#include <mutex>
#include <thread>

#include <support/thread_sanitizer.hpp>

using namespace sim_test;

namespace {

int reports = 0;

}  // namespace

// The reports are what is tested: they come with their text to stderr, but do not fail the program.
extern "C" char const* __tsan_default_options();
extern "C" void __tsan_on_report(void*);
[[gnu::no_sanitize_thread]] char const* __tsan_default_options() {
  return "exitcode=0:suppress_equal_stacks=0:suppress_equal_addresses=0";
}
[[gnu::no_sanitize_thread]] void __tsan_on_report(void*) { ++reports; }

namespace {

template <class Program>
bool races(Program program) {
  int const before = reports;
  program();
  return reports != before;
}

void add_one(void* p) { ++*static_cast<int*>(p); }

/// A program with two streams and memory that both could use.
struct two_streams : fresh {
  cudaStream_t a = make_stream(), b = make_stream();
  cudaEvent_t event = make_event();
  std::unique_ptr<int> memory = std::make_unique<int>(0);
  int* const p = memory.get();

  void add(cudaStream_t s) { ok(cudaLaunchHostFunc(s, add_one, p)); }
  void order(cudaStream_t first, cudaStream_t second) {
    ok(cudaEventRecord(event, first));
    ok(cudaStreamWaitEvent(second, event, 0));
  }
  void finish() { ok(cudaDeviceSynchronize()); }
};

/// Calls `program` in each mode, in a fresh state.
template <class Program>
void in_each_mode(Program program) {
  for (sim::mode const how : {sim::mode::immediate, sim::mode::lazy, sim::mode::random, sim::mode::pct}) {
    CAPTURE(static_cast<int>(how));
    two_streams now;
    sim::set_mode(how);
    program(now);
    now.finish();
  }
}

TEST_CASE("two streams race if nothing orders them, and do not behind an event") {
  in_each_mode([](two_streams& t) {
    CHECK_EQ(races([&] {
               t.add(t.a);
               t.add(t.b);
               t.finish();
             }),
             under_thread_sanitizer);
    CHECK_FALSE(races([&] {
      t.add(t.a);
      t.order(t.a, t.b);
      t.add(t.b);
      t.finish();
    }));
    CHECK_EQ(*t.p, 4);
  });
}

TEST_CASE("an event says nothing of what came after it") {
  in_each_mode([](two_streams& t) {
    CHECK_EQ(races([&] {
               ok(cudaEventRecord(t.event, t.a));
               t.add(t.a);
               ok(cudaStreamWaitEvent(t.b, t.event, 0));
               t.add(t.b);
               t.finish();
             }),
             under_thread_sanitizer);
  });
}

TEST_CASE("the host comes after a stream that it waited for, and what it starts then comes after the host") {
  in_each_mode([](two_streams& t) {
    CHECK_FALSE(races([&] {
      t.add(t.a);
      ok(cudaStreamSynchronize(t.a));
      ++*t.p;
      t.add(t.b);
      ok(cudaEventRecord(t.event, t.b));
      ok(cudaEventSynchronize(t.event));
      ++*t.p;
      t.add(t.a);
      while (cudaStreamQuery(t.a) != cudaSuccess) sim::run_all();
      ++*t.p;
      t.add(t.b);
      t.finish();
      ++*t.p;
    }));
    CHECK_EQ(races([&] {
               t.add(t.a);
               ++*t.p;
               t.finish();
             }),
             under_thread_sanitizer);
  });
}

TEST_CASE("the host that waits for one stream does not come after another") {
  in_each_mode([](two_streams& t) {
    CHECK_EQ(races([&] {
               t.add(t.a);
               ok(cudaStreamSynchronize(t.b));
               ++*t.p;
               t.finish();
             }),
             under_thread_sanitizer);
  });
}

TEST_CASE("pinned memory that a copy reads is not the host's to write, pageable memory is") {
  in_each_mode([](two_streams& t) {
    void *on_device = nullptr, *pinned = nullptr;
    ok(cudaMalloc(&on_device, 64));
    ok(cudaMallocHost(&pinned, 64));
    auto* const first = static_cast<char*>(pinned);
    std::vector<char> pageable(64, 'a');
    CHECK_FALSE(races([&] {
      first[0] = 'a';
      ok(cudaMemcpyAsync(on_device, pinned, 64, cudaMemcpyHostToDevice, t.a));
      ok(cudaMemcpyAsync(on_device, pageable.data(), 64, cudaMemcpyHostToDevice, t.a));
      pageable[0] = 'b';
      ok(cudaStreamSynchronize(t.a));
      first[0] = 'b';
      ok(cudaMemcpy(on_device, pageable.data(), 64, cudaMemcpyHostToDevice));
      pageable[0] = 'c';
      ok(cudaMemcpy(pageable.data(), on_device, 64, cudaMemcpyDeviceToHost));
      pageable[0] = 'd';
    }));
    t.finish();
    CHECK_EQ(races([&] {
               ok(cudaMemcpyAsync(on_device, pinned, 64, cudaMemcpyHostToDevice, t.a));
               first[0] = 'c';
               t.finish();
             }),
             under_thread_sanitizer);
    ok(cudaFree(on_device));
    ok(cudaFreeHost(pinned));
  });
}

TEST_CASE("blocking streams and the legacy one come after each other; two blocking ones do not") {
  in_each_mode([](two_streams& t) {
    cudaStream_t const c = make_stream(cudaStreamDefault), d = make_stream(cudaStreamDefault);
    CHECK_FALSE(races([&] {
      for (cudaStream_t s : {c, cudaStreamLegacy, d, cudaStreamLegacy, cudaStreamPerThread}) t.add(s);
      t.finish();
    }));
    CHECK_EQ(races([&] {
               t.add(c);
               t.add(d);
               t.finish();
             }),
             under_thread_sanitizer);
    CHECK_EQ(races([&] {
               t.add(cudaStreamLegacy);
               t.add(t.a);
               t.finish();
             }),
             under_thread_sanitizer);
  });
}

TEST_CASE("whoever does not come after an allocation races with it, and so does a free with a use before it") {
  in_each_mode([](two_streams& t) {
    void* p = nullptr;
    CHECK_FALSE(races([&] {
      ok(cudaMallocAsync(&p, 64, t.a));
      ok(cudaMemsetAsync(p, 1, 64, t.a));
      t.order(t.a, t.b);
      ok(cudaMemsetAsync(p, 2, 64, t.b));
      ok(cudaFreeAsync(p, t.b));
      t.finish();
    }));
    if (!under_thread_sanitizer)
      return;  // memory is used too early or too late, which the address sanitizer does not survive
    CHECK(races([&] {
      ok(cudaMallocAsync(&p, 64, t.a));
      ok(cudaMemsetAsync(p, 1, 64, t.b));
      t.finish();
    }));
    CHECK(races([&] {
      ok(cudaMallocAsync(&p, 64, t.a));
      t.order(t.a, t.b);
      ok(cudaMemsetAsync(p, 1, 64, t.b));
      ok(cudaFreeAsync(p, t.a));
      t.finish();
    }));
  });
}

TEST_CASE("a pool hands memory from stream to stream in order, and that is no order that the program may rely on") {
  in_each_mode([](two_streams& t) {
    cudaMemPool_t pool = nullptr;
    ok(cudaDeviceGetDefaultMemPool(&pool, 0));
    std::uint64_t most = ~std::uint64_t{0};
    ok(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &most));
    auto const pass_memory_on = [&] {
      for (cudaStream_t s : {t.a, t.b, t.a}) {
        void* p = nullptr;
        ok(cudaMallocAsync(&p, 64, s));
        ok(cudaMemsetAsync(p, 1, 64, s));
        ok(cudaFreeAsync(p, s));
      }
    };
    CHECK_FALSE(races([&] {
      pass_memory_on();
      t.finish();
    }));
    CHECK_EQ(races([&] {
               t.add(t.a);
               pass_memory_on();
               t.add(t.b);
               t.finish();
             }),
             under_thread_sanitizer);
  });
}

TEST_CASE("cudaFree comes after all work of its device") {
  in_each_mode([](two_streams& t) {
    void* p = nullptr;
    ok(cudaMalloc(&p, 64));
    CHECK_FALSE(races([&] {
      ok(cudaMemsetAsync(p, 1, 64, t.a));
      ok(cudaFree(p));
    }));
  });
}

TEST_CASE("launches of one executable graph come after each other") {
  in_each_mode([](two_streams& t) {
    ok(cudaStreamBeginCapture(t.a, cudaStreamCaptureModeGlobal));
    t.add(t.a);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t execution = nullptr;
    ok(cudaStreamEndCapture(t.a, &graph));
    ok(cudaGraphInstantiate(&execution, graph, 0));
    CHECK_FALSE(races([&] {
      ok(cudaGraphLaunch(execution, t.a));
      ok(cudaGraphLaunch(execution, t.b));
      t.finish();
    }));
    CHECK_EQ(races([&] {
               ok(cudaGraphLaunch(execution, t.a));
               t.add(t.b);
               t.finish();
             }),
             under_thread_sanitizer);
  });
}

TEST_CASE("what a host function asks the simulated runtime is no race, and no order") {
  in_each_mode([](two_streams& t) {
    sim::check_order(true);
    auto const ask = [](void* p) {
      add_one(p);
      static_cast<void>(cudaDeviceSynchronize());
      static_cast<void>(cudaGetLastError());
      sim::host_access(p, sizeof(int), sim::access::read);
    };
    CHECK_FALSE(races([&] {
      ok(cudaLaunchHostFunc(t.a, ask, t.p));
      ok(cudaLaunchHostFunc(t.a, ask, t.p));
      t.finish();
    }));
    CHECK_EQ(races([&] {
               ok(cudaLaunchHostFunc(t.a, ask, t.p));
               ok(cudaLaunchHostFunc(t.b, ask, t.p));
               t.finish();
             }),
             under_thread_sanitizer);
  });
}

TEST_CASE("threads that share a stream come after each other as its work does") {
  in_each_mode([](two_streams& t) {
    CHECK_FALSE(races([&] {
      std::mutex mutex;
      std::vector<std::thread> threads;
      for (int i = 0; i < 4; ++i)
        threads.emplace_back([&] {
          for (int n = 0; n < 20; ++n) {
            std::lock_guard const lock(mutex);  // in immediate mode it is the threads that run the work
            static_cast<void>(cudaLaunchHostFunc(t.a, add_one, t.p));
          }
        });
      for (auto& one : threads) one.join();
      t.finish();
    }));
    CHECK_EQ(*t.p, 80);
  });
}

TEST_CASE("many streams come and go") {
  two_streams t;
  CHECK_FALSE(races([&] {
    for (int i = 0; i < 3000; ++i) {
      cudaStream_t const s = make_stream();
      t.order(t.a, s);
      t.add(s);
      t.order(s, t.a);
      ok(cudaStreamDestroy(s));
    }
    t.finish();
    ++*t.p;
  }));
}

}  // namespace
