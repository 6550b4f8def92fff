#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/containers/buffer.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/error.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/host.hpp>
#include <weir/sources/pinned.hpp>
#include <weir/testing/checked.hpp>

#include <doctest/doctest.h>

#include <bridges/checked_memory.hpp>
#include <cstring>
#include <stdexcept>
#include <string>
#include <support/captures.hpp>
#include <type_traits>
#include <utility>
#include <vector>

using namespace weir;
using namespace weir::literals;

namespace {

static_assert(!std::is_copy_constructible_v<buffer<>> && !std::is_copy_assignable_v<buffer<>>);
static_assert(std::is_nothrow_move_constructible_v<buffer<>> && std::is_nothrow_move_assignable_v<buffer<>>);
using deduced = decltype(buffer(1, std::declval<stream_ref>(), std::declval<pinned_memory&>()));
static_assert(std::is_same_v<deduced, buffer<any_handle>>);

std::string text_of(auto const& b) {
  std::string text(b.size(), ' ');
  b.read(0, text.data(), text.size());
  return text;
}

/// A source of a user's that takes what the current device has, and does not say which that is.
struct current_memory_resource {
  void* allocate(stream_ref, std::size_t n, std::size_t) {
    void* p = nullptr;
    REQUIRE(cudaMalloc(&p, n) == cudaSuccess);
    last_device = current_device();
    return p;
  }
  void deallocate(stream_ref, void* p, std::size_t, std::size_t) noexcept {
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    last_device = current_device();
    CHECK(cudaFree(p) == cudaSuccess);
  }
  static constexpr bool device_accessible = true;
  int last_device = -1;
};

}  // namespace

TEST_CASE("it has the bytes, alignment, stream and memory that it was made with, and gives all back on its stream") {
  test::fresh_world const world;
  pinned_memory memory;
  stream const s;
  {
    buffer<pinned_memory> const b(1000, s, memory, 512);
    CHECK(b.data() != nullptr);
    CHECK(b.size() == 1000);
    CHECK(b.capacity() == 1000);
    CHECK(b.alignment() == 512);
    CHECK(b.stream() == stream_ref(s));
    CHECK(b.memory() == share(memory));
    CHECK(memory.live.begin()->second == pinned_memory::block{1000, 512});
    CHECK(memory.allocated_on.back() == stream_ref(s));
  }
  CHECK(memory.freed_on.back() == stream_ref(s));
  CHECK(memory.clean());
}

TEST_CASE("it stands on a stack, on any handle to one, or owns one together with others") {
  test::fresh_world const world;
  stream const s;
  {
    auto memory = make(async{} | pool{});
    any_resource const owner{async{} | pool{}};
    any_ref const ref(memory);
    std::vector<buffer<>> all;  // one type
    all.emplace_back(100, s, memory);
    all.emplace_back(100, s, share(memory));
    all.emplace_back(100, s, ref);
    all.emplace_back(100, s, owner);
    for (auto& b : all) {
      b.write(0, "some bytes", 10);
      CHECK(text_of(b).substr(0, 10) == "some bytes");
    }
    buffer<decltype(memory)> const named(100, s, memory), named_by_handle(100, s, share(memory));
    buffer<any_resource> const owning(100, s, owner);
    CHECK(owning.memory() == owner);
  }
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE("one on an owning handle may leave the function that made the stack") {
  test::fresh_world const world;
  auto const made = [](stream_ref s) {
    any_resource const memory{async{} | pool{}};
    buffer<> b(5, s, memory);
    b.write(0, "hello", 5);
    return b;
  };
  {
    stream const s;
    buffer<> const b = made(s);
    CHECK(text_of(b) == "hello");
  }
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE("on a pool and a weir::stream neither begin nor end makes a CUDA call") {
  test::fresh_world const world;
  auto memory = make(async{} | pool{});
  stream const s;
  { buffer<> const first(1_MiB, s, memory); }
  sim::reset_counters();
  {
    buffer<> a(1_MiB, s, memory);
    buffer<> b(std::move(a));
    a = std::move(b);
  }
  CHECK(sim::calls() == 0);
}

TEST_CASE("what is moved from is empty, may be assigned to, and what is assigned over is given back") {
  test::fresh_world const world;
  pinned_memory one, two;
  stream const s;
  {
    buffer<pinned_memory> a(100, s, one), b(200, s, two);
    void* const data = b.data();
    a = std::move(b);
    CHECK(one.live.empty());
    CHECK(a.data() == data);
    CHECK(a.memory() == share(two));
    CHECK(b.data() == nullptr);  // NOLINT(bugprone-use-after-move)
    CHECK(b.size() == 0);
    CHECK(b.capacity() == 0);
    CHECK_THROWS_AS(b.read(0, data, 1), std::out_of_range);
    b = buffer<pinned_memory>(300, s, one);
    CHECK(b.size() == 300);
    auto& same = b;
    b = std::move(same);
    CHECK(b.size() == 300);
    buffer<> gone(100, s, any_resource{device{}});
    buffer<> const kept(std::move(gone));
    CHECK_THROWS_AS(gone.resize(1), std::logic_error);  // NOLINT(bugprone-use-after-move)
  }
  CHECK(one.clean());
  CHECK(two.clean());
}

TEST_CASE("resize keeps the bytes, in stream order, and takes memory only where it has too little") {
  test::watched_world const world;
  auto memory = make(async{} | pool{} | checked{});
  stream const s;
  buffer<> b(4, s, memory);
  b.write(0, "weir", 4);
  void* const first = b.data();
  b.resize(2);
  CHECK(b.data() == first);
  CHECK(b.capacity() == 4);
  b.resize(4);
  CHECK(text_of(b) == "weir");
  b.resize(1_MiB);
  CHECK(b.size() == 1_MiB);
  b.resize(4);
  CHECK(text_of(b) == "weir");
  CHECK(b.capacity() == 1_MiB);
  b.shrink_to_fit();
  CHECK(b.capacity() == 4);
  CHECK(text_of(b) == "weir");
  b.reserve(100);
  CHECK(b.size() == 4);
  CHECK(b.capacity() == 100);
  CHECK(text_of(b) == "weir");
  b.resize(0);
  b.shrink_to_fit();
  CHECK(b.data() == nullptr);
  b.resize(4);
  b.set_to_zero();
  CHECK(text_of(b) == std::string(4, '\0'));
}

TEST_CASE("memory that only the host reaches is set to zero too, after the work of the stream") {
  test::watched_world const world;
  auto memory = make(host{} | pool{});
  stream const s;
  for (std::size_t const size : {0u, 1u, 1000u, 1024u, 1025u, 5000u}) {
    std::string const text(size + 1, 'x');
    buffer<any_host_handle> b(size + 1, s, memory);
    b.write_async(0, text.data(), text.size());
    b.resize(size);
    b.set_to_zero();
    b.resize(size + 1);
    CHECK(text_of(b) == std::string(size, '\0') + 'x');
  }
  buffer<decltype(memory)> typed(1000, s, memory);
  typed.set_to_zero();
  CHECK(text_of(typed) == std::string(1000, '\0'));
}

TEST_CASE("a resize that cannot be had changes nothing, and neither does one whose copy CUDA refuses") {
  test::fresh_world const world;
  pinned_memory memory;
  stream const s;
  {
    buffer<> b(4, s, memory);
    b.write(0, "weir", 4);
    void* const data = b.data();
    memory.refuse = true;
    CHECK_THROWS_AS(b.resize(100), std::bad_alloc);
    memory.refuse = false;
    sim::fail_call("cudaMemcpyAsync", 1, cudaErrorUnknown);
    CHECK_THROWS_AS(b.resize(100), cuda_error);
    CHECK(b.data() == data);
    CHECK(b.size() == 4);
    CHECK(b.capacity() == 4);
    CHECK(memory.live.size() == 1);
    CHECK(text_of(b) == "weir");
  }
  CHECK(memory.clean());
}

TEST_CASE("a copy has the same bytes and memory, on its own stream, and both may go at once") {
  test::watched_world const world;
  auto memory = make(async{} | pool{} | checked{});
  stream const s, t;
  buffer<> b(4, s, memory, 1024);
  b.write_async(0, "weir", 4);
  {
    buffer<> const same = b.copy();
    CHECK(same.stream() == stream_ref(s));
    CHECK(text_of(same) == "weir");
  }
  buffer<> c = b.copy(t);
  CHECK(c.stream() == stream_ref(t));
  CHECK(c.alignment() == 1024);
  CHECK(c.memory() == b.memory());
  b = buffer<>(0, s, memory);      // freed on s: only after the copy on t
  buffer<> const d(4, s, memory);  // has the same block, perhaps
  sim::touch(s.get(), d.data(), 4, sim::access::write);
  CHECK(text_of(c) == "weir");
}

TEST_CASE("another stream is put behind the buffer's, and the buffer's behind it") {
  test::watched_world const world;
  auto memory = make(async{} | pool{} | checked{});
  stream const s, t;
  static char const text[] = "12345678";
  char seen[8];
  {
    buffer<> b(8, s, memory);
    sim::touch(s.get(), b.data(), 8, sim::access::write);
    b.write_async(0, text, 8, t);
    sim::touch(s.get(), b.data(), 8, sim::access::read);
    b.read(0, seen, 8, t);
    CHECK(std::memcmp(seen, text, 8) == 0);
    sim::touch(s.get(), b.data(), 8, sim::access::write);
    b.write(0, "87654321", 8, t);
    b.read(0, seen, 8);
    CHECK(std::memcmp(seen, "87654321", 8) == 0);
  }
}

TEST_CASE("set_stream orders the new stream behind the old one, which may end then") {
  test::watched_world const world;
  auto memory = make(async{} | pool{} | checked{});
  stream const s;
  {
    buffer<> b(8, s, memory);
    {
      test::destroyable_stream const t;
      b.set_stream(t);
      CHECK(b.stream() == stream_ref(t));
      sim::touch(t.get(), b.data(), 8, sim::access::write);
      b.set_stream(s);
    }
    sim::touch(s.get(), b.data(), 8, sim::access::write);
    sim::reset_counters();
    b.set_stream(s);
    CHECK(sim::calls() == 0);
    sim::fail_call("cudaStreamWaitEvent", 1, cudaErrorUnknown);
    stream const t;
    CHECK_THROWS_AS(b.set_stream(t), cuda_error);
    CHECK(b.stream() == stream_ref(s));
  }
}

TEST_CASE("it works on the device of its memory, whichever is current, with the default stream too") {
  for (bool const owned : {false, true}) {
    test::watched_world const world(sim::mode::immediate);
    auto memory = make(async{.device = 1} | pool{});
    any_resource const owner{async{.device = 1} | pool{}};
    stream_ref const legacy(cudaStreamLegacy);
    buffer<> b = owned ? buffer<>(4, legacy, owner) : buffer<>(4, legacy, memory);
    CHECK(b.device() == 1);
    b.write(0, "weir", 4);
    b.resize(100'000);
    b.set_to_zero();
    b.write(0, "weir", 4);
    buffer<> const c = b.copy(cudaStreamPerThread);
    b = buffer<>(0, legacy, memory);
    b.set_stream(cudaStreamPerThread);
    CHECK(text_of(c).substr(0, 4) == "weir");
    CHECK(current_device() == 0);
  }
}

TEST_CASE("memory that does not say its device is taken and given back on the one that was current at first") {
  test::fresh_world const world;
  current_memory_resource memory;
  stream const s;
  {
    cudaSetDevice(1);
    stream const t;
    buffer<> b(10, t, memory);
    cudaSetDevice(0);
    CHECK(b.device() == 1);
    b.resize(100);
    CHECK(memory.last_device == 1);
    buffer<> const c = b.copy();
    CHECK(c.device() == 1);
    memory.last_device = -1;
    b = buffer<>(0, s, memory);
    CHECK(memory.last_device == 1);
    CHECK(b.device() == 0);
    CHECK(current_device() == 0);
  }
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE("bytes outside of it are refused, with the numbers") {
  test::fresh_world const world;
  pinned_memory memory;
  stream const s;
  buffer<> b(10, s, memory);
  char bytes[20] = {};
  CHECK_THROWS_WITH_AS(b.read(8, bytes, 3), "weir: bytes 8 to 8 + 3 of a buffer that has 10", std::out_of_range);
  CHECK_THROWS_AS(b.write(11, bytes, 0), std::out_of_range);
  CHECK_THROWS_AS(b.write_async(1, bytes, ~std::size_t{0}), std::out_of_range);
  b.write(10, bytes, 0);
}

TEST_CASE("the host's order is no stream to live on") {
  test::fresh_world const world;
  pinned_memory memory;
  stream const s;
  CHECK_THROWS_AS(buffer<>(10, host_order, memory), std::invalid_argument);
  buffer<> b(10, s, memory);
  char byte = 0;
  CHECK_THROWS_AS(b.set_stream(host_order), std::invalid_argument);
  CHECK_THROWS_AS(b.read(0, &byte, 1, host_order), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(b.copy(host_order)), std::invalid_argument);
  CHECK(memory.live.size() == 1);
}

TEST_CASE(
    "in a capture it is made, resized, copied and freed; what would have to wait is refused, and breaks nothing") {
  test::watched_world const world;
  auto memory = make(async{} | pool{});
  stream const s;
  char byte = 0;
  static char const text[] = "weir";
  capture_scope const declared;
  test::begin_capture(s);
  {
    buffer<> b(4, s, memory);
    b.write_async(0, text, 4);
    b.resize(1000);
    buffer<> const c = b.copy();
    CHECK_THROWS_AS(b.read(0, &byte, 1), cuda_error);
    CHECK_THROWS_AS(b.write(0, &byte, 1), cuda_error);
  }
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(s.get(), &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  weir::release_captured(memory);
}

TEST_CASE("a read on another stream, which would join the capture of its own, is refused and breaks nothing") {
  test::watched_world const world;
  auto memory = make(async{} | pool{});
  stream const s, other;
  buffer<> b(4, s, memory);
  char byte = 0;
  capture_scope const declared;
  test::begin_capture(s);
  CHECK_THROWS_AS(b.read(0, &byte, 1, other), cuda_error);
  CHECK_THROWS_AS(b.write(0, &byte, 1, other), cuda_error);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(s.get(), &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

TEST_CASE("a copy on a stream that joins a capture by it has memory of the capture") {
  test::watched_world const world;
  auto memory = make(async{} | pool{});
  stream const s, t;
  memory.deallocate(t, memory.allocate(t, 4096), 4096);
  std::optional<buffer<>> copied;
  std::optional<test::captured_graph> graph;
  {
    capture_scope const declared;
    test::begin_capture(s);
    buffer<> b(4096, s, memory);
    b.set_to_zero();
    copied.emplace(b.copy(t));
    graph.emplace(s);
  }
  void* const in_graph = copied->data();
  copied.reset();
  std::vector<void*> others;
  for (int i = 0; i < 20; ++i) others.push_back(memory.allocate(t, 4096));
  for (void* const p : others) CHECK(p != in_graph);
  for (void* const p : others) memory.deallocate(t, p, 4096);
  graph.reset();
  weir::release_captured(memory);
}

TEST_CASE("a copy that cannot be had leaves the capture of its source as it was") {
  test::watched_world const world;
  auto memory = make(async{} | limit{.max_bytes = 1_MiB} | pool{});
  stream const s, t;
  capture_scope const declared;
  test::begin_capture(s);
  {
    buffer<> b(1_MiB, s, memory);
    CHECK_THROWS_AS(static_cast<void>(b.copy(t)), out_of_memory);
  }
  test::end_capture(s);
  weir::release_captured(memory);
}

TEST_CASE("work on a stream whose capture the container's stream is no part of is refused, and breaks nothing") {
  test::watched_world const world;
  auto memory = make(async{} | pool{});
  stream const s, captures;
  buffer<> b(4, s, memory);
  static char const text[] = "weir";
  capture_scope const declared;
  test::begin_capture(captures);
  CHECK_THROWS_WITH_AS(b.write_async(0, text, 4, captures), doctest::Contains("join that capture"), cuda_error);
  CHECK_THROWS_AS(static_cast<void>(b.copy(captures)), cuda_error);
  CHECK_THROWS_AS(b.set_stream(captures), cuda_error);
  CHECK(b.stream() == stream_ref(s));
  test::end_capture(captures);
}

TEST_CASE("set_stream draws no stream into the capture of the container's own, and takes one that is in it") {
  test::watched_world const world;
  auto memory = make(async{} | pool{});
  stream const s, outside, joined;
  buffer<> b(4, s, memory);
  {
    capture_scope const declared;
    test::begin_capture(s);
    CHECK_THROWS_WITH_AS(b.set_stream(outside), doctest::Contains("let the new stream join that capture"), cuda_error);
    CHECK(b.stream() == stream_ref(s));
    CHECK(!test::is_capturing(outside));
    test::order(s, joined);
    b.set_stream(joined);
    b.set_to_zero();
    b.set_stream(s);
    test::end_capture(s);
  }
  b.set_stream(outside);
}

TEST_CASE("when a wait fails, nothing uses the host's memory later") {
  test::fresh_world const world(sim::mode::lazy);
  auto memory = make(async{} | pool{});
  stream const s;
  buffer<> b(4, s, memory);
  b.write(0, "weir", 4);
  char seen[4] = {};
  sim::fail_call("cudaStreamSynchronize", 1, cudaErrorUnknown);
  CHECK_THROWS_AS(b.read(0, seen, 4), cuda_error);
  std::memset(seen, 'x', 4);
  sim::run_all();
  CHECK(std::memcmp(seen, "xxxx", 4) == 0);
}
