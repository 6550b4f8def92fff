// Compiled where RMM's wheel is (cmake/get-rmm), and of RMM itself calls only what calls no CUDA: its library has a
// CUDA runtime of its own. test/gpu/rmm.cpp has the rest.
#include <weir/bridges/rmm.hpp>

#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/numbers.hpp>
#include <weir/core/report.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/order.hpp>
#include <weir/sources.hpp>

#include <doctest/doctest.h>
#include <support/captures.hpp>
#include <support/sim_fixture.hpp>

#include <string>
#include <type_traits>

using namespace weir;
using namespace weir::test;

namespace {

using pooled = made_by<decltype(async{} | pool{})>;
using pinned_pooled = made_by<decltype(pinned{} | pool{})>;

template <class R>
using for_rmm_of = rmm_resource<resource_ref<R>>;

static_assert(std::is_constructible_v<rmm::device_async_resource_ref, for_rmm_of<pooled>&>);
static_assert(std::is_constructible_v<rmm::device_async_resource_ref, resource_ref<pooled>&>);
static_assert(std::is_constructible_v<rmm::device_async_resource_ref, any_resource&>);
static_assert(!std::is_constructible_v<rmm::host_async_resource_ref, for_rmm_of<pooled>&>);
static_assert(std::is_constructible_v<rmm::host_device_async_resource_ref, for_rmm_of<pinned_pooled>&>);
static_assert(std::is_constructible_v<rmm::host_resource_ref, for_rmm_of<host_resource>&>);
static_assert(handle<for_rmm_of<pooled>>);
static_assert(knows_blocks<for_rmm_of<pooled>> && !knows_blocks<for_rmm_of<host_resource>>);

}  // namespace

TEST_CASE("a stack behind RMM's reference serves in stream order") {
  lazy_world const world;
  auto memory = make(async{} | pool{} | statistics{});
  auto theirs = for_rmm(memory);
  rmm::device_async_resource_ref ref = theirs;
  weir::stream const stream, other;
  void* const p = ref.allocate(stream_ref(stream), 1000, 256);
  CHECK(memory.numbers().requested.current == 1000);
  sim::touch(stream.get(), p, 1000, sim::access::write);
  ref.deallocate(stream_ref(stream), p, 1000, 256);
  void* const q = ref.allocate(stream_ref(other), 1000, 256);
  CHECK(q != p);  // its work is not done
  ref.deallocate(stream_ref(other), q, 1000, 256);
  CHECK(ref.allocate(stream_ref(stream), 1000, 256) == p);
  ref.deallocate(stream_ref(stream), p, 1000, 256);
  CHECK(memory.numbers().requested.current == 0);
}

TEST_CASE("what is one memory is one resource to RMM") {
  fresh_world const world;
  auto memory = make(async{} | pool{});
  auto other = make(async{} | pool{});
  CHECK(for_rmm(memory) == for_rmm(share(memory)));
  CHECK(for_rmm(memory) != for_rmm(other));
  any_resource const owner(async{} | pool{});
  CHECK(for_rmm(owner).memory() == owner);
}

TEST_CASE("a stack can be asked and trimmed through what is made for RMM") {
  fresh_world const world;
  auto recipe = async{.device = 1} | pool{} | limit{.max_bytes = 64_MiB, .name = "search"};
  auto memory = make(recipe);
  any_resource const owned(recipe);
  auto const ask = [](auto const& theirs) {
    theirs.deallocate(host_order, theirs.allocate(host_order, 1_MiB), 1_MiB);
    CHECK(device_of(theirs) == 1);
    CHECK(taken(theirs, 1) == 256);
    CHECK(!holds_captured(theirs, 0));
    CHECK(find_limit(theirs, "search").max_bytes() == 64_MiB);
    CHECK(numbers(theirs).size() == 3);
    CHECK(report_of(theirs).chain() == "search: limit(64.00 MiB) > pool > async(1)");
    CHECK(trim(theirs) > 0);
  };
  ask(for_rmm(memory));
  ask(for_rmm(owned));
}

TEST_CASE("what a graph holds is known to layers on what is made for RMM") {
  watched_world const world;
  auto bottom = make(async{} | pool{});
  auto memory = make(for_rmm(bottom) | limit{1_MiB});
  weir::stream const stream;
  void* const p = memory.allocate(stream, 1000);
  stream.synchronize();
  capture_scope const declared;
  begin_capture(stream);
  memory.deallocate(stream, p, 1000);
  captured_graph const graph(stream);
  CHECK(holds_captured(for_rmm(bottom), 0));
  CHECK(memory.captured() == 1024);
}

TEST_CASE("memory that several streams have used goes back without a wait through what is made for RMM") {
  lazy_world const world;
  auto memory = make(async{} | pool{.initial_bytes = 1_MiB});
  auto const theirs = for_rmm(memory);
  weir::stream const s, t;
  void* const p = theirs.allocate(s, 1_MiB);
  sim::touch(t.get(), p, 1_MiB, sim::access::read);
  sim::reset_counters();
  deallocate_after(theirs, s, p, 1_MiB, {t});
  CHECK(sim::calls("cudaStreamSynchronize") + sim::calls("cudaStreamWaitEvent") == 0);
  CHECK(memory.numbers().pending == 1_MiB);
}

TEST_CASE("a refusal is RMM's out of memory, and says what the stack says") {
  fresh_world const world;
  auto memory = make(async{} | pool{} | limit{.max_bytes = 1_MiB, .name = "tables"});
  auto theirs = for_rmm(memory);
  rmm::device_async_resource_ref ref = theirs;
  try {
    ref.allocate_sync(2_MiB, 256);
    FAIL("nothing was thrown");
  } catch (rmm::out_of_memory const& error) {
    CHECK(std::string(error.what()).find("tables") != std::string::npos);
  }
}

TEST_CASE("what RMM has a reference to is a source") {
  fresh_world const world;
  auto bottom = make(async{} | pool{} | statistics{});
  auto theirs = for_rmm(bottom);
  {
    auto memory = make(from_cuda_mr(rmm::device_async_resource_ref(theirs)) | pool{});
    void* const p = memory.allocate(cudaStreamPerThread, 1000);
    CHECK(bottom.numbers().requested.current >= 1000);
    memory.deallocate(cudaStreamPerThread, p, 1000);
  }
  CHECK(bottom.numbers().requested.current == 0);
}
