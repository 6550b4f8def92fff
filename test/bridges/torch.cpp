// needs: tsan
#include <weir/bridges/torch.hpp>

#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/numbers.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/sources/device.hpp>
#include <weir/testing/checked.hpp>

#include <doctest/doctest.h>
#include <support/captures.hpp>
#include <support/destroyable_stream.hpp>
#include <support/sim_fixture.hpp>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace weir;
using namespace weir::literals;
using namespace weir::test;

namespace {

/// The stacks that texts stand for here; `parse` has a test of its own, and takes long to compile.
any_resource made_from(std::string const& text) {
  if (text == "pool") return any_resource(device{} | pool{.initial_bytes = 4_MiB} | checked{});
  if (text == "unchecked") return any_resource(device{} | pool{.initial_bytes = 6_MiB});
  if (text == "limit") return any_resource(device{} | pool{} | limit{8_MiB} | checked{});
  if (text == "of 1") return any_resource(device{.device = 1} | pool{});
  throw std::invalid_argument("no stack is called '" + text + "'");
}

struct idle_world : watched_world {
  framework_memory memory{&made_from, "pool"};
  destroyable_stream const a, b;
};

std::size_t requested(framework_memory& memory, int of = 0) {
  return numbers(memory.stack(of)).at(1).requested.value_or(0);  // below `checked`
}

/// Calls `f()` and gives what it throws.
template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (std::exception const& error) {
    return error.what();
  }
  return "no error";
}

std::string& misused() {
  static std::string text;
  return text;
}

/// Writes misuse down in place of an abort.
struct misuse_noted {
  misuse_noted() {
    misused().clear();
    before = set_misuse_handler([](char const* text) noexcept { misused() = text; });
  }
  ~misuse_noted() { set_misuse_handler(before); }
  misuse_handler before;
};

/// A tensor: allocated on a stream and written there.
void* tensor(framework_memory& memory, std::size_t bytes, stream_ref stream) {
  void* const p = memory.allocate(bytes, 0, stream.get());
  write(stream, p, bytes);
  return p;
}

}  // namespace

TEST_CASE_FIXTURE(idle_world, "a stack is made when its device is first asked for memory, and belongs to that device") {
  CHECK(memory.made(0) == nullptr);
  CHECK(memory.made(1) == nullptr);
  void* const p = memory.allocate(1000, 1, a.get());
  CHECK(memory.made(0) == nullptr);
  CHECK(device_of(memory.stack(1)) == 1);
  CHECK(&memory.stack(1) == memory.made(1));
  int current = -1;
  cudaGetDevice(&current);
  CHECK(current == 0);
  memory.deallocate(p, 1000, 1, a.get());
  CHECK(requested(memory, 1) == 0);
}

TEST_CASE_FIXTURE(idle_world, "zero bytes and null are nothing, and make no stack") {
  CHECK(memory.allocate(0, 0, nullptr) == nullptr);
  memory.deallocate(nullptr, 0, 0, nullptr);
  memory.record_stream(nullptr, a.get());
  CHECK(memory.made(0) == nullptr);
}

TEST_CASE_FIXTURE(idle_world, "a default stream is that of the memory's device, whichever is current") {
  void* const p = memory.allocate(1_MiB, 1, nullptr);
  cudaSetDevice(1);
  write(cudaStreamLegacy, p, 1_MiB);
  cudaSetDevice(0);
  memory.deallocate(p, 1_MiB, 1, nullptr);
  void* const q = memory.allocate(4_MiB, 1, a.get());  // all there is, so it has to wait for the write
  cudaSetDevice(1);
  write(a, q, 4_MiB);
  memory.deallocate(q, 4_MiB, 1, a.get());
  int current = -1;
  cudaGetDevice(&current);
  CHECK(current == 1);
}

TEST_CASE_FIXTURE(idle_world, "with one device nobody asks which is current") {
  sim::set_device_count(1);
  auto const calls_of_pair = [&] {
    sim::reset_counters();
    memory.deallocate(memory.allocate(1000, 0, nullptr), 1000, 0, nullptr);
    return sim::calls("cudaGetDevice");
  };
  calls_of_pair();
  CHECK(calls_of_pair() == 0);
}

TEST_CASE_FIXTURE(idle_world, "what a stream was recorded for is used again after that stream's work") {
  void* const p = tensor(memory, 4_MiB, a);
  order(a, b);
  sim::touch(b.get(), p, 4_MiB, sim::access::read);
  memory.record_stream(p, b.get());
  memory.deallocate(p, 4_MiB, 0, a.get());
  memory.deallocate(tensor(memory, 4_MiB, a), 4_MiB, 0, a.get());  // `checked` sees to the order
  CHECK(requested(memory) == 0);
}

TEST_CASE_FIXTURE(idle_world, "a stream that was not recorded is found by the check") {
  void* const p = tensor(memory, 4_MiB, a);
  order(a, b);
  sim::touch(b.get(), p, 4_MiB, sim::access::read);
  memory.deallocate(p, 4_MiB, 0, a.get());  // `b` may still read
  CHECK(sim::report_count() == 1);
  sim::clear_reports();
}

TEST_CASE_FIXTURE(idle_world, "a block of a thread's own default stream that another frees waits for that stream") {
  void* p = nullptr;
  std::thread([&] { p = tensor(memory, 4_MiB, cudaStreamPerThread); }).join();
  memory.deallocate(p, 4_MiB, 0, cudaStreamPerThread);
  memory.deallocate(tensor(memory, 4_MiB, cudaStreamPerThread), 4_MiB, 0, cudaStreamPerThread);
  CHECK(requested(memory) == 0);
  expect_clean();  // `checked` sees to the order
}

TEST_CASE_FIXTURE(idle_world, "a thread that frees a block of its own default stream has it again at once") {
  void* const p = tensor(memory, 4_MiB, cudaStreamPerThread);
  memory.deallocate(p, 4_MiB, 0, cudaStreamPerThread);
  CHECK(memory.allocate(4_MiB, 0, cudaStreamPerThread) == p);
  memory.deallocate(p, 4_MiB, 0, cudaStreamPerThread);
}

TEST_CASE_FIXTURE(idle_world, "a free waits for a thread's own default stream that was recorded") {
  void* const p = memory.allocate(4_MiB, 0, a.get());
  std::thread([&] {
    memory.record_stream(p, cudaStreamPerThread);
    order(a, cudaStreamPerThread);
    write(cudaStreamPerThread, p, 4_MiB);
  }).join();
  memory.deallocate(p, 4_MiB, 0, a.get());
  memory.deallocate(tensor(memory, 4_MiB, a), 4_MiB, 0, a.get());
  CHECK(requested(memory) == 0);
  expect_clean();
}

TEST_CASE_FIXTURE(idle_world, "what a graph on a thread's own default stream uses of another's is kept for it") {
  void* p = nullptr;
  std::thread([&] { p = memory.allocate(4_MiB, 0, cudaStreamPerThread); }).join();
  capture_scope const declared;
  begin_capture(cudaStreamPerThread);
  write(cudaStreamPerThread, p, 4_MiB);
  memory.deallocate(p, 4_MiB, 0, cudaStreamPerThread);
  captured_graph const graph(cudaStreamPerThread);
  CHECK(numbers(memory.stack(0)).at(1).captured == 4_MiB);
  release_captured(memory.stack(0));
}

TEST_CASE_FIXTURE(idle_world, "a record is for one life of a block") {
  void* const p = tensor(memory, 4_MiB, a);
  memory.record_stream(p, b.get());
  memory.deallocate(p, 4_MiB, 0, a.get());
  sim::run_all();
  void* const q = memory.allocate(4_MiB, 0, a.get());
  REQUIRE(q == p);
  sim::reset_counters();
  memory.deallocate(q, 4_MiB, 0, a.get());
  CHECK(sim::calls("cudaEventRecord") == 1);  // behind `a` alone
}

TEST_CASE_FIXTURE(idle_world, "the stack of a device is chosen before it is made, and cannot be changed then") {
  memory.use("limit", 1);
  CHECK(report_of(memory.stack(1)).chain() == "checked > limit(8.00 MiB) > pool > device(1)");
  CHECK(report_of(memory.stack(0)).chain() == "checked > pool > device(0)");
  memory.use("limit", 1);  // what it is already
  CHECK(error_of([&] { memory.use("pool", 1); }) ==
        "weir: device 1 has its stack already, 'limit', which cannot become 'pool': choose the stack before the first "
        "allocation");
  CHECK_THROWS_AS(memory.use("limit"), std::logic_error);  // device 0 has another
  memory.use("pool", 2);
}

TEST_CASE_FIXTURE(idle_world, "a stack that cannot be made is refused, and may be chosen anew") {
  memory.use("nonsense", 0);
  CHECK(error_of([&] { memory.allocate(1, 0, nullptr); }) == "no stack is called 'nonsense'");
  memory.use("of 1", 0);
  CHECK(error_of([&] { memory.allocate(1, 0, nullptr); }) ==
        "weir: the stack of device 0 is to be 'of 1', which has memory of device 1; leave the device out: each device "
        "gets a stack of its own");
  memory.use("pool", 0);
  memory.deallocate(memory.allocate(1, 0, nullptr), 1, 0, nullptr);
}

TEST_CASE_FIXTURE(idle_world, "a device that cannot be is refused") {
  CHECK(error_of([&] { memory.allocate(1, 64, nullptr); }) == "weir: device 64 cannot be; it must be from 0 to 63");
  CHECK_THROWS_AS(memory.stack(-1), std::invalid_argument);
  CHECK_THROWS_AS(memory.use("pool", -2), std::invalid_argument);
  CHECK(error_of([&] { memory.allocate(1, 7, nullptr); }) ==
        "weir: framework_memory: there is no device 7; this process sees 2, numbered from 0");
  CHECK_THROWS_AS(memory.stack(7), std::invalid_argument);
}

TEST_CASE_FIXTURE(idle_world, "out of memory is told with the report") {
  memory.use("limit", 0);
  void* const p = memory.allocate(6_MiB, 0, a.get());
  std::string const what = error_of([&] { memory.allocate(6_MiB, 0, a.get()); });
  CHECK(what.find("weir: out of memory: 6.00 MiB") == 0);
  CHECK(what.find("refused by limit") != std::string::npos);
  memory.deallocate(p, 6_MiB, 0, a.get());
}

TEST_CASE_FIXTURE(idle_world, "a free on a device without a stack is misuse") {
  misuse_noted const noted;
  int not_ours = 0;
  memory.deallocate(&not_ours, 4, 1, nullptr);
  CHECK(misused().find("(4 B) of device 1, on which weir has allocated nothing") != std::string::npos);
  memory.deallocate(&not_ours, 4, 64, nullptr);
  CHECK(misused().find("of device 64") != std::string::npos);
}

TEST_CASE_FIXTURE(idle_world, "trim waits for the work of freed blocks, and gives all devices their memory back") {
  for (int of : {0, 1}) memory.use("limit", of);  // whose pools hold nothing to begin with
  void* const p = tensor(memory, 1_MiB, a);
  void* const q = memory.allocate(1_MiB, 1, nullptr);
  memory.deallocate(p, 1_MiB, 0, a.get());
  memory.deallocate(q, 1_MiB, 1, nullptr);
  std::size_t const held = sim::live_bytes(0) + sim::live_bytes(1);
  CHECK(held > 0);
  CHECK(memory.trim() == held);
  CHECK(sim::live_bytes(0) + sim::live_bytes(1) == 0);
}

TEST_CASE_FIXTURE(idle_world, "memory of a graph is everyone's again after the last graph of its pool") {
  memory.begin_graph_pool(0, {0, 1}, [&](cudaStream_t stream) { return stream == a.get(); });
  begin_capture(a);
  void* const p = memory.allocate(4_MiB, 0, a.get());
  cudaMemsetAsync(p, 0, 4_MiB, a.get());
  memory.deallocate(p, 4_MiB, 0, a.get());
  {
    captured_graph const graph(a);
    memory.end_graph_pool(0, {0, 1});
    graph.launch(b);
    void* const other = memory.allocate(4_MiB, 0, a.get());
    CHECK(other != p);
    memory.deallocate(other, 4_MiB, 0, a.get());
  }
  CHECK(numbers(memory.stack(0)).at(1).captured == 4_MiB);
  memory.release_graph_pool({0, 1});  // waits for the launch
  CHECK(numbers(memory.stack(0)).at(1).captured == 0);
  void* const all = memory.allocate(4_MiB, 0, b.get());
  write(b, all, 4_MiB);
  memory.deallocate(all, 4_MiB, 0, b.get());
}

TEST_CASE_FIXTURE(idle_world, "graphs of one pool have the memory that earlier ones gave back, and no others") {
  memory.use("unchecked");  // nobody tells the check that these graphs run one after another
  auto const captured = [&] { return numbers(memory.stack(0)).at(0).captured.value_or(0); };
  void* kept = nullptr;
  auto const reserved = [&] { return numbers(memory.stack(0)).at(0).reserved.value_or(0); };
  // Two blocks, of which one outlives the capture.
  auto const capture_for = [&](detail::graph_pool_id id) {
    memory.begin_graph_pool(0, id, [&](cudaStream_t stream) { return stream == a.get(); });
    begin_capture(a);
    void* const p = memory.allocate(2_MiB, 0, a.get());
    write(a, p, 2_MiB);
    kept = memory.allocate(2_MiB, 0, a.get());
    write(a, kept, 2_MiB);
    memory.deallocate(p, 2_MiB, 0, a.get());
    auto graph = std::make_unique<captured_graph>(a);
    memory.end_graph_pool(0, id);
    return std::pair{p, std::move(graph)};
  };

  auto const [first, first_graph] = capture_for({0, 1});
  void* const first_kept = kept;
  CHECK(captured() == 2_MiB);
  auto const [second, second_graph] = capture_for({0, 1});
  CHECK(second == first);  // given back in the capture before
  CHECK(captured() == 2_MiB);
  memory.deallocate(first_kept, 2_MiB, 0, a.get());
  memory.deallocate(kept, 2_MiB, 0, a.get());
  CHECK(captured() == 6_MiB);
  auto const [third, third_graph] = capture_for({0, 1});  // what was given back between the captures, too
  CHECK(reserved() == 6_MiB);
  CHECK(captured() == 4_MiB);
  auto const [other, other_graph] = capture_for({0, 2});
  CHECK(reserved() > 6_MiB);
  CHECK(captured() == 6_MiB);

  for (int i = 0; i < 3; ++i) {
    first_graph->launch(b);
    second_graph->launch(b);
    third_graph->launch(b);
  }
  for (int i = 0; i < 3; ++i) memory.release_graph_pool({0, 1});
  CHECK(captured() == 2_MiB);
  memory.release_graph_pool({0, 2});
  CHECK(captured() == 0);
}

// As PyTorch's trees of graphs do it: the copies of a graph's inputs are allocated before its capture, and freed in it.
TEST_CASE_FIXTURE(idle_world, "graphs of a shared pool have what was allocated for them outside of captures, too") {
  memory.use("unchecked");  // nobody tells the check that these graphs run one after another
  auto const numbers_now = [&] { return numbers(memory.stack(0)).at(0); };
  std::vector<std::unique_ptr<captured_graph>> graphs;
  auto const record = [&] {
    memory.begin_graph_pool(0, {0, 1}, [&](cudaStream_t stream) { return stream == a.get(); });
    void* const input = tensor(memory, 2_MiB, a);
    begin_capture(a);
    void* const scratch = memory.allocate(2_MiB, 0, a.get());
    write(a, scratch, 2_MiB);
    memory.deallocate(input, 2_MiB, 0, a.get());
    memory.deallocate(scratch, 2_MiB, 0, a.get());
    graphs.push_back(std::make_unique<captured_graph>(a));
    memory.end_graph_pool(0, {0, 1});
  };
  record();
  CHECK(numbers_now().captured.value() == 4_MiB);
  memory.share_graph_pool({0, 1});
  for (int i = 0; i < 3; ++i) record();
  CHECK(numbers_now().captured.value() == 6_MiB);  // with the first input, which was allocated before
  CHECK(numbers_now().reserved.value() == 6_MiB);

  void* const outside = tensor(memory, 2_MiB, a);  // no pool is open
  CHECK(numbers_now().captured.value() == 6_MiB);
  memory.begin_graph_pool(0, {0, 1}, [&](cudaStream_t stream) { return stream == a.get(); });
  void* const elsewhere = tensor(memory, 2_MiB, b);
  void* const inside = tensor(memory, 2_MiB, a);
  CHECK(numbers_now().captured.value() == 4_MiB);
  memory.end_graph_pool(0, {0, 1});
  memory.deallocate(inside, 2_MiB, 0, a.get());  // also between captures
  CHECK(numbers_now().captured.value() == 6_MiB);
  memory.deallocate(elsewhere, 2_MiB, 0, b.get());
  memory.deallocate(outside, 2_MiB, 0, a.get());
  CHECK(numbers_now().captured.value() == 6_MiB);
  cudaDeviceSynchronize();
  for (int i = 0; i < 5; ++i) memory.release_graph_pool({0, 1});
  CHECK(numbers_now().captured.value() == 0);
  CHECK(numbers_now().requested.value() == 0);
}

TEST_CASE_FIXTURE(fresh_world, "a pool's end gives back what its broken captures freed, and no other pool's graph's") {
  framework_memory memory(&made_from, "unchecked");
  destroyable_stream const stream;
  auto const captured = [&] { return numbers(memory.stack(0)).at(0).captured.value_or(0); };
  auto const begin = [&](detail::graph_pool_id id) {
    memory.begin_graph_pool(0, id, [](cudaStream_t) { return true; });
    begin_capture(stream);
  };
  auto const break_capture = [&](detail::graph_pool_id id) {
    void* const from_before = memory.allocate(1_MiB, 0, stream.get());
    begin(id);
    CHECK(cudaStreamSynchronize(stream.get()) == cudaErrorStreamCaptureUnsupported);
    memory.deallocate(from_before, 1_MiB, 0, stream.get());
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaErrorStreamCaptureInvalidated);
    memory.end_graph_pool(0, id);
  };
  break_capture({0, 1});
  break_capture({0, 2});
  begin({0, 1});
  memory.deallocate(memory.allocate(2_MiB, 0, stream.get()), 2_MiB, 0, stream.get());
  captured_graph const graph(stream);
  memory.end_graph_pool(0, {0, 1});
  CHECK(captured() == 4_MiB);

  memory.release_graph_pool({0, 2});
  CHECK(captured() == 2_MiB);
  for (int i = 0; i < 2; ++i) memory.release_graph_pool({0, 1});
  CHECK(captured() == 0);
}

TEST_CASE_FIXTURE(idle_world, "what a graph of no pool frees is not for the next graph of its block's pool") {
  memory.use("unchecked");
  auto const capture = [&](detail::graph_pool_id id) {
    memory.begin_graph_pool(0, id, [&](cudaStream_t stream) { return stream == a.get(); });
    begin_capture(a);
    void* const p = memory.allocate(1_MiB, 0, a.get());
    auto graph = std::make_unique<captured_graph>(a);
    memory.end_graph_pool(0, id);
    return std::pair{p, std::move(graph)};
  };
  auto const [p, graph] = capture({0, 1});
  begin_capture(a);
  memory.deallocate(p, 1_MiB, 0, a.get());
  captured_graph const of_no_pool(a);
  auto const [q, next_graph] = capture({0, 1});
  CHECK(q != p);
}

TEST_CASE_FIXTURE(idle_world, "what a graph leaves when its pool ends is given back like other memory") {
  memory.begin_graph_pool(0, {0, 1}, [](cudaStream_t) { return true; });
  begin_capture(a);
  void* const p = memory.allocate(1_MiB, 0, a.get());
  { captured_graph const graph(a); }
  memory.end_graph_pool(0, {0, 1});
  memory.release_graph_pool({0, 1});
  memory.deallocate(p, 1_MiB, 0, a.get());
  CHECK(numbers(memory.stack(0)).at(1).captured == 0);
  CHECK(memory.allocate(1_MiB, 0, a.get()) == p);
  memory.deallocate(p, 1_MiB, 0, a.get());
}

TEST_CASE_FIXTURE(idle_world, "memory of a graph that ends while another is captured is given back later") {
  auto const all_streams = [](cudaStream_t) { return true; };
  memory.begin_graph_pool(0, {0, 1}, all_streams);
  begin_capture(a);
  void* const p = memory.allocate(1_MiB, 0, a.get());
  memory.deallocate(p, 1_MiB, 0, a.get());
  { captured_graph const graph(a); }
  memory.end_graph_pool(0, {0, 1});

  memory.begin_graph_pool(0, {0, 2}, all_streams);
  begin_capture(a);
  memory.release_graph_pool({0, 1});
  CHECK(is_capturing(a));
  { captured_graph const graph(a); }
  memory.end_graph_pool(0, {0, 2});
  CHECK(numbers(memory.stack(0)).at(1).captured == 1_MiB);
  memory.release_graph_pool({0, 2});
  CHECK(numbers(memory.stack(0)).at(1).captured == 0);
}

TEST_CASE_FIXTURE(idle_world, "a segment of a graph is everyone's again when it is given back") {
  begin_capture(a);
  void* const p = memory.allocate_segment(4_MiB, 0, a.get());
  cudaMemsetAsync(p, 0, 4_MiB, a.get());
  {
    captured_graph const graph(a);
    graph.launch(b);
  }
  memory.deallocate_segment(p, 4_MiB, 0, a.get());
  CHECK(numbers(memory.stack(0)).at(1).captured == 0);
  memory.deallocate(tensor(memory, 4_MiB, b), 4_MiB, 0, b.get());
  CHECK(numbers(memory.stack(0)).at(1).reserved == 4_MiB);
}

TEST_CASE_FIXTURE(idle_world, "a segment may be used on any stream, until it is given back") {
  memory.deallocate(tensor(memory, 4_MiB, b), 4_MiB, 0, b.get());  // all there is, so the segment has to wait
  void* const p = memory.allocate_segment(4_MiB, 0, a.get());
  begin_capture(a);
  cudaMemsetAsync(p, 0, 4_MiB, a.get());
  captured_graph const graph(a);
  destroyable_stream const c;
  graph.launch(c);
  memory.deallocate_segment(p, 4_MiB, 0, a.get());
  CHECK(requested(memory) == 0);
  memory.deallocate_segment(nullptr, 0, 0, a.get());
}

TEST_CASE_FIXTURE(idle_world, "a segment is of what is done where a wait for its stream would break a capture") {
  cudaStream_t blocking = nullptr;
  REQUIRE(cudaStreamCreate(&blocking) == cudaSuccess);  // which the legacy stream waits for
  memory.deallocate(tensor(memory, 4_MiB, cudaStreamLegacy), 4_MiB, 0, cudaStreamLegacy);
  begin_capture(blocking, cudaStreamCaptureModeRelaxed);
  void* const p = memory.allocate_segment(4_MiB, 0, cudaStreamLegacy);
  CHECK(is_capturing(blocking));
  end_capture(blocking);
  write(a, p, 4_MiB);  // parts may go to any stream
  memory.deallocate_segment(p, 4_MiB, 0, cudaStreamLegacy);
  CHECK(requested(memory) == 0);
  REQUIRE(cudaStreamDestroy(blocking) == cudaSuccess);
}

TEST_CASE_FIXTURE(idle_world, "a thread's own default stream that captures on another device is not the block's") {
  void* p = nullptr;
  std::thread([&] {
    device_guard const on_device(1);
    p = memory.allocate(1_MiB, 1, cudaStreamPerThread);
    write(cudaStreamPerThread, p, 1_MiB);
  }).join();
  begin_capture(cudaStreamPerThread, cudaStreamCaptureModeRelaxed);  // of device 0
  memory.deallocate(p, 1_MiB, 1, cudaStreamPerThread);
  end_capture(cudaStreamPerThread);
  device_guard const on_device(1);
  void* const q = memory.allocate(1_MiB, 1, cudaStreamPerThread);
  write(cudaStreamPerThread, q, 1_MiB);
  memory.deallocate(q, 1_MiB, 1, cudaStreamPerThread);
  CHECK(requested(memory, 1) == 0);
}

TEST_CASE_FIXTURE(idle_world,
                  "what a shared pool gets on the legacy stream outside of captures is not kept, and not said to be") {
  auto const all_streams = [](cudaStream_t) { return true; };
  memory.begin_graph_pool(0, {0, 1}, all_streams);
  begin_capture(a);
  void* const first = memory.allocate(1_MiB, 0, a.get());
  end_capture(a);
  memory.end_graph_pool(0, {0, 1});
  memory.share_graph_pool({0, 1});
  memory.begin_graph_pool(0, {0, 1}, all_streams);
  REQUIRE(memory.find_graph_pool(0, cudaStreamLegacy).has_value());
  CHECK(memory.find_graph_pool(0, cudaStreamLegacy)->capture == 0);
  CHECK(memory.find_graph_pool(0, nullptr)->capture == 0);
  CHECK(memory.find_graph_pool(0, a.get())->capture != 0);
  void* const p = memory.allocate(4_MiB, 0, nullptr);
  memory.end_graph_pool(0, {0, 1});
  memory.deallocate(p, 4_MiB, 0, nullptr);
  CHECK(numbers(memory.stack(0)).at(1).captured == 0);
  memory.deallocate(first, 1_MiB, 0, a.get());
  for (int i = 0; i < 2; ++i) memory.release_graph_pool({0, 1});
}

TEST_CASE("random programs of tensors on three streams keep every order, in all modes") {
  for (sim::mode const mode : all_sim_modes)
    for (unsigned seed = 0; seed < 3; ++seed) {
      watched_world const world(mode);
      sim::set_seed(seed);
      framework_memory memory(&made_from, "pool");
      destroyable_stream const s[3];
      std::mt19937 random(seed);
      struct live {
        void* p;
        std::size_t bytes;
        int stream;
      };
      std::vector<live> tensors;
      for (int step = 0; step < 100; ++step) {
        if (tensors.size() < 8) {
          int const on = static_cast<int>(random() % 3);
          std::size_t const bytes = random() % 300'000 + 1;
          tensors.push_back({tensor(memory, bytes, s[on]), bytes, on});
        }
        live& one = tensors[random() % tensors.size()];
        int const user = static_cast<int>(random() % 3);
        order(s[one.stream], s[user]);
        sim::touch(s[user].get(), one.p, one.bytes, sim::access::read);
        if (user != one.stream) memory.record_stream(one.p, s[user].get());
        if (random() % 2 == 0) {
          memory.deallocate(one.p, one.bytes, 0, s[one.stream].get());
          one = tensors.back();
          tensors.pop_back();
        }
      }
      for (live const& one : tensors) memory.deallocate(one.p, one.bytes, 0, s[one.stream].get());
      CHECK(requested(memory) == 0);
    }
}

TEST_CASE("threads of several frameworks share the stacks, which are made once") {
  sim::reset();
  framework_memory memory([](std::string const&) { return any_resource(device{} | pool{} | statistics{}); }, "");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&memory, of = t % 2] {
      cudaSetDevice(of);
      destroyable_stream const own, other;
      for (std::size_t i = 1; i < 200; ++i) {
        void* const p = memory.allocate(i * 512, of, own.get());
        if (i % 3 == 0) memory.record_stream(p, other.get());
        memory.deallocate(p, i * 512, of, own.get());
        if (i % 50 == 0) memory.trim();
      }
    });
  for (std::thread& each : threads) each.join();
  for (int of : {0, 1}) {
    layer_numbers const counted = numbers(memory.stack(of)).front();
    CHECK(counted.requested == 0);
    CHECK(counted.live_total == 2 * 199);
  }
  memory.trim();
  CHECK(sim::live_bytes(0) + sim::live_bytes(1) == 0);
}
