// needs: tsan
#include <weir/adaptors/fixed_size.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/scrub.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/layers.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources.hpp>
#include <weir/testing/checked.hpp>

#include <doctest/doctest.h>
#include <support/captures.hpp>
#include <support/destroyable_stream.hpp>
#include <support/filled.hpp>
#include <support/sim_fixture.hpp>
#include <support/test_source.hpp>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

using namespace weir;
using namespace weir::test;

namespace {

void fill(stream_ref stream, void* p, std::size_t bytes, int value = 7) {
  REQUIRE(cudaMemsetAsync(p, value, bytes, stream.get()) == cudaSuccess);
}
/// The simulated runtime's memory is the host's.
bool is_all(void const* p, std::size_t bytes, int value) {
  return test::is_filled(p, bytes, static_cast<unsigned char>(value));
}

/// A blocking stream, which the legacy default stream waits for.
struct blocking_stream {
  blocking_stream() { REQUIRE(cudaStreamCreate(&handle) == cudaSuccess); }
  ~blocking_stream() { cudaStreamDestroy(handle); }
  blocking_stream(blocking_stream const&) = delete;
  blocking_stream& operator=(blocking_stream const&) = delete;
  cudaStream_t handle = nullptr;
};

}  // namespace

// ---- on free

TEST_CASE("what is freed on a stream is zero for its next owner, in the order of the stream") {
  watched_world const world;
  auto memory = make(device{} | pool{} | checked{"the pool's user"} | scrub{});
  destroyable_stream const s;
  void* const p = memory.allocate(s, 1000);
  fill(s, p, 1000);
  sim::reset_counters();
  memory.deallocate(s, p, 1000);
  CHECK(sim::calls("cudaStreamSynchronize") == 0);
  void* const again = memory.allocate(s, 1000);
  CHECK(again == p);
  s.finish();
  CHECK(is_all(again, 1000, 0));
  memory.deallocate(s, again, 1000);
}

TEST_CASE("all of the 256 B units that a request takes is zeroed, and nothing beyond") {
  fresh_world const world;
  auto memory = make(device{} | pool{} | scrub{});
  void* const p = memory.allocate(host_order, 1000);
  void* const neighbours = memory.upstream().allocate(host_order, 64_KiB);  // past the layer: nobody scrubs it
  std::memset(neighbours, 9, 64_KiB);
  std::memset(p, 7, 1024);
  memory.deallocate(host_order, p, 1000);
  CHECK(is_all(p, 1024, 0));
  CHECK(is_all(neighbours, 64_KiB, 9));
  memory.upstream().deallocate(host_order, neighbours, 64_KiB);
}

TEST_CASE("what several streams used is zeroed behind the work of all of them") {
  watched_world const world;
  auto memory = make(device{} | pool{} | checked{} | scrub{});
  destroyable_stream const a, b;
  void* const p = memory.allocate(a, 1000);
  order(a, b);
  fill(b, p, 1000);
  deallocate_after(memory, a, p, 1000, {b});
  a.finish();
  CHECK(is_all(p, 1000, 0));
}

TEST_CASE("in host order it is zeroed on return") {
  lazy_world const world;
  auto memory = make(device{} | pool{} | scrub{});
  void* const p = memory.allocate(host_order, 5000);
  std::memset(p, 7, 5000);
  memory.deallocate(host_order, p, 5000);
  CHECK(is_all(p, 5000, 0));
}

TEST_CASE("host memory takes no CUDA call in host order, and on a stream a wait") {
  lazy_world const world;
  auto memory = make(host{} | pool{} | scrub{});
  void* p = memory.allocate(host_order, 5000);
  std::memset(p, 7, 5000);
  sim::reset_counters();
  memory.deallocate(host_order, p, 5000);
  CHECK(sim::calls() == 0);
  CHECK(is_all(p, 5000, 0));

  p = memory.allocate(cudaStreamPerThread, 5000);
  auto const write = [](void* to) { std::memset(to, 7, 5000); };
  REQUIRE(cudaLaunchHostFunc(cudaStreamPerThread, write, p) == cudaSuccess);
  memory.deallocate(cudaStreamPerThread, p, 5000);
  CHECK(is_all(p, 5000, 0));
}

// ---- on allocation

TEST_CASE("what is allocated is zero, whatever its owner before left there") {
  fresh_world const world;
  auto shared = make(device{} | pool{});
  auto memory = make(share(shared) | scrub{.on_free = false, .on_allocation = true});
  for (stream_ref const stream : {stream_ref(cudaStreamPerThread), stream_ref(host_order)}) {
    void* const dirty = shared.allocate(stream, 3000);
    std::memset(dirty, 7, 3000);
    shared.deallocate(stream, dirty, 3000);
    void* const p = memory.allocate(stream, 3000);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(p == dirty);
    CHECK(is_all(p, 3000, 0));
    std::memset(p, 8, 3000);
    memory.deallocate(stream, p, 3000);
    CHECK(is_all(p, 3000, 8));
  }
}

TEST_CASE("host memory that is reused on a stream is not zeroed under work that still writes it") {
  lazy_world const world;
  auto shared = make(host{} | pool{});
  auto memory = make(share(shared) | scrub{.on_allocation = true});
  void* const dirty = shared.allocate(cudaStreamPerThread, 3000);
  auto const write = [](void* to) { std::memset(to, 7, 3000); };
  REQUIRE(cudaLaunchHostFunc(cudaStreamPerThread, write, dirty) == cudaSuccess);
  shared.deallocate(cudaStreamPerThread, dirty, 3000);
  void* const p = memory.allocate(cudaStreamPerThread, 3000);
  CHECK(p == dirty);
  REQUIRE(cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess);
  CHECK(is_all(p, 3000, 0));
  memory.deallocate(cudaStreamPerThread, p, 3000);
}

// ---- what CUDA refuses

TEST_CASE("a free whose memset fails once is zeroed after a wait for the stream") {
  lazy_world const world;
  auto memory = make(device{} | pool{} | scrub{});
  destroyable_stream const s;
  for (stream_ref const stream : {stream_ref(s), stream_ref(host_order)}) {
    void* const p = memory.allocate(stream, 1000);
    fill(s, p, 1000);
    if (stream.is_host_order()) s.finish();
    sim::fail_call("cudaMemsetAsync", 1, cudaErrorUnknown);
    memory.deallocate(stream, p, 1000);
    CHECK(is_all(p, 1000, 0));
    CHECK(memory.kept_bytes() == 0);
    CHECK(memory.upstream().numbers().allocated.current == 0);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
  }
}

TEST_CASE("a block that cannot be zeroed is not handed on") {
  fresh_world const world;
  auto memory = make(device{} | pool{} | scrub{});
  destroyable_stream const s;
  void* const p = memory.allocate(s, 1000);
  sim::fail_from(1, cudaErrorLaunchFailure);
  memory.deallocate(s, p, 1000);
  sim::clear_failure();
  CHECK(memory.kept_bytes() == 1024);
  CHECK(memory.upstream().numbers().allocated.current == 1024);
  CHECK(contains(report_of(memory).lines(), "1.00 KiB kept that could not be zeroed"));
  CHECK(detail::last_call.what == detail::call_note::kept);  // so that budgets go on charging it
}

TEST_CASE("an allocation that cannot be zeroed fails, and the memory goes back") {
  fresh_world const world;
  auto memory = make(device{} | pool{} | scrub{.on_allocation = true});
  destroyable_stream const s;
  sim::fail_call("cudaMemsetAsync", 1, cudaErrorUnknown);
  CHECK_THROWS_AS(memory.allocate(s, 1000), cuda_error);
  CHECK(memory.upstream().numbers().allocated.current == 0);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  sim::fail_call("cudaMemsetAsync", 1, cudaErrorUnknown);
  void* const p = memory.allocate(host_order, 1000);  // it is tried once more
  CHECK(is_all(p, 1000, 0));
  memory.deallocate(host_order, p, 1000);
}

// ---- wrong frees

TEST_CASE("a wrong free is reported and zeroes nothing") {
  fresh_world const world;
  auto memory = make(device{} | pool{} | scrub{});
  void* const p = memory.allocate(host_order, 1000);
  void* const other = memory.allocate(host_order, 1000);
  memory.deallocate(host_order, other, 1000);
  void* const new_owner = memory.upstream().allocate(host_order, 1000);
  CHECK(new_owner == other);
  std::memset(p, 7, 1000);
  std::memset(new_owner, 8, 1000);
  caught_misuse const misuse;
  memory.deallocate(host_order, other, 1000);  // twice
  CHECK(misuse.count() == 1);
  CHECK(contains(misuse.last(), "this layer did not give it, or it was freed before"));
  memory.deallocate(host_order, p, 2000);
  memory.deallocate(host_order, p, 1000, 512);
  CHECK(misuse.count() == 3);
  CHECK(contains(misuse.last(), " with 1000 B aligned to 512: 1000 B aligned to 256 were allocated there"));
  CHECK(is_all(p, 1000, 7));
  CHECK(is_all(new_owner, 1000, 8));
  CHECK(detail::last_call.what == detail::call_note::misuse);
  memory.deallocate(host_order, p, 1000);
  CHECK(misuse.count() == 3);
  memory.upstream().deallocate(host_order, new_owner, 1000);
}

// ---- captures

TEST_CASE("what a capture allocates and frees is zeroed by each launch of its graph") {
  for (auto const mode : all_capture_modes) {
    watched_world const world;
    auto memory = make(device{} | pool{} | checked{} | scrub{});
    weir::stream const s;
    begin_capture(s, mode);
    void* const p = memory.allocate(s, 1000);
    fill(s, p, 1000);
    memory.deallocate(s, p, 1000);
    {
      captured_graph const graph(s);
      for (int i = 0; i < 2; ++i) {
        graph.launch(s);
        s.synchronize();
        CHECK(is_all(p, 1000, 0));
        std::memset(p, 3, 1000);
      }
    }
    memory.release_captured();
    CHECK(memory.kept_bytes() == 0);
  }
}

TEST_CASE("memory from before a capture that is freed in it is held, and zeroed when the graph is gone") {
  watched_world const world;
  auto memory = make(device{} | pool{} | checked{} | scrub{} | limit{1_MiB});
  weir::stream const s;
  void* const p = memory.allocate(s, 1000);
  fill(s, p, 1000);
  s.synchronize();
  begin_capture(s);
  std::uint64_t const capture = capture_id(s);
  fill(s, p, 500, 8);
  memory.deallocate(s, p, 1000);
  {
    captured_graph const graph(s);  // which is never launched
    auto const& scrubbed = memory.upstream();
    CHECK(scrubbed.holds_captured(capture));
    CHECK(memory.used() == 1024);
    CHECK(memory.captured() == 1024);
    CHECK(is_all(p, 1000, 7));
  }
  CHECK(release_captured(memory, capture) == 1024);
  CHECK(is_all(p, 1000, 0));
  CHECK(memory.used() == 0);
  CHECK(!memory.holds_captured(0));
}

TEST_CASE("what a broken capture freed stays held when the graph of another capture is gone") {
  fresh_world const world;
  auto memory = make(device{} | pool{} | scrub{});
  weir::stream const s;
  void* const p = memory.allocate(s, 1000);
  fill(s, p, 1000);
  s.synchronize();
  begin_capture(s);
  std::uint64_t const capture = capture_id(s);
  CHECK(cudaStreamSynchronize(s.get()) == cudaErrorStreamCaptureUnsupported);
  memory.deallocate(s, p, 1000);
  CHECK(memory.release_captured(capture + 1) == 0);
  CHECK(is_all(p, 1000, 7));
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(s.get(), &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(memory.release_captured() == 1024);
  CHECK(is_all(p, 1000, 0));
}

TEST_CASE("what a capture allocated and is freed after it is zeroed before the pool gives it to another stream") {
  watched_world const world;
  auto memory = make(device{} | pool{} | scrub{});
  weir::stream const s, other;
  void* p = nullptr;
  {
    capture_scope const declared;
    begin_capture(s);
    p = memory.allocate(s, 1000);
    captured_graph const graph(s);
  }
  memory.deallocate(s, p, 1000);
  CHECK(release_captured(memory) == 1024);
  void* const again = memory.allocate(other, 1000);
  CHECK(again == p);
  fill(other, again, 1000);
  other.synchronize();
  s.synchronize();
  CHECK(is_all(again, 1000, 7));
  memory.deallocate(other, again, 1000);
}

TEST_CASE("what is freed for a capture that is over is zeroed before the next one may have it") {
  watched_world const world;
  auto memory = make(device{} | pool{} | scrub{});
  weir::stream const s;
  begin_capture(s);
  void* const p = memory.allocate(s, 1000);
  std::uint64_t const capture = capture_id(s);
  captured_graph const graph(s);
  fill(s, p, 1000);
  s.synchronize();
  {
    detail::acting_in_capture const of_graphs(capture);
    memory.deallocate(s, p, 1000);
  }
  CHECK(is_all(p, 1000, 0));
  memory.release_captured();
}

TEST_CASE("what one capture allocated and another freed stays charged until both are released") {
  watched_world const world;
  auto memory = make(device{} | pool{} | scrub{} | limit{4_MiB});
  weir::stream const s;
  capture_scope const declared;
  for (bool const owner_first : {false, true}) {
    begin_capture(s);
    std::uint64_t const owner = capture_id(s);
    void* const p = memory.allocate(s, 1_MiB);
    captured_graph const first(s);
    begin_capture(s);
    std::uint64_t const user = capture_id(s);
    memory.deallocate(s, p, 1_MiB);
    captured_graph const second(s);
    CHECK(memory.captured() == 1_MiB);
    release_captured(memory, owner_first ? owner : user);
    // The pool has it for the graph that it is of, or the scrub for the one that may use it.
    CHECK(memory.captured() == 1_MiB);
    CHECK(memory.used() == 1_MiB);
    release_captured(memory, owner_first ? user : owner);
    CHECK(memory.used() == 0);
    CHECK(find<pool_resource>(memory).numbers().captured == 0);
  }
}

TEST_CASE("what is held goes back, zeroed, at the end of the stack") {
  fresh_world const world;
  auto shared = make(device{} | pool{});
  weir::stream const s;
  void* p = nullptr;
  {
    auto memory = make(share(shared) | scrub{});
    p = memory.allocate(s, 1000);
    fill(s, p, 1000);
    s.synchronize();
    begin_capture(s);
    memory.deallocate(s, p, 1000);
    captured_graph const graph(s);
  }
  CHECK(is_all(p, 1000, 0));
  CHECK(shared.numbers().allocated.current == 0);
}

TEST_CASE("a free on the legacy stream while a stream captures that it waits for breaks nothing, and is held") {
  watched_world const world;
  auto memory = make(device{} | pool{} | scrub{});
  blocking_stream const s;
  void* const p = memory.allocate(cudaStreamLegacy, 1000);
  fill(cudaStreamLegacy, p, 1000);
  begin_capture(s.handle);
  memory.deallocate(cudaStreamLegacy, p, 1000);
  CHECK(memory.release_captured() == 0);
  captured_graph const graph(s.handle);
  CHECK(memory.release_captured() == 1024);
  REQUIRE(cudaStreamSynchronize(cudaStreamLegacy) == cudaSuccess);
  CHECK(is_all(p, 1000, 0));
  CHECK(memory.upstream().numbers().allocated.current == 0);
}

TEST_CASE("what a capture allocated and is held on the legacy stream is zeroed before the pool has it back") {
  watched_world const world;
  auto memory = make(device{} | pool{} | checked{} | scrub{});
  destroyable_stream const origin;
  blocking_stream const s;
  begin_capture(origin);
  void* const p = memory.allocate(origin, 1000);
  { captured_graph const graph(origin); }
  begin_capture(s.handle);
  memory.deallocate(cudaStreamLegacy, p, 1000);
  { captured_graph const graph(s.handle); }
  CHECK(memory.release_captured() == 1024);
  CHECK(cudaStreamQuery(cudaStreamLegacy) == cudaSuccess);  // else whoever has it next is not behind the memset
}

TEST_CASE("what is held on the legacy stream is zeroed there on the stack's device, whichever is current") {
  watched_world const world;
  device_guard const second(1);
  auto memory = make(device{} | pool{} | checked{} | scrub{});
  blocking_stream const s;
  void* const p = memory.allocate(cudaStreamLegacy, 1000);
  fill(cudaStreamLegacy, p, 1000);
  begin_capture(s.handle);
  memory.deallocate(cudaStreamLegacy, p, 1000);
  captured_graph const graph(s.handle);
  {
    device_guard const first(0);
    CHECK(memory.release_captured() == 1024);
  }
  CHECK(cudaStreamSynchronize(cudaStreamLegacy) == cudaSuccess);
  CHECK(is_all(p, 1000, 0));
}

// ---- as a layer

TEST_CASE("a request takes whole 256 B of the upstream") {
  fresh_world const world;
  auto memory = make(device{} | limit{1_MiB} | scrub{});
  CHECK(taken(memory, 1) == 256);
  CHECK(taken(memory, 1000) == 1024);
  CHECK(taken(memory, 1000, 4096) == 1024 + 4096 - 256);
  CHECK(taken(make(device{} | pool{} | fixed_size{.block_bytes = 64_KiB} | scrub{}), 1000) == 64_KiB);
}

TEST_CASE("an error speaks of what was asked for, with a line of this layer") {
  source_state state;
  fresh_world const world;
  auto memory = make(source{&state} | scrub{});
  state.fail = failing::out_of_memory;
  try {
    memory.allocate(host_order, 1000);
    FAIL("nothing was thrown");
  } catch (out_of_memory const& error) {
    CHECK(error.bytes() == 1000);
    CHECK(contains(error.what(), "(1000 B, rounded to 1024 B)"));
    CHECK(contains(error.what(), "refused by source; chain: scrub > source"));
    CHECK(contains(error.what(), "zeroes what is freed"));
  }
}

TEST_CASE("something has to be scrubbed") {
  CHECK(scrub{.on_free = false}.problem() == "scrub: on_free and on_allocation are false; at least one must be true");
  CHECK(scrub{}.valid());
  CHECK(scrub{.on_free = false, .on_allocation = true}.valid());
}

TEST_CASE("threads that share a stack see no contents of each other") {
  fresh_world const world;
  auto memory = make(host{} | pool{} | scrub{.on_allocation = true});
  std::atomic<int> seen{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        void* const p = memory.allocate(host_order, 3000);
        if (!is_all(p, 3000, 0)) ++seen;
        std::memset(p, 1, 3000);
        memory.deallocate(host_order, p, 3000);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(seen == 0);
  CHECK(memory.kept_bytes() == 0);
  CHECK(memory.upstream().numbers().allocated.current == 0);
}
