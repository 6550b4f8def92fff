#include <weir/core/resource.hpp>

#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <core/recorder.hpp>

using namespace weir;

namespace {

struct no_deallocate {
  void* allocate(stream_ref, std::size_t, std::size_t);
};
struct throwing_deallocate {
  void* allocate(stream_ref, std::size_t, std::size_t);
  void deallocate(stream_ref, void*, std::size_t, std::size_t);  // not noexcept
};
struct least {
  void* allocate(stream_ref, std::size_t, std::size_t);
  void deallocate(stream_ref, void*, std::size_t, std::size_t) noexcept;
};
struct from_plain_stream {  // what speaks of cudaStream_t works too; it is never asked in host order
  void* allocate(cudaStream_t, std::size_t, std::size_t);
  void deallocate(cudaStream_t, void*, std::size_t, std::size_t) noexcept;
};

static_assert(resource<least>);
static_assert(resource<recorder_resource<>>);
static_assert(!resource<no_deallocate>);
static_assert(!resource<throwing_deallocate>);
static_assert(resource<from_plain_stream> && !host_ordered<from_plain_stream>);
static_assert(!resource<int>);

// What is not stated is not so.
static_assert(!device_accessible<least> && !host_accessible<least> && !host_ordered<least>);
static_assert(device_accessible<recorder_resource<true, false>> && !host_accessible<recorder_resource<true, false>>);
static_assert(!device_accessible<recorder_resource<false, true>> && host_accessible<recorder_resource<false, true>>);
static_assert(host_ordered<passing_resource<recorder_resource<true, true, true>>>);
static_assert(!host_ordered<passing_resource<recorder_resource<true, true, false>>>);

}  // namespace

TEST_CASE("a host-ordered resource is asked in host order, and nothing is waited for") {
  fresh_record const record;
  sim::reset();
  auto memory = make(recorder<>{});
  void* const p = allocate_sync(memory, 100, 512);
  deallocate_sync(memory, p, 100, 512);
  REQUIRE(recorded.size() == 2);
  for (auto const& call : recorded) {
    CHECK(call.stream.is_host_order());
    CHECK(call.p == p);
    CHECK(call.bytes == 100);
    CHECK(call.alignment == 512);
  }
  CHECK(sim::calls() == 0);
}

TEST_CASE("a resource that knows only streams is asked on the default stream, which is waited for") {
  fresh_record const record;
  sim::reset();
  auto memory = make(recorder<true, false, false>{});
  void* const p = allocate_sync(memory, 100);
  CHECK(sim::calls("cudaStreamSynchronize") == 1);
  deallocate_sync(memory, p, 100);
  REQUIRE(recorded.size() == 2);
  for (auto const& call : recorded) {
    CHECK(!call.stream.is_host_order());
    CHECK(call.stream.get() == cudaStreamLegacy);
  }
}

TEST_CASE("a wait on the default stream that would break a capture is refused before anything is done") {
  fresh_record const record;
  sim::reset();
  auto memory = make(recorder<true, false, false>{});
  cudaStream_t blocking = nullptr;
  REQUIRE(cudaStreamCreate(&blocking) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  CHECK_THROWS_AS(allocate_sync(memory, 100), cuda_error);
  CHECK(sim::captures_invalidated() == 0);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(blocking, &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaStreamDestroy(blocking) == cudaSuccess);
  CHECK(recorded.empty());
}

TEST_CASE("if the wait fails the memory goes back and the error is thrown") {
  fresh_record const record;
  sim::reset();
  auto memory = make(recorder<true, false, false>{});
  sim::fail_call("cudaStreamSynchronize", 1, cudaErrorUnknown);
  CHECK_THROWS_AS(allocate_sync(memory, 100), cuda_error);
  REQUIRE(recorded.size() == 2);
  CHECK(!recorded[1].allocates);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("nothing is not waited for") {
  fresh_record const record;
  sim::reset();
  auto memory = make(recorder<true, false, false>{});
  allocate_sync(memory, 0);
  CHECK(sim::calls() == 0);
}

TEST_CASE(
    "a resource that does not say what it takes is asked through its upstream, and else takes what is asked for") {
  auto const silent = make(recorder<>{} | passing{});
  CHECK(taken(silent, 1000, 4096) == 1000);
  CHECK_FALSE(holds_captured(silent, 0));
  struct block_of_4096 : recorder_resource<> {
    using recorder_resource<>::recorder_resource;
    std::size_t taken(std::size_t, std::size_t) const noexcept { return 4096; }
    bool holds_captured(std::uint64_t capture) const noexcept { return capture == 7; }
  };
  auto const blocks = [] { return block_of_4096(1); };
  auto const saying = make(blocks | passing{} | passing{});
  CHECK(taken(saying, 1000) == 4096);
  CHECK(holds_captured(saying, 7));
  CHECK_FALSE(holds_captured(saying, 8));
}
