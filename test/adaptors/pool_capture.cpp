// needs: tsan
// Pools while streams are captured into graphs: no capture is ever broken, and a graph's memory is nobody else's.
#include <weir/adaptors/arena.hpp>
#include <weir/adaptors/binning.hpp>
#include <weir/adaptors/fixed_size.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/managed.hpp>
#include <weir/sources/pinned.hpp>
#include <weir/testing/checked.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "support/captures.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

template <class F>
void in_another_thread(F f) {
  std::thread(f).join();
}

template <class Layer>
auto watched(Layer const& layer) {
  return device{} | checked{"below"} | layer | checked{"above"};
}

/// Allocates, writes, and frees.
template <class Memory>
void use(Memory& memory, stream_ref stream, std::size_t bytes) {
  void* const p = memory.allocate(stream, bytes);
  write(stream, p, bytes);
  memory.deallocate(stream, p, bytes);
}

/// All that a pool does on a stream: small and large blocks, frees that merge, memory that other streams freed.
template <class Memory>
void churn(Memory& memory, stream_ref stream) {
  std::vector<void*> blocks;
  for (std::size_t i = 1; i <= 8; ++i) blocks.push_back(memory.allocate(stream, i * 5000));
  for (std::size_t i = 0; i < 8; i += 2) write(stream, blocks[i], (i + 1) * 5000);
  for (std::size_t i = 0; i < 8; ++i) memory.deallocate(stream, blocks[i], (i + 1) * 5000);
  use(memory, stream, 40'000);
}

/// Every kind of work around a capture on `captured`, which `forked` joins; then the graph, twice.
template <class Memory, class Layer>
void exercise(Memory& memory, Layer& layer, stream_ref captured, stream_ref forked, cudaStreamCaptureMode mode) {
  destroyable_stream const other, launcher;
  weir::stream const lasting;
  auto const elsewhere = [&] {
    churn(memory, other);
    churn(memory, lasting);
    layer.trim();
    layer.synchronize();
    churn(memory, other);
  };
  for (stream_ref const s : {captured, forked, stream_ref(other), stream_ref(lasting)}) churn(memory, s);
  void* const weights = memory.allocate(captured, 10'000);
  write(captured, weights, 10'000);

  auto declared = std::make_unique<capture_scope>();
  begin_capture(captured, mode);
  churn(memory, captured);
  elsewhere();
  in_another_thread(elsewhere);
  churn(memory, captured);
  order(captured, forked);
  churn(memory, forked);
  churn(memory, captured);
  elsewhere();
  order(forked, captured);
  void* const result = memory.allocate(captured, 20'000);
  write(captured, result, 20'000);
  write(captured, weights, 10'000);
  layer.trim();
  layer.synchronize();
  churn(memory, captured);
  watched_world::expect_clean();
  auto const graph = std::make_unique<captured_graph>(captured);
  declared.reset();

  CHECK(layer.numbers().captured > 0);
  order(captured, launcher);
  for (int i = 0; i < 2; ++i) {
    graph->launch(launcher);
    elsewhere();
    churn(memory, captured);
    churn(memory, forked);
    in_another_thread(elsewhere);
  }
  order(launcher, captured);
  memory.deallocate(captured, result, 20'000);
  order(captured, launcher);
  churn(memory, captured);
  graph->launch(captured);  // `result` may still be written: it is the graph's. `weights` are not
  memory.deallocate(captured, weights, 10'000);
  elsewhere();
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
}

template <class Layer, class Find>
void exercise_all(Layer const& options, Find find) {
  for (sim::mode const how : all_sim_modes)
    for (cudaStreamCaptureMode const mode : all_capture_modes)
      for (bool const lasting : {false, true}) {
        CAPTURE(static_cast<int>(how));
        CAPTURE(static_cast<int>(mode));
        CAPTURE(lasting);
        watched_world const world(how);
        {
          auto memory = make(watched(options));
          auto& layer = find(memory);
          destroyable_stream const a, b;
          weir::stream const c, d;
          exercise(memory, layer, lasting ? stream_ref(c) : a, lasting ? stream_ref(d) : b, mode);
          CHECK(layer.release_captured() > 0);
          CHECK(layer.numbers().captured == 0);
          use(memory, a, 40'000);
        }
        CHECK(sim::live_allocations() == 0);
      }
}

}  // namespace

TEST_CASE("who looks for memory among very many streams does not ask what graphs keep") {
  watched_world const world;
  auto memory = make(device{} | pool{});
  std::vector<stream> const many(400);
  for (stream const& s : many) use(memory, s, 256);
  std::vector<std::unique_ptr<captured_graph>> graphs;
  for (int i = 0; i < 30; ++i) {
    stream const captured;
    capture_scope const declared;
    begin_capture(captured);
    use(memory, captured, 256);
    graphs.push_back(std::make_unique<captured_graph>(captured));
  }
  std::vector<stream> const last(2);
  for (stream const& s : last) use(memory, s, 20_MiB);  // each has work, so that the second takes new memory
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  std::size_t const held = memory.numbers().reserved.current;
  use(memory, many.front(), 20_MiB);
  CHECK(memory.numbers().reserved.current == held);
}

TEST_CASE("a request in a capture is told to be one, wherever among very many streams its memory was") {
  watched_world const world;
  auto memory = make(device{} | pool{});
  std::vector<stream> const many(400);
  for (stream const& s : many) use(memory, s, 256);
  std::vector<stream> const last(2);
  for (stream const& s : last) use(memory, s, 20_MiB);  // each has work, so that the second takes new memory
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  std::size_t const held = memory.numbers().reserved.current;
  stream const captured;
  capture_scope const declared;
  begin_capture(captured);
  detail::last_call.clear();
  void* const p = memory.allocate(captured, 20_MiB);
  CHECK(detail::last_call.what == detail::call_note::captured);
  CHECK(memory.numbers().reserved.current == held);
  memory.deallocate(captured, p, 20_MiB);
  captured_graph const graph(captured);
}

TEST_CASE("no capture is broken and no order, whatever a pool does meanwhile, in every mode") {
  exercise_all(
      pool{}, [](auto& memory) -> auto& { return find<pool_resource>(memory); });
}
TEST_CASE("nor by a pool that makes streams wait") {
  exercise_all(
      pool{.pending = when_pending::wait}, [](auto& memory) -> auto& { return find<pool_resource>(memory); });
}
TEST_CASE("nor by a pool that gives back what is idle") {
  exercise_all(
      pool{.release_threshold = 0}, [](auto& memory) -> auto& { return find<pool_resource>(memory); });
}
TEST_CASE("nor by a pool to which it was promised that captures are declared") {
  exercise_all(
      pool{.declared_captures = true}, [](auto& memory) -> auto& { return find<pool_resource>(memory); });
}
TEST_CASE("nor by an arena") {
  exercise_all(
      arena{}, [](auto& memory) -> auto& { return find<arena_resource>(memory); });
}
TEST_CASE("nor by blocks of one size") {
  exercise_all(
      fixed_size{.block_bytes = 40'000}, [](auto& memory) -> auto& { return find<fixed_size_resource>(memory); });
}

TEST_CASE("a capture gets its own memory back at once, and nobody else does") {
  watched_world const world;
  auto memory = make(device{} | pool{.initial_bytes = 1_MiB, .max_bytes = 1_MiB});
  destroyable_stream const a, b;
  begin_capture(a);
  void* const p = memory.allocate(a, 640_KiB);
  write(a, p, 640_KiB);
  memory.deallocate(a, p, 640_KiB);
  CHECK(memory.numbers().captured == 640_KiB);
  CHECK(memory.numbers().pending == 0);
  CHECK(memory.allocate(a, 640_KiB) == p);
  CHECK(memory.numbers().captured == 0);
  memory.deallocate(a, p, 640_KiB);
  std::string const text = message_of<out_of_memory>([&] { memory.allocate(b, 640_KiB); });
  CHECK(contains(text, "640.00 KiB captured"));
  auto const id = capture_id(a);
  CHECK(id != 0);
  {
    captured_graph const graph(a);
    CHECK_THROWS_AS(memory.allocate(a, 640_KiB), out_of_memory);
    graph.launch(b);
    b.finish();
  }
  CHECK(memory.release_captured(id + 1) == 0);
  CHECK_THROWS_AS(memory.allocate(b, 640_KiB), out_of_memory);
  CHECK(memory.release_captured(id) == 640_KiB);
  CHECK(memory.allocate(b, 640_KiB) == p);
  memory.deallocate(b, p, 640_KiB);
}

TEST_CASE("what a capture allocated stays the graph's when it is freed later") {
  watched_world const world;
  auto memory = make(device{} | pool{.initial_bytes = 1_MiB, .max_bytes = 1_MiB});
  destroyable_stream const a;
  begin_capture(a);
  void* const p = memory.allocate(a, 640_KiB);
  void* const q = memory.allocate(a, 100_KiB);
  {
    captured_graph const graph(a);
    stream_ref const by_whom[] = {a, host_order, cudaStreamLegacy};
    for (stream_ref const s : by_whom) {
      CAPTURE(s.is_host_order());
      memory.deallocate(s, p, 640_KiB);
      CHECK_THROWS_AS(memory.allocate(a, 640_KiB), out_of_memory);
      CHECK(memory.numbers().captured == 640_KiB);
      CHECK(memory.release_captured() == 640_KiB);
      begin_capture(a);
      CHECK(memory.allocate(a, 640_KiB) == p);
      captured_graph const another(a);
    }
  }
  CHECK(memory.release_captured() == 0);
  // From then on both are blocks like others.
  memory.deallocate(host_order, p, 640_KiB);
  memory.deallocate(host_order, q, 100_KiB);
  CHECK(memory.numbers().captured == 0);
  CHECK(memory.numbers().free == 1_MiB);
}

namespace {

/// Knows streams only: in host order the legacy one is asked, and waited for.
class stream_only_resource {
 public:
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    return source_.allocate(stream, bytes, alignment);
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    source_.deallocate(stream, p, bytes, alignment);
  }

 private:
  async_resource source_{async{}};
};
struct stream_only {
  stream_only_resource operator()() const { return {}; }
};

}  // namespace

TEST_CASE("an upstream that knows only streams is left alone while its default stream would break a capture") {
  watched_world const world;
  auto memory = make(stream_only{} | pool{.initial_bytes = 2_MiB, .release_threshold = 0});
  cudaStream_t blocking = nullptr;
  REQUIRE(cudaStreamCreate(&blocking) == cudaSuccess);
  destroyable_stream const a, b;
  use(memory, a, 1_MiB);
  void* const last = memory.allocate(a, 1_MiB);
  std::optional<capture_scope> declared(std::in_place);
  begin_capture(blocking, cudaStreamCaptureModeRelaxed);
  memory.deallocate(a, last, 1_MiB);
  a.finish();
  CHECK(memory.trim() == 0);
  // What is held serves, by a wait of the stream; more is not to be had.
  use(memory, a, 1_MiB);
  use(memory, b, 1_MiB);
  CHECK_THROWS_AS(memory.allocate(b, 8_MiB), out_of_memory);
  { captured_graph const graph(blocking); }
  declared.reset();
  use(memory, b, 8_MiB);
  REQUIRE(cudaStreamDestroy(blocking) == cudaSuccess);
}

TEST_CASE("bins keep a graph's memory, and make it everyone's again") {
  watched_world const world;
  auto memory =
      make(watched(binning{.bins = {bin{64_KiB}, bin{1_MiB, [](auto up) { return up | pool{} | statistics{}; }}}}));
  auto& bins = find<binning_resource>(memory);
  destroyable_stream const a;
  std::uint64_t id = 0;
  {
    begin_capture(a);
    id = capture_id(a);
    use(memory, a, 60_KiB);
    use(memory, a, 640_KiB);
    captured_graph const graph(a);
    bins.trim();
    CHECK(bins.reserved() >= 704_KiB);
  }
  CHECK(bins.release_captured(id + 1) == 0);
  CHECK(bins.release_captured(id) == 704_KiB);  // a small block has the size of its bin
  CHECK(bins.trim() != 0);
  CHECK(bins.reserved() == 0);
}

TEST_CASE("a block from outside that a capture frees is not used again in it: the work before it may still run") {
  watched_world const world;
  auto memory = make(watched(pool{.initial_bytes = 1_MiB, .max_bytes = 1_MiB}));
  destroyable_stream const a;
  void* const p = memory.allocate(a, 640_KiB);
  write(a, p, 640_KiB);
  begin_capture(a);
  memory.deallocate(a, p, 640_KiB);
  CHECK_THROWS_AS(memory.allocate(a, 640_KiB), out_of_memory);
  captured_graph const graph(a);
  CHECK_THROWS_AS(memory.allocate(a, 640_KiB), out_of_memory);
  a.finish();
  CHECK(find<pool_resource>(memory).release_captured() == 640_KiB);
  use(memory, a, 640_KiB);
}

TEST_CASE("a capture may free a block from outside whose work is not done, through checks on each layer") {
  watched_world const world(sim::mode::lazy);
  auto memory = make(device{} | pool{} | checked{"below"} | statistics{} | checked{"above"});
  destroyable_stream const outside, captured;
  void* const p = memory.allocate(outside, 1000);
  write(outside, p, 1000);
  begin_capture(captured, cudaStreamCaptureModeThreadLocal);
  memory.deallocate(captured, p, 1000);
  captured_graph graph(captured);
  watched_world::expect_clean();
  order(outside, captured);
  graph.launch(captured);
  watched_world::expect_clean();
}

TEST_CASE("memory that was freed before the capture and is not done is not for the capture") {
  watched_world const world;
  auto memory = make(watched(pool{.initial_bytes = 1_MiB, .max_bytes = 1_MiB, .synchronize = false}));
  destroyable_stream const a, b;
  use(memory, a, 640_KiB);
  use(memory, b, 256_KiB);
  begin_capture(a);
  CHECK_THROWS_AS(memory.allocate(a, 640_KiB), out_of_memory);
  CHECK(contains(message_of<out_of_memory>([&] { memory.allocate(a, 300_KiB); }), "the stream is being captured"));
  CHECK_FALSE(contains(message_of<out_of_memory>([&] { memory.allocate(b, 2_MiB); }), "is being captured"));
  use(memory, a, 100_KiB);
  captured_graph const graph(a);
}

TEST_CASE("before a capture gets none, the host waits for what others freed") {
  watched_world const world;
  auto memory = make(watched(pool{.initial_bytes = 1_MiB, .max_bytes = 1_MiB}));
  destroyable_stream const a, b;
  use(memory, a, 640_KiB);
  use(memory, b, 300_KiB);
  begin_capture(a);
  use(memory, a, 640_KiB);
  use(memory, a, 300_KiB);
  captured_graph const graph(a);
  graph.launch(b);
  b.finish();  // before the pool goes
}

TEST_CASE("branches of a capture do not share what they freed") {
  watched_world const world;
  auto memory = make(watched(pool{.initial_bytes = 1_MiB, .max_bytes = 1_MiB}));
  destroyable_stream const a, b;
  begin_capture(a);
  order(a, b);
  use(memory, a, 640_KiB);
  CHECK_THROWS_AS(memory.allocate(b, 640_KiB), out_of_memory);
  use(memory, a, 640_KiB);
  order(b, a);
  captured_graph const graph(a);
}

TEST_CASE("nor does a branch whose stream has the handle of one that was destroyed in the capture") {
  watched_world const world;
  auto memory = make(watched(pool{.initial_bytes = 1_MiB}));
  weir::stream const origin;
  cudaEvent_t fork = nullptr;
  REQUIRE(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming) == cudaSuccess);
  begin_capture(origin);
  REQUIRE(cudaEventRecord(fork, origin.get()) == cudaSuccess);
  std::vector<cudaStream_t> handles;
  for (int branch = 0; branch < 2; ++branch) {
    destroyable_stream const side;
    handles.push_back(side.get());
    REQUIRE(cudaStreamWaitEvent(side.get(), fork, 0) == cudaSuccess);
    use(memory, side, 100'000);
    order(side, origin);
  }
  CHECK(handles[0] == handles[1]);  // else this shows nothing
  captured_graph const graph(origin);
  graph.launch(origin);
  origin.synchronize();
  REQUIRE(cudaEventDestroy(fork) == cudaSuccess);
}

TEST_CASE("a persistent stream costs no call while no capture is declared, and one while one is") {
  watched_world const world;
  auto memory = make(device{} | pool{.initial_bytes = 1_MiB});
  weir::stream const s;
  stream_ref const known[] = {s, cudaStreamPerThread};
  for (stream_ref const stream : known) {
    memory.deallocate(stream, memory.allocate(stream, 100), 100);
    sim::reset_counters();
    memory.deallocate(stream, memory.allocate(stream, 100), 100);
    CHECK(sim::calls() == 0);
    capture_scope const declared;
    memory.deallocate(stream, memory.allocate(stream, 100), 100);
    CHECK(sim::calls() == 2);
    CHECK(sim::calls("cudaStreamGetCaptureInfo") == 2);
  }
  sim::reset_counters();
  capture_scope const declared;
  for (stream_ref const stream : {stream_ref(cudaStreamLegacy), stream_ref(host_order)})
    memory.deallocate(stream, memory.allocate(stream, 100), 100);
  CHECK(sim::calls() == 0);  // these cannot be captured
}

TEST_CASE("while a capture is declared, no event is recorded on a stream that is not the caller's") {
  watched_world const world;
  auto memory = make(device{} | pool{.pending = when_pending::wait});
  weir::stream const s, other;
  use(memory, s, 640_KiB);
  sim::reset_counters();
  {
    capture_scope const declared;
    void* const p = memory.allocate(other, 1_MiB + 640_KiB);
    memory.deallocate(other, p, 1_MiB + 640_KiB);
    CHECK(sim::calls("cudaEventRecord") == 0);
    memory.synchronize();
    CHECK(sim::calls("cudaEventRecord") + sim::calls("cudaDeviceSynchronize") == 0);
  }
  CHECK(memory.numbers().pending != 0);
  memory.synchronize();
  CHECK(memory.numbers().pending == 0);
}

TEST_CASE("a capture that nobody declared, on a persistent stream, is not broken either") {
  for (cudaStreamCaptureMode const mode : all_capture_modes) {
    watched_world const world;
    auto memory = make(device{} | pool{.initial_bytes = 1_MiB, .max_bytes = 1_MiB});
    weir::stream const s;
    destroyable_stream const other;
    use(memory, s, 500_KiB);
    use(memory, other, 400_KiB);
    begin_capture(s, mode);
    auto const elsewhere = [&] {
      CHECK_THROWS_AS(memory.allocate(other, 1_MiB), out_of_memory);
      CHECK_FALSE(is_capturing(other));
    };
    elsewhere();
    in_another_thread(elsewhere);
    memory.trim();
    memory.synchronize();
    memory.deallocate(s, memory.allocate(s, 1_MiB), 1_MiB);  // its own, as ever: nobody said that it captures
    captured_graph const graph(s);
    memory.synchronize();
    memory.deallocate(other, memory.allocate(other, 1_MiB), 1_MiB);
  }
}

TEST_CASE("another device's stream that was first seen in a capture is waited for like any other") {
  watched_world const world;
  auto memory = make(device{.device = 0} | pool{.max_bytes = 4_MiB} | checked{"above"});
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  weir::stream const far;
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  weir::stream const near;
  SUBCASE("that nobody declared") {
    begin_capture(far, cudaStreamCaptureModeThreadLocal);
    memory.deallocate(far, memory.allocate(far, 1_MiB), 1_MiB);
    captured_graph const graph(far);
  }
  SUBCASE("or so it seemed, since CUDA did not say") {
    sim::fail_call("cudaStreamIsCapturing", 1, cudaErrorUnknown);
    sim::fail_call(2, cudaErrorUnknown);
  }
  void* p = memory.allocate(far, 4_MiB);
  write(far, p, 4_MiB);
  memory.deallocate(far, p, 4_MiB);
  p = memory.allocate(near, 4_MiB);
  write(near, p, 4_MiB);
  memory.deallocate(near, p, 4_MiB);
}

TEST_CASE("no stream is made to wait for another where that would break a capture") {
  watched_world const world;
  auto memory = make(device{} | pool{.initial_bytes = 1_MiB, .max_bytes = 1_MiB, .synchronize = false});
  destroyable_stream const other;
  use(memory, other, 640_KiB);  // pending, with an event behind it
  SUBCASE("one that captures, which nobody declared") {
    weir::stream const s;
    begin_capture(s);
    CHECK_THROWS_AS(memory.allocate(s, 640_KiB), out_of_memory);
    captured_graph const graph(s);
  }
  SUBCASE("the legacy one, while a blocking stream captures") {
    cudaStream_t blocking = nullptr;
    REQUIRE(cudaStreamCreate(&blocking) == cudaSuccess);
    begin_capture(blocking);
    CHECK_THROWS_AS(memory.allocate(cudaStreamLegacy, 640_KiB), out_of_memory);
    { captured_graph const graph(blocking); }
    REQUIRE(cudaStreamDestroy(blocking) == cudaSuccess);
  }
  other.finish();
}

TEST_CASE("while a blocking stream captures, pools leave the legacy stream alone") {
  for (bool const is_declared : {false, true}) {
    watched_world const world;
    auto memory = make(device{} | pool{.initial_bytes = 1_MiB, .max_bytes = 1_MiB, .synchronize = false});
    cudaStream_t blocking = nullptr;
    REQUIRE(cudaStreamCreate(&blocking) == cudaSuccess);
    destroyable_stream const other;
    use(memory, cudaStreamLegacy, 640_KiB);
    std::optional<capture_scope> declared;
    if (is_declared) declared.emplace();
    begin_capture(blocking);
    CHECK_THROWS_AS(memory.allocate(other, 640_KiB), out_of_memory);
    CHECK_THROWS_AS(memory.allocate(blocking, 640_KiB), out_of_memory);
    void* const p = memory.allocate(cudaStreamLegacy, 640_KiB);
    memory.deallocate(cudaStreamLegacy, p, 640_KiB);
    memory.synchronize();
    { captured_graph const graph(blocking); }
    REQUIRE(cudaStreamDestroy(blocking) == cudaSuccess);
  }
}

TEST_CASE("the legacy stream that pools leave alone is their own device's, whichever is current") {
  for (bool const waits : {false, true}) {
    watched_world const world;
    auto memory = make(device{} | pool{.initial_bytes = 1_MiB, .max_bytes = 1_MiB, .synchronize = waits});
    cudaStream_t blocking = nullptr;
    REQUIRE(cudaStreamCreate(&blocking) == cudaSuccess);
    destroyable_stream const other;
    use(memory, cudaStreamLegacy, 640_KiB);
    begin_capture(blocking);
    {
      device_guard const elsewhere(1);
      CHECK_THROWS_AS(memory.allocate(other, 640_KiB), out_of_memory);
      memory.synchronize();
    }
    { captured_graph const graph(blocking); }
    REQUIRE(cudaStreamDestroy(blocking) == cudaSuccess);
  }
}

TEST_CASE("a capture that the program broke leaves the pool whole") {
  lazy_world const world;
  auto memory = make(device{} | pool{.initial_bytes = 1_MiB, .max_bytes = 1_MiB});
  destroyable_stream const a;
  begin_capture(a);
  void* const p = memory.allocate(a, 300_KiB);
  CHECK(cudaStreamSynchronize(a.get()) == cudaErrorStreamCaptureUnsupported);
  CHECK(capture_id(a) == 0);
  void* const q = memory.allocate(a, 300_KiB);
  memory.deallocate(a, q, 300_KiB);
  memory.deallocate(a, p, 300_KiB);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(a.get(), &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(memory.release_captured() == 640_KiB);
  memory.deallocate(a, memory.allocate(a, 1_MiB), 1_MiB);
}

TEST_CASE("what a broken capture freed is not for another one, whose stream may have the same handle") {
  lazy_world const world;
  auto memory = make(device{} | pool{.initial_bytes = 1_MiB});
  auto const begin_broken_capture = [](stream_ref s) {
    begin_capture(s);
    CHECK(cudaStreamSynchronize(s.get()) == cudaErrorStreamCaptureUnsupported);
  };
  cudaStream_t handle = nullptr;
  void* p = nullptr;
  {
    destroyable_stream const a;
    handle = a.get();
    begin_broken_capture(a);
    p = memory.allocate(a, 300_KiB);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(a.get(), &graph) == cudaErrorStreamCaptureInvalidated);
    write(a, p, 300_KiB);  // is still to come when the next stream is there
    begin_broken_capture(a);
    memory.deallocate(a, p, 300_KiB);
  }
  destroyable_stream const b;
  CHECK(b.get() == handle);  // else this shows nothing
  begin_broken_capture(b);
  CHECK(memory.allocate(b, 300_KiB) != p);
}

TEST_CASE("misuse is seen in captures as well") {
  watched_world const world;
  caught_misuse const caught;
  auto memory = make(device{} | pool{});
  destroyable_stream const a;
  begin_capture(a);
  void* const p = memory.allocate(a, 1000);
  memory.deallocate(a, p, 999);
  CHECK(caught.count() == 1);
  memory.deallocate(a, p, 1000);
  memory.deallocate(a, p, 1000);
  CHECK(caught.count() == 2);
  captured_graph const graph(a);
  memory.deallocate(a, p, 1000);
  CHECK(caught.count() == 3);
}

TEST_CASE("sources break no capture, on whatever stream") {
  for (cudaStreamCaptureMode const mode : all_capture_modes) {
    watched_world const world;
    auto memory_1 = make(device{});
    auto memory_2 = make(pinned{});
    auto memory_3 = make(managed{});
    auto memory_4 = make(async{});
    destroyable_stream const a, b;
    auto const with_each = [&](auto f) { f(memory_1), f(memory_2), f(memory_3), f(memory_4); };
    void* outside = memory_4.allocate(a, 1000);
    begin_capture(a, mode);
    auto const elsewhere = [&] {
      with_each([&](auto& memory) {
        memory.deallocate(host_order, memory.allocate(host_order, 1000), 1000);
        memory.deallocate(b, memory.allocate(b, 1000), 1000);
      });
      memory_4.trim();
    };
    elsewhere();
    in_another_thread(elsewhere);
    with_each([&](auto& memory) { memory.deallocate(a, memory.allocate(a, 1000), 1000); });
    memory_4.deallocate(a, outside, 1000);
    captured_graph const graph(a);
    graph.launch(a);
    graph.launch(b);
    b.finish();
  }
}

TEST_CASE("captures on one thread and steals on another never meet") {
  sim::reset();
  {
    auto memory = make(device{} | pool{.initial_bytes = 1_MiB, .pending = when_pending::wait});
    weir::stream const captured, stealing;
    std::atomic<bool> stop{false};
    std::atomic<int> rounds{0};
    std::thread thief([&] {
      while (!stop) {
        memory.deallocate(stealing, memory.allocate(stealing, 300_KiB), 300_KiB);
        memory.synchronize();
        CHECK_FALSE(is_capturing(stealing));
        ++rounds;
      }
    });
    for (int i = 0; i < 300 || rounds < 50; ++i) {
      for (std::size_t n = 1; n < 8; ++n)
        memory.deallocate(captured, memory.allocate(captured, n * 100_KiB), n * 100_KiB);
      capture_scope const declared;
      begin_capture(captured);
      memory.deallocate(captured, memory.allocate(captured, 200_KiB), 200_KiB);
      { captured_graph const graph(captured); }
      memory.release_captured();
    }
    stop = true;
    thief.join();
  }
  CHECK(sim::captures_invalidated() == 0);
  CHECK(sim::live_allocations() == 0);
  sim::reset();
}

TEST_CASE("what many graphs hold is freed without a request in between, and is everyone's once they are gone") {
  watched_world const world;
  auto memory = make(watched(pool{}));
  destroyable_stream const s;
  std::vector<void*> blocks;
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < 100; ++i) {
    begin_capture(s);
    ids.push_back(capture_id(s));
    blocks.push_back(memory.allocate(s, 10'000));
    captured_graph const graph(s);
  }
  for (void* const p : blocks) memory.deallocate(s, p, 10'000);
  REQUIRE(cudaStreamSynchronize(s.get()) == cudaSuccess);
  for (int i = 0; i < 50; ++i) CHECK(release_captured(memory, ids[static_cast<std::size_t>(i)]) >= 10'000);
  CHECK(release_captured(memory) >= 500'000);
  CHECK(find<pool_resource>(memory).numbers().live() == 0);
  CHECK(trim(memory) != 0);
  CHECK(find<pool_resource>(memory).numbers().reserved.current == 0);
}

TEST_CASE("what many captures free of the time before is kept for each, and everyone's once its graph is gone") {
  watched_world const world;
  capture_scope const declared;
  auto memory = make(watched(pool{}) | limit{64_MiB});
  auto const& budget = find<limit_resource>(memory);
  auto const& held = find<pool_resource>(memory);
  weir::stream const s;
  std::vector<void*> blocks(40);
  for (void*& p : blocks) p = memory.allocate(s, 1_MiB);
  std::vector<std::uint64_t> ids;
  for (void* const p : blocks) {  // no request in between: the pool cannot make room
    begin_capture(s);
    ids.push_back(capture_id(s));
    memory.deallocate(s, p, 1_MiB);
    captured_graph const graph(s);
  }
  CHECK(held.numbers().live() == 0);
  CHECK(held.numbers().captured == 40_MiB);
  CHECK(budget.captured() == 40_MiB);
  REQUIRE(cudaStreamSynchronize(s.get()) == cudaSuccess);
  for (std::uint64_t const id : ids) {
    release_captured(memory, id);
    CHECK(budget.captured() == held.numbers().captured);
  }
  CHECK(budget.used() == 0);
  CHECK(trim(memory) != 0);
  CHECK(held.numbers().reserved.current == 0);
}

namespace {

/// Random traffic of some streams, one of which captures now and then, and random launches of the graphs.
class random_captures {
 public:
  explicit random_captures(unsigned seed)
      : random_(seed),
        memory_(make(watched(pool{.pending = seed % 2 == 0 ? when_pending::grow : when_pending::wait}))) {}

  void run(int operations) {
    for (int i = 0; i < operations; ++i) step();
    if (capturing_) end();
    for (auto const& b : blocks_) memory_.deallocate(b.stream, b.p, b.bytes);
    blocks_.clear();
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    graphs_.clear();
    find<pool_resource>(memory_).release_captured();
  }

 private:
  struct block {
    void* p;
    std::size_t bytes;
    stream_ref stream;  // its last user
    bool captured;
  };

  int below(int n) { return std::uniform_int_distribution<>(0, n - 1)(random_); }
  stream_ref some_stream() { return streams_[static_cast<std::size_t>(below(4))]; }
  bool in_capture(stream_ref s) const { return capturing_ && (s == streams_[0] || (forked_ && s == streams_[1])); }

  void step() {
    int const what = below(20);
    if (what < 9) return allocate();
    if (what < 15) return free_one();
    if (what == 15 && !graphs_.empty() && !capturing_)
      return graphs_[static_cast<std::size_t>(below(static_cast<int>(graphs_.size())))]->launch(streams_[0]);
    if (what == 16) return capturing_ ? end() : begin();
    if (what == 17 && capturing_ && !forked_) return fork();
    if (what == 18) find<pool_resource>(memory_).trim();
    if (what == 19) find<pool_resource>(memory_).synchronize();
  }

  void allocate() {
    if (blocks_.size() > 40) return free_one();
    stream_ref const s = some_stream();
    auto const bytes = static_cast<std::size_t>(below(60'000) + 1);
    void* const p = memory_.allocate(s, bytes);
    if (below(2) == 0) write(s, p, bytes);
    blocks_.push_back({p, bytes, s, in_capture(s)});
  }
  void free_one() {
    if (blocks_.empty()) return;
    std::size_t const i = static_cast<std::size_t>(below(static_cast<int>(blocks_.size())));
    block const b = blocks_[i];
    if (b.captured && !in_capture(b.stream) && capturing_) return;  // of an earlier branch
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i));
    memory_.deallocate(b.stream, b.p, b.bytes);
  }

  void begin() {
    declared_.emplace();
    for (block& b : blocks_) b.captured = false;
    begin_capture(streams_[0], all_capture_modes[static_cast<std::size_t>(below(3))]);
    capturing_ = true;
  }
  void fork() {
    order(streams_[0], streams_[1]);
    forked_ = true;
  }
  void end() {
    if (forked_) order(streams_[1], streams_[0]);
    // What the graph allocated is used after a launch only, on the stream that launches.
    for (block& b : blocks_)
      if (b.captured) b.stream = streams_[0];
    graphs_.push_back(std::make_unique<captured_graph>(streams_[0]));
    capturing_ = forked_ = false;
    declared_.reset();
  }

  std::mt19937 random_;
  decltype(make(watched(pool{}))) memory_;
  destroyable_stream a_, b_;
  weir::stream c_, d_;
  std::array<stream_ref, 4> streams_{a_, b_, c_, d_};
  std::vector<block> blocks_;
  std::vector<std::unique_ptr<captured_graph>> graphs_;
  std::optional<capture_scope> declared_;
  bool capturing_ = false, forked_ = false;
};

}  // namespace

TEST_CASE("random captures among random traffic break nothing") {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    watched_world const world(all_sim_modes[seed % 3]);
    sim::set_seed(seed);
    random_captures(seed).run(400);
    CHECK(sim::live_allocations() == 0);
    if (sim::report_count() != 0 || sim::captures_invalidated() != 0) break;
  }
}
