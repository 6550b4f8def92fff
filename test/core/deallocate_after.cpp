#include <weir/core/deallocate_after.hpp>

#include <weir/adaptors.hpp>
#include <weir/core.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources.hpp>
#include <weir/sources/virtual_memory.hpp>
#include <weir/testing/checked.hpp>

#include <doctest/doctest.h>
#include <support/captures.hpp>
#include <support/destroyable_stream.hpp>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

using namespace weir;
using namespace weir::test;

namespace {

/// A world in which streams do nothing before somebody waits for them, and every use is checked.
struct idle_world : watched_world {
  weir::stream const a, b, c;
};

/// The same, and what is misused is written down.
struct misused_world : idle_world {
  misused_world() {
    what().clear();
    before_ = set_misuse_handler([](char const* text) noexcept { what() = text; });
  }
  ~misused_world() { set_misuse_handler(before_); }
  static std::string& what() {
    static std::string text;
    return text;
  }

 private:
  misuse_handler before_;
};

/// Allocated on `a`, and read on `b`, which `a` does not wait for.
template <class Memory>
void* used_on_both(Memory& memory, stream_ref a, stream_ref b, std::size_t bytes) {
  void* const p = memory.allocate(a, bytes);
  write(a, p, bytes);
  order(a, b);
  sim::touch(b.get(), p, bytes, sim::access::read);
  return p;
}

/// Gives the block that was freed last to the same stream again, and knows nothing of other streams.
template <resource Upstream>
class last_block_resource {
 public:
  template <recipe F, class Options>
  last_block_resource(F const& upstream, Options const&) : upstream_(upstream()) {}
  ~last_block_resource() { upstream_.deallocate(cudaStreamLegacy, kept_, 4096, 256); }
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    return kept_ != nullptr ? std::exchange(kept_, nullptr) : upstream_.allocate(stream, bytes, alignment);
  }
  void deallocate(stream_ref, void* p, std::size_t, std::size_t) noexcept { kept_ = p; }
  Upstream& upstream() noexcept { return upstream_; }
  Upstream const& upstream() const noexcept { return upstream_; }

 private:
  Upstream upstream_;
  void* kept_ = nullptr;
};
struct keeping_order {
  template <resource Upstream>
  using on = last_block_resource<Upstream>;
};

struct without_caching {
  without_caching() { setenv("WEIR_NO_CACHING", "1", 1); }
  ~without_caching() { unsetenv("WEIR_NO_CACHING"); }
};

}  // namespace

TEST_CASE_FIXTURE(idle_world, "memory is not used again before the work of all its streams is done") {
  auto memory = make(device{} | pool{.initial_bytes = 4_MiB} | checked{});
  destroyable_stream const own, other;  // with an event behind each free
  void* const p = used_on_both(memory, own, other, 1_MiB);
  memory.deallocate_after(own, p, 1_MiB, {other});
  CHECK(memory.allocate(own, 1_MiB) != p);  // its own stream would have it at once after `deallocate`
  own.finish();
  CHECK(memory.allocate(own, 2_MiB) != p);  // all that is left, though the other is still at work
  CHECK(memory.upstream().numbers().pending == 1_MiB);
  other.finish();
  CHECK(memory.allocate(c, 1_MiB) == p);
}

TEST_CASE_FIXTURE(idle_world, "neither a stream nor the host waits, and no call is made for streams that last") {
  auto memory = make(device{} | pool{.initial_bytes = 4_MiB} | checked{});
  destroyable_stream const d;
  auto const calls_of_free = [&](stream_ref other) {
    void* const p = used_on_both(memory, a, other, 1000);
    memory.deallocate_after(a, p, 1000, {other});  // streams are met, and events made
    void* const q = used_on_both(memory, a, other, 1000);
    sim::reset_counters();
    memory.deallocate_after(a, q, 1000, {other});
    return sim::calls();
  };
  CHECK(calls_of_free(b) == 0);
  CHECK(calls_of_free(cudaStreamPerThread) == 0);
  CHECK(calls_of_free(d) == 3);  // as for a free on `d` alone:
  CHECK(sim::calls("cudaStreamGetId") == 1);
  CHECK(sim::calls("cudaStreamGetCaptureInfo") == 1);
  CHECK(sim::calls("cudaEventRecord") == 1);
}

TEST_CASE_FIXTURE(idle_world, "who needs it sooner waits on the device, for each of its streams") {
  auto memory = make(device{} | pool{.initial_bytes = 2_MiB, .max_bytes = 2_MiB, .synchronize = false} | checked{});
  void* const p = used_on_both(memory, a, b, 2_MiB);
  memory.deallocate_after(a, p, 2_MiB, {b});
  sim::reset_counters();
  CHECK(memory.allocate(c, 2_MiB) == p);
  CHECK(sim::calls("cudaStreamWaitEvent") == 2);
  write(c, p, 2_MiB);

  order(c, a);
  sim::touch(a.get(), p, 2_MiB, sim::access::read);
  memory.deallocate_after(c, p, 2_MiB, {a});
  sim::reset_counters();
  CHECK(memory.allocate(a, 2_MiB) == p);  // one of its own streams waits for the other
  CHECK(sim::calls("cudaStreamWaitEvent") == 1);
  write(a, p, 2_MiB);
  memory.deallocate(a, p, 2_MiB);
}

TEST_CASE_FIXTURE(idle_world, "a stream that ends afterwards is still waited for") {
  auto memory = make(device{} | pool{.initial_bytes = 2_MiB, .max_bytes = 2_MiB} | checked{});
  for (int i = 0; i < 200; ++i) {  // and what is remembered of streams that ended is used again
    destroyable_stream const own, other;
    void* const p = used_on_both(memory, own, other, 2_MiB);
    memory.deallocate_after(own, p, 2_MiB, {other});
  }
  CHECK(memory.upstream().snapshot().lanes < 30);
}

TEST_CASE_FIXTURE(idle_world, "any number of streams may have used it, in any order, some twice") {
  auto memory = make(device{} | pool{.initial_bytes = 2_MiB, .max_bytes = 2_MiB} | checked{});
  std::vector<weir::stream> many(20);
  for (int round = 0; round < 3; ++round) {
    void* const p = memory.allocate(a, 2_MiB);
    write(a, p, 2_MiB);
    std::vector<stream_ref> others;
    for (std::size_t i = 0; i < 2 * many.size(); ++i) {
      weir::stream const& each = many[(i * 7 + static_cast<std::size_t>(round)) % many.size()];
      order(a, each);
      sim::touch(each.get(), p, 2_MiB, sim::access::read);
      others.push_back(each);
    }
    others.push_back(a);
    sim::reset_counters();
    memory.deallocate_after(a, p, 2_MiB, others);
    CHECK(sim::calls("cudaStreamSynchronize") + sim::calls("cudaEventSynchronize") ==
          0);                                       // there is room to remember them
    CHECK(sim::calls("cudaStreamWaitEvent") == 0);  // each by itself
  }
  memory.upstream().synchronize();
  CHECK(memory.upstream().numbers().pending == 0);
}

TEST_CASE_FIXTURE(idle_world, "however many sets of streams have used it, no more is held and remembered") {
  sim::set_mode(sim::mode::immediate);
  std::size_t initial = 0;
  SUBCASE("where the pool is searched") {}
  SUBCASE("where there is enough without") { initial = 2048_MiB; }
  auto memory = make(device{} | pool{.initial_bytes = initial});
  std::vector<weir::stream> const streams(24);
  std::mt19937 random(1);
  auto const any = [&]() -> stream_ref { return streams[random() % streams.size()]; };
  std::vector<void*> live(100);
  for (int i = 0; i < 10'000; ++i) {
    void*& p = live[random() % live.size()];
    if (p != nullptr) memory.deallocate_after(any(), p, 100'000, {any(), any(), any()});
    p = memory.allocate(any(), 100'000);
  }
  pool_snapshot const now = memory.snapshot();
  CHECK(now.numbers.reserved.peak <= std::max(initial, now.numbers.allocated.peak + 18_MiB));
  CHECK(now.lanes < 200);
  CHECK(now.host_bytes < 1_MiB);
  for (void* const p : live) memory.deallocate(a, p, 100'000);
}

TEST_CASE_FIXTURE(idle_world, "a wait for all waits for each stream that is not done, and for no device") {
  auto memory = make(device{} | pool{.initial_bytes = 4_MiB} | checked{});
  destroyable_stream const one, other, idle;
  void* const p = used_on_both(memory, one, other, 1_MiB);
  memory.deallocate_after(one, p, 1_MiB, {idle, other});
  idle.finish();
  one.finish();
  memory.upstream().trim();  // asks which of them are done
  sim::reset_counters();
  memory.upstream().synchronize();
  CHECK(sim::calls("cudaEventSynchronize") == 1);
  CHECK(sim::calls("cudaDeviceSynchronize") == 0);
  CHECK(memory.upstream().numbers().pending == 0);
}

TEST_CASE_FIXTURE(idle_world, "default streams are waited for as others are") {
  auto memory = make(device{} | pool{.initial_bytes = 2_MiB, .max_bytes = 2_MiB} | checked{});
  stream_ref const all[] = {cudaStreamLegacy, cudaStreamPerThread, a};
  for (stream_ref const own : all)
    for (stream_ref const other : all) {
      void* const p = used_on_both(memory, own, other, 2_MiB);
      memory.deallocate_after(own, p, 2_MiB, {other});
    }
}

TEST_CASE_FIXTURE(idle_world, "host order adds nothing to the streams, and alone is host order") {
  auto memory = make(device{} | pool{.initial_bytes = 4_MiB} | checked{});
  void* const p = used_on_both(memory, a, b, 1_MiB);
  a.synchronize();
  memory.deallocate_after(host_order, p, 1_MiB, {b, host_order});
  CHECK(memory.upstream().numbers().pending == 1_MiB);
  b.synchronize();

  void* const q = memory.allocate(host_order, 1_MiB);
  memory.deallocate_after(host_order, q, 1_MiB, {});
  memory.upstream().synchronize();
  CHECK(memory.upstream().numbers().pending == 0);
}

TEST_CASE_FIXTURE(idle_world, "null is nothing, wherever it is given") {
  auto memory = make(async{} | pool{} | limit{.max_bytes = 1_MiB} | statistics{});
  deallocate_after(memory, a, nullptr, 0, {b});
  deallocate_after(any_ref(memory), a, nullptr, 0, {b});
  any_resource const owned(async{});
  any_resource moved(owned);
  any_resource const taken(std::move(moved));
  deallocate_after(taken, a, nullptr, 0, {b});
  deallocate_after(moved, a, nullptr, 0, {b});  // NOLINT(bugprone-use-after-move)
}

// ---- layers

TEST_CASE_FIXTURE(idle_world, "layers above count it, and hand it on to the pool") {
  auto const on_each = [&](auto const& recipe) {
    auto memory = make(recipe);
    void* const p = used_on_both(memory, a, b, 3000);
    sim::reset_counters();
    deallocate_after(memory, a, p, 3000, {b});
    CHECK(sim::calls("cudaStreamWaitEvent") == 0);
    CHECK(find<pool_resource>(memory).numbers().pending == 3072);
    CHECK(memory.allocate(a, 3000) != p);
  };
  on_each(device{} | pool{} | limit{.max_bytes = 1_MiB} | checked{});
  on_each(device{} | pool{} | statistics{} | checked{});
  on_each(device{} | pool{} | logging{.path = "/dev/null"} | checked{});
  on_each(device{} | pool{} | tracking{.report_leaks = false} | checked{});
  on_each(device{} | pool{} | binning{{bin{256}}} | checked{});
  on_each(device{} | pool{} | aligned{.alignment = 512} | checked{});
  on_each(device{} | pool{} | prefetch{} | checked{});
  on_each(device{} | pool{} | tracking{.report_leaks = false} | checked{});
  on_each(device{} | pool{} | on_failure{{{"none", [](memory_request const&) { return std::size_t{0}; }}}} | checked{});
  host_resource contents;
  on_each(device{} | pool{} | spill{.to = share(contents)} | checked{});

  auto memory = make(device{} | pool{} | limit{.max_bytes = 1_MiB} | statistics{});
  void* const p = memory.allocate(a, 3000);
  memory.deallocate_after(a, p, 3000, {b});
  CHECK(memory.numbers().requested.current == 0);
  CHECK(find<limit_resource>(memory).used() == 0);
}

TEST_CASE_FIXTURE(idle_world, "handles and erased stacks hand it on") {
  auto memory = make(device{} | pool{} | checked{});
  auto const through = [&](auto handle) {
    void* const p = used_on_both(handle, a, b, 3000);
    sim::reset_counters();
    deallocate_after(handle, a, p, 3000, {b});
    CHECK(sim::calls("cudaStreamWaitEvent") == 0);
  };
  through(share(memory));
  through(any_ref(memory));
  through(any_resource(share(memory)));
  CHECK(memory.upstream().numbers().allocated.current == 0);
}

TEST_CASE_FIXTURE(idle_world, "bins, arenas and blocks of one size keep it until all is done") {
  auto const on_each = [&](auto const& recipe) {
    auto memory = make(recipe);
    void* const p = used_on_both(memory, a, b, 1000);
    memory.deallocate_after(a, p, 1000, {b});
    CHECK(memory.allocate(a, 1000) != p);
  };
  on_each(device{} | arena{} | checked{});
  on_each(device{} | fixed_size{.block_bytes = 1024} | checked{});
  on_each(device{} | binning{{bin{1024}}} | checked{});
  on_each(virtual_memory{} | pool{} | checked{});
}

// ---- other memory

TEST_CASE_FIXTURE(idle_world, "on memory without a pool the stream waits for the others, and the host for none") {
  auto memory = make(async{} | checked{});
  void* const p = used_on_both(memory, a, b, 1_MiB);
  auto const handles = sim::live_handles();
  sim::reset_counters();
  deallocate_after(memory, a, p, 1_MiB, {b, c, a, host_order});
  CHECK(sim::calls("cudaStreamWaitEvent") == 2);
  CHECK(sim::calls("cudaStreamSynchronize") == 0);
  CHECK(sim::live_handles() == handles);
  void* const r = used_on_both(memory, a, b, 1_MiB);
  sim::reset_counters();
  deallocate_after(memory, a, r, 1_MiB, {b});
  CHECK(sim::calls() == 1 + 9);  // the free, and what it costs to let one stream wait for another

  void* const q = used_on_both(memory, a, b, 1_MiB);
  a.synchronize();
  deallocate_after(memory, host_order, q, 1_MiB, {b});
}

TEST_CASE_FIXTURE(idle_world, "without caching the stream waits, too") {
  without_caching const all_pass;
  auto const on_each = [&](auto const& recipe) {
    auto memory = make(recipe);
    void* const p = used_on_both(memory, a, b, 1_MiB);
    sim::reset_counters();
    memory.deallocate_after(a, p, 1_MiB, {b});
    CHECK(sim::calls("cudaStreamWaitEvent") == 1);
  };
  on_each(async{} | pool{} | checked{});
  on_each(async{} | arena{} | checked{});
}

TEST_CASE_FIXTURE(idle_world, "where no event can be had, the host waits") {
  auto memory = make(async{} | checked{});
  for (char const* call : {"cudaEventCreateWithFlags", "cudaEventRecord", "cudaStreamWaitEvent"}) {
    void* const p = used_on_both(memory, a, b, 1_MiB);
    sim::reset_counters();
    sim::fail_call(call, 1, cudaErrorUnknown);
    deallocate_after(memory, a, p, 1_MiB, {b});
    CHECK(sim::calls("cudaStreamSynchronize") == 1);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
  }
}

TEST_CASE_FIXTURE(idle_world, "what nobody can wait for is kept for good") {
  auto memory = make(async{});
  void* const p = used_on_both(memory, a, b, 1_MiB);
  sim::fail_from(1, cudaErrorUnknown);
  deallocate_after(memory, a, p, 1_MiB, {b});
  sim::clear_failure();
  static_cast<void>(cudaGetLastError());
  CHECK(sim::live_allocations() == 1);
}

// ---- captures

TEST_CASE_FIXTURE(idle_world, "a pool keeps it for the graph and does not use it again in the capture") {
  auto memory = make(device{} | pool{.initial_bytes = 4_MiB} | checked{});
  capture_scope const declared;
  begin_capture(a);
  order(a, b);
  void* const p = used_on_both(memory, a, b, 1_MiB);
  memory.deallocate_after(a, p, 1_MiB, {b});
  CHECK(memory.allocate(a, 1_MiB) != p);
  CHECK(memory.upstream().numbers().captured == 1_MiB);
  order(b, a);
  {
    captured_graph const graph(a);
    graph.launch(a);
    a.synchronize();
  }
  memory.upstream().release_captured();
  CHECK(memory.upstream().numbers().captured == 0);
}

TEST_CASE_FIXTURE(idle_world, "memory from outside that one captured stream has used belongs to the graph") {
  auto memory = make(device{} | pool{.initial_bytes = 4_MiB});
  void* const p = memory.allocate(a, 1_MiB);
  void* const q = memory.allocate(b, 1_MiB);
  capture_scope const declared;
  begin_capture(b);
  std::uint64_t const capture = capture_id(b);
  memory.deallocate_after(a, p, 1_MiB, {b});
  memory.deallocate_after(b, q, 1_MiB, {a});
  CHECK(is_capturing(b));
  CHECK(memory.numbers().captured == 2_MiB);
  CHECK(memory.holds_captured(capture));
  { captured_graph const graph(b); }
}

TEST_CASE_FIXTURE(idle_world, "on a source a free in a capture comes after the captured work of all") {
  auto memory = make(async{});
  begin_capture(a);
  order(a, b);
  void* const p = memory.allocate(a, 1_MiB);
  write(a, p, 1_MiB);
  order(a, b);
  write(b, p, 1_MiB);
  deallocate_after(memory, a, p, 1_MiB, {b});
  order(b, a);
  captured_graph const graph(a);
  graph.launch(a);
  a.synchronize();
}

TEST_CASE_FIXTURE(idle_world, "streams of another device are waited for, in a capture too") {
  auto memory = make(async{.device = 0});
  std::optional<device_guard> elsewhere(std::in_place, 1);
  destroyable_stream const other;
  elsewhere.reset();
  for (bool const captured : {false, true}) {
    if (captured) begin_capture(a);
    order(a, other);
    void* const p = memory.allocate(a, 1_MiB);
    sim::reset_counters();
    deallocate_after(memory, a, p, 1_MiB, {other});
    CHECK(sim::calls("cudaStreamWaitEvent") == 1);
    CHECK(sim::calls("cudaStreamSynchronize") == 0);
    if (!captured) continue;
    elsewhere.emplace(1);
    order(other, a);
    elsewhere.reset();
    captured_graph const graph(a);
  }
}

TEST_CASE_FIXTURE(idle_world, "a default stream is that of the memory's device, whichever the others are of") {
  auto memory = make(device{.device = 0} | keeping_order{} | checked{});
  std::optional<device_guard> elsewhere(std::in_place, 1);
  destroyable_stream const other;
  elsewhere.reset();
  void* const p = used_on_both(memory, cudaStreamLegacy, other, 4096);
  deallocate_after(memory, cudaStreamLegacy, p, 4096, {other});
  CHECK(memory.allocate(cudaStreamLegacy, 4096) == p);
}

TEST_CASE_FIXTURE(idle_world, "a failure that leaves another device current does not move the free to that device") {
  auto memory = make(async{.device = 0} | checked{});
  std::optional<device_guard> elsewhere(std::in_place, 1);
  destroyable_stream const other;
  elsewhere.reset();
  void* const p = used_on_both(memory, cudaStreamPerThread, other, 4096);
  sim::fail_call("cudaSetDevice", 2, cudaErrorUnknown);  // the second goes back to the device that was current
  deallocate_after(memory, cudaStreamPerThread, p, 4096, {other});
  CHECK(current_device() == 1);
  cudaSetDevice(0);
}

TEST_CASE_FIXTURE(idle_world, "a default stream whose device CUDA does not say is waited for by the host") {
  auto memory = make(async{} | checked{});
  void* const p = memory.allocate(cudaStreamLegacy, 4096);
  sim::touch(cudaStreamLegacy, p, 4096, sim::access::write);
  sim::fail_call("cudaGetDevice", 1, cudaErrorUnknown);
  deallocate_after(memory, cudaStreamLegacy, p, 4096, {});
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE_FIXTURE(idle_world, "a default stream is the caller's, also where CUDA fails once to say of which device") {
  auto memory = make(host{});  // no device's, so that it is the current one's stream
  device_guard const elsewhere(1);
  void* const p = memory.allocate(cudaStreamPerThread, 4096);
  sim::touch(cudaStreamPerThread, p, 4096, sim::access::write);
  sim::fail_call("cudaGetDevice", 1, cudaErrorUnknown);
  deallocate_after(memory, cudaStreamPerThread, p, 4096, {});
  sim::clear_failure();
  CHECK(cudaStreamQuery(cudaStreamPerThread) == cudaSuccess);  // else the memory went while it was written
}

TEST_CASE_FIXTURE(misused_world, "on a source, streams of two captures are misuse, and the memory is kept") {
  auto memory = make(pinned{} | statistics{});
  void* const p = memory.allocate(a, 1000);
  begin_capture(b, cudaStreamCaptureModeRelaxed);
  begin_capture(c, cudaStreamCaptureModeRelaxed);
  deallocate_after(memory, a, p, 1000, {b, c});
  CHECK(what().find("two of its streams are being captured into different graphs") != std::string::npos);
  CHECK(memory.numbers().requested.current == 1000);
  { captured_graph const one(b); }
  { captured_graph const other(c); }
  memory.deallocate(a, p, 1000);
}

// ---- misuse

TEST_CASE_FIXTURE(misused_world, "a wrong free is told, and changes nothing") {
  auto memory = make(device{} | pool{} | statistics{});
  void* const p = memory.allocate(a, 1000);
  memory.deallocate_after(a, p, 999, {b});
  CHECK(what().find("it was allocated with 1000 B") != std::string::npos);
  memory.deallocate_after(a, p, 1000, {b});
  what().clear();
  memory.deallocate_after(a, p, 1000, {b});
  CHECK(what().find("freed twice") != std::string::npos);
  CHECK(memory.numbers().requested.current == 0);

  auto many = make(device{} | arena{});
  int not_its_own = 0;
  many.deallocate_after(a, &not_its_own, 1000, {b});
  CHECK(what().find("not this resource's memory") != std::string::npos);
}
