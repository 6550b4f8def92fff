// needs: tsan
#include <weir/sources/virtual_memory.hpp>

#include <weir/adaptors/pool.hpp>
#include <weir/core/any_ref.hpp>
#include <weir/core/numbers.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/sim_fixture.hpp>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/thread_sanitizer.hpp"

using namespace weir;
using weir::test::fresh_world;

namespace {

static_assert(recipe<virtual_memory> && growable<virtual_memory_resource>);
static_assert(growable<resource_ref<virtual_memory_resource>> && !growable<resource_ref<device_resource>>);
static_assert(device_accessible<virtual_memory_resource> && !host_accessible<virtual_memory_resource>);

std::string refusal(virtual_memory const& options) {
  try {
    static_cast<void>(make(options));
  } catch (std::invalid_argument const& error) {
    return error.what();
  }
  return {};
}
bool mentions(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

std::byte* begin_of(address_range range) { return static_cast<std::byte*>(range.begin); }

/// Growable memory that tells when chunks are about to be unmapped.
struct watched_pages {
  static constexpr bool device_accessible = true, host_ordered = true;

  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    return pages.allocate(stream, bytes, alignment);
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    pages.deallocate(stream, p, bytes, alignment);
  }
  std::size_t chunk_bytes() const noexcept { return pages.chunk_bytes(); }
  address_range reserve_range(std::size_t most) { return pages.reserve_range(most); }
  void release_range(address_range range) noexcept { pages.release_range(range); }
  bool map(void* p, std::size_t bytes) { return pages.map(p, bytes); }
  bool unmap(void* p, std::size_t bytes) noexcept {
    if (before_unmap) std::exchange(before_unmap, nullptr)();
    return pages.unmap(p, bytes);
  }
  bool alias(void* to, void* from, std::size_t bytes) { return pages.alias(to, from, bytes); }
  tenants& tenancy() noexcept { return pages.tenancy(); }
  int device() const noexcept { return pages.device(); }

  virtual_memory_resource& pages;
  std::function<void()> before_unmap = nullptr;
};

struct no_caching {
  no_caching() { ::setenv("WEIR_NO_CACHING", "1", 1); }
  ~no_caching() { ::unsetenv("WEIR_NO_CACHING"); }
};

}  // namespace

// ---- options

TEST_CASE("options that make no sense are refused with words") {
  CHECK(virtual_memory{}.valid());
  CHECK(virtual_memory{.chunk_bytes = 16_MiB, .range_bytes = 16_MiB, .max_bytes = 16_MiB}.valid());
  CHECK(virtual_memory{.chunk_bytes = 3_MiB}.problem() ==
        "virtual_memory: chunk_bytes is 3 MiB; it must be a power of two");
  CHECK(!virtual_memory{.chunk_bytes = 0}.valid());
  CHECK(virtual_memory{.range_bytes = 1_MiB}.problem() ==
        "virtual_memory: range_bytes is 1048576; it must be 0 or at least chunk_bytes, which is 2097152");
  CHECK(mentions(virtual_memory{.max_bytes = 2_MiB - 1}.problem(), "max_bytes is 2097151"));
  CHECK(mentions(virtual_memory{.handle_type = memory_handle{7}}.problem(), "it must be none or posix_fd"));
}

TEST_CASE("what the device cannot do is refused at make, with words") {
  fresh_world const world;
  CHECK(mentions(refusal(virtual_memory{.chunk_bytes = 1_MiB}),
                 "chunk_bytes is 1048576; device 0 maps multiples of 2097152"));
  CHECK(mentions(refusal(virtual_memory{.handle_type = memory_handle::posix_fd}),
                 "device 0 exports no memory by file descriptors"));
  sim::set_virtual_memory(false);
  CHECK(mentions(refusal(virtual_memory{}), "device 0 has no virtual memory management"));
}

TEST_CASE("a device that says it has virtual memory, and then gives none, is refused; one that is full is not") {
  fresh_world const world;
  sim::fail_call("cuMemCreate", 1, cudaErrorNotSupported);
  CHECK(mentions(refusal(virtual_memory{}), "device 0 has no virtual memory management"));
  sim::fail_call("cuMemCreate", 1, cudaErrorUnknown);
  CHECK_THROWS_AS(static_cast<void>(make(virtual_memory{})), cuda_error);
  sim::set_capacity(0, 0);
  auto memory = make(virtual_memory{});
  sim::set_capacity(0, 2_MiB);
  memory.deallocate(host_order, memory.allocate(host_order, 1000), 1000);
}

TEST_CASE("a range is four times the device's memory, less than 1 TiB, or as asked") {
  fresh_world const world;
  auto const range_of = [](virtual_memory const& options) {
    auto memory = make(options);
    address_range const range = memory.reserve_range(~std::size_t{0});
    memory.release_range(range);
    return range.bytes;
  };
  CHECK(range_of(virtual_memory{}) == 64_GiB);
  CHECK(range_of(virtual_memory{.range_bytes = 5_MiB}) == 4_MiB);
  sim::set_capacity(0, 1_MiB);
  CHECK(range_of(virtual_memory{}) == 4_MiB);
  sim::set_capacity(0, 256_GiB);
  std::size_t const most = range_of(virtual_memory{.chunk_bytes = 16_MiB});
  if (under_thread_sanitizer) {  // which leaves a program so little of its addresses that a range may be halved
    CHECK(most >= 256_GiB);
  } else {
    CHECK(most == 1024_GiB - 16_MiB);
  }
}

TEST_CASE("a range is halved while the driver refuses, and then there is none") {
  fresh_world const world;
  auto memory = make(virtual_memory{.range_bytes = 16_MiB});
  sim::fail_call("cuMemAddressReserve", 1, cudaErrorMemoryAllocation);
  address_range const half = memory.reserve_range(64_GiB);
  CHECK(half.bytes == 8_MiB);
  address_range const small = memory.reserve_range(5_MiB);
  CHECK(small.bytes == 4_MiB);
  memory.release_range(half);
  memory.release_range(small);
  CHECK_THROWS_AS(memory.reserve_range(2_MiB - 1), out_of_memory);
  sim::fail_call("cuMemAddressReserve", 1, cudaErrorUnknown);
  CHECK_THROWS_AS(memory.reserve_range(2_MiB), cuda_error);
}

// ---- growing

TEST_CASE("chunks are created as they are mapped, kept as they are unmapped, and given back by trim") {
  fresh_world const world;
  auto memory = make(virtual_memory{});
  address_range const range = memory.reserve_range(64_MiB);
  CHECK(memory.map(begin_of(range), 8_MiB));
  CHECK(memory.unmap(begin_of(range) + 2_MiB, 4_MiB));
  CHECK(memory.numbers().allocated.current == 4_MiB);
  CHECK(memory.numbers().reserved.current == 8_MiB);
  CHECK(memory.numbers().free == 4_MiB);
  CHECK(trim(memory, 6_MiB) == 2_MiB);
  CHECK(sim::live_bytes(0) == 6_MiB);
  memory.release_range(range);
  CHECK(memory.trim() == 6_MiB);
  CHECK(sim::live_bytes(0) == 0);
  CHECK(memory.numbers().reserved.peak == 8_MiB);
}

TEST_CASE("what make tries is in no peak") {
  fresh_world const world;
  auto memory = make(virtual_memory{});
  CHECK(memory.numbers().allocated.peak == 0);
  CHECK(memory.numbers().reserved.peak == 0);
  CHECK(sim::live_bytes(0) == 0);
}

TEST_CASE("several ranges share one set of chunks, through handles") {
  fresh_world const world;
  auto memory = make(virtual_memory{.max_bytes = 4_MiB});
  auto const one = share(memory), other = share(memory);
  address_range const a = one.reserve_range(16_MiB), b = other.reserve_range(16_MiB);
  CHECK(one.map(a.begin, 4_MiB));
  CHECK_FALSE(other.map(b.begin, 2_MiB));
  CHECK(one.unmap(a.begin, 4_MiB));
  CHECK(other.map(b.begin, 4_MiB));
  CHECK(other.alias(begin_of(b) + 8_MiB, b.begin, 2_MiB));
  CHECK(sim::live_bytes(0) == 4_MiB);
  CHECK(one.chunk_bytes() == 2_MiB);
  one.release_range(a);
  other.release_range(b);
}

TEST_CASE("growing on another device than the current one leaves that current") {
  fresh_world const world;
  auto memory = make(virtual_memory{.device = 1});
  address_range const range = memory.reserve_range(16_MiB);
  CHECK(memory.map(range.begin, 2_MiB));
  CHECK(sim::live_bytes(1) == 2_MiB);
  CHECK(current_device() == 0);
  memory.release_range(range);
}

TEST_CASE("peers use what is mapped only if they are asked in") {
  fresh_world const world;
  sim::check_access(true);
  for (bool const peers : {false, true}) {
    auto memory = make(virtual_memory{.peers = peers});
    void* const p = memory.allocate(host_order, 2_MiB);
    device_guard const elsewhere(1);
    weir::stream const far;
    auto const touch = [&] { sim::touch(far.get(), p, 2_MiB, sim::access::write); };
    if (peers)
      CHECK_NOTHROW(touch());
    else
      CHECK_THROWS_AS(touch(), std::invalid_argument);
    memory.deallocate(host_order, p, 2_MiB);
  }
}

TEST_CASE("devices that cannot reach it are not let in, and that is no error") {
  fresh_world const world;
  sim::set_peers(false);
  auto memory = make(virtual_memory{.peers = true});
  void* const p = memory.allocate(host_order, 2_MiB);
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = 1;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  auto const at = reinterpret_cast<CUdeviceptr>(p);
  CHECK(detail::driver().cuMemSetAccess(at, 2_MiB, &access, 1) == CUDA_ERROR_INVALID_DEVICE);
  memory.deallocate(host_order, p, 2_MiB);
}

TEST_CASE("whether chunks may move is known to who stands on it") {
  fresh_world const world;
  auto fixed = make(virtual_memory{.movable = false});
  auto memory = make(virtual_memory{});
  CHECK(chunks_may_move(memory));
  CHECK_FALSE(chunks_may_move(share(fixed)));
}

TEST_CASE("a chunk that one pool wrote is read as zeros by the next, where that is asked") {
  for (bool const scrub : {false, true}) {
    CAPTURE(scrub);
    fresh_world const world(sim::mode::lazy);
    auto pages = make(virtual_memory{.max_bytes = 8_MiB, .scrub = scrub});
    auto mine = make(share(pages) | pool{}), yours = make(share(pages) | pool{});
    stream const work;
    void* const secret = mine.allocate(work, 6_MiB);
    cudaMemsetAsync(secret, 42, 6_MiB, work.get());
    mine.deallocate(work, secret, 6_MiB);
    mine.synchronize();
    auto* const found = static_cast<unsigned char*>(yours.allocate(work, 8_MiB));
    std::size_t const left = static_cast<std::size_t>(std::count(found, found + 8_MiB, 42));
    std::size_t const zeros = static_cast<std::size_t>(std::count(found, found + 8_MiB, 0));
    CHECK(left == (scrub ? 0 : 6_MiB));
    CHECK((zeros == 8_MiB) == scrub);
    yours.deallocate(work, found, 8_MiB);
  }
}

TEST_CASE("memory is zeroed on its own device, whichever is current, and breaks no capture") {
  fresh_world const world;
  auto memory = make(virtual_memory{.device = 1, .scrub = true});
  address_range const range = memory.reserve_range(4_MiB);
  stream const captured;
  cudaGraph_t graph = nullptr;
  cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeGlobal);
  CHECK(memory.map(range.begin, 4_MiB));
  CHECK(cudaStreamEndCapture(captured.get(), &graph) == cudaSuccess);
  cudaGraphDestroy(graph);
  CHECK(std::count(begin_of(range), begin_of(range) + 4_MiB, std::byte{0}) == 4_MiB);
  CHECK(current_device() == 0);
  memory.release_range(range);
}

TEST_CASE("calls in a stream capture do not break it") {
  fresh_world const world;
  auto memory = make(virtual_memory{});
  address_range const range = memory.reserve_range(16_MiB);
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  {
    auto other = make(virtual_memory{});
    CHECK(memory.map(range.begin, 4_MiB));
    CHECK(memory.alias(begin_of(range) + 8_MiB, range.begin, 4_MiB));
    CHECK(memory.unmap(range.begin, 4_MiB));
    memory.deallocate(host_order, memory.allocate(stream, 1000), 1000);
    memory.trim();
    memory.release_range(range);
  }
  CHECK(sim::captures_invalidated() == 0);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

// ---- as a plain resource

TEST_CASE("a block is whole chunks of its own, which stay for the next one") {
  fresh_world const world;
  auto memory = make(virtual_memory{});
  CHECK(taken(memory, 1) == 2_MiB);
  void* const p = memory.allocate(host_order, 2_MiB + 1);
  CHECK(sim::live_bytes(0) == 4_MiB);
  sim::touch(cudaStreamPerThread, p, 2_MiB + 1, sim::access::write);
  memory.deallocate(host_order, p, 2_MiB + 1);
  sim::reset_counters();
  memory.deallocate(host_order, memory.allocate(host_order, 4_MiB), 4_MiB);
  CHECK(sim::calls("cuMemCreate") == 0);
  CHECK(sim::live_bytes(0) == 4_MiB);
}

TEST_CASE("memory freed on a stream is not unmapped before the stream's work is done") {
  weir::test::lazy_world const world;
  auto memory = make(virtual_memory{});
  void* const p = memory.allocate(cudaStreamPerThread, 1000);
  bool done = false;
  auto const finish = [](void* flag) { *static_cast<bool*>(flag) = true; };
  REQUIRE(cudaLaunchHostFunc(cudaStreamPerThread, finish, &done) == cudaSuccess);
  memory.deallocate(cudaStreamPerThread, p, 1000);
  CHECK(done);
  CHECK(memory.numbers().allocated.current == 0);
}

TEST_CASE("memory freed on a stream that captures is kept until it is freed in host order") {
  fresh_world const world;
  auto memory = make(virtual_memory{});
  void* const p = memory.allocate(host_order, 1000);
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  memory.deallocate(stream, p, 1000);
  CHECK(memory.numbers().allocated.current == 2_MiB);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  memory.deallocate(host_order, p, 1000);
  CHECK(memory.numbers().allocated.current == 0);
}

TEST_CASE("a pointer that is not from here, a second free and another size are misuse") {
  fresh_world const world;
  static std::string heard;
  auto const before = set_misuse_handler(+[](char const* what) noexcept { heard = what; });
  auto memory = make(virtual_memory{});
  alignas(256) static char foreign[256];
  memory.deallocate(host_order, foreign, 256);
  CHECK(mentions(heard, "virtual_memory: deallocate of " + detail::hex(foreign)));
  void* const p = memory.allocate(host_order, 1000);
  heard.clear();
  memory.deallocate(host_order, p, 4_MiB);
  CHECK(mentions(heard, "had another size"));
  memory.deallocate(host_order, p, 1000);
  heard.clear();
  memory.deallocate(host_order, p, 1000);
  CHECK(mentions(heard, "it was freed before"));
  set_misuse_handler(before);
}

TEST_CASE("out of memory says what is held and mapped") {
  fresh_world const world;
  auto memory = make(virtual_memory{.max_bytes = 4_MiB});
  void* const p = memory.allocate(host_order, 1000);
  try {
    memory.allocate(host_order, 4_MiB);
    FAIL("nothing was thrown");
  } catch (out_of_memory const& error) {
    CHECK(error.refused_by() == std::string("virtual_memory"));
    CHECK(mentions(error.what(), "chain: virtual_memory(0)"));
    CHECK(mentions(error.what(),
                   "holds 2.00 MiB in chunks of 2.00 MiB, 2.00 MiB of it mapped, at most 4.00 MiB; "
                   "device 0: 16.00 GiB free of 16.00 GiB"));
  }
  memory.deallocate(host_order, p, 1000);
}

TEST_CASE("a request that is larger than the device in whole chunks is told so") {
  fresh_world const world;
  sim::set_capacity(0, 24_MiB);
  for (std::size_t const chunk : {32_MiB, 16_MiB}) {
    auto pages = make(virtual_memory{.chunk_bytes = chunk});
    auto pooled = make(share(pages) | pool{});
    std::string const words = "the request is, in whole chunks of " + format_bytes(chunk) +
                              ", larger than all memory of device 0 (24.00 MiB): take a smaller chunk_bytes";
    std::size_t const bytes = chunk == 32_MiB ? 1000 : 20_MiB;
    CHECK_THROWS_WITH_AS(pages.allocate(host_order, bytes), doctest::Contains(words.c_str()), out_of_memory);
    CHECK_THROWS_WITH_AS(pooled.allocate(host_order, bytes), doctest::Contains(words.c_str()), out_of_memory);
    CHECK_THROWS_WITH_AS(pages.allocate(host_order, 25_MiB), doctest::Contains("the request (25.00 MiB) is larger"),
                         out_of_memory);
  }
}

TEST_CASE("what does not fit into the addresses is refused with a hint that names range_bytes") {
  fresh_world const world;
  auto pages = make(virtual_memory{.range_bytes = 8_MiB});
  auto memory = make(share(pages) | pool{});
  void* const kept = memory.allocate(host_order, 6_MiB);
  CHECK_THROWS_WITH_AS(pages.allocate(host_order, 16_MiB),
                       doctest::Contains("larger than range_bytes of virtual_memory (8.00 MiB): raise it"),
                       out_of_memory);
  CHECK_THROWS_WITH_AS(
      memory.allocate(host_order, 4_MiB),
      doctest::Contains("no room for it among the pool's addresses (8.00 MiB) beside what is live: raise range_bytes"),
      out_of_memory);
  memory.deallocate(host_order, kept, 6_MiB);
  CHECK_THROWS_WITH_AS(pages.allocate(host_order, std::size_t{32} << 30),
                       doctest::Contains("larger than all memory of device 0"), out_of_memory);
}

TEST_CASE("a block for which the process has no addresses is refused with a hint that says so") {
  fresh_world const world;
  auto memory = make(virtual_memory{.max_bytes = 8_MiB});
  auto idle = make(share(memory) | pool{.initial_bytes = 6_MiB});
  sim::fail_call("cuMemAddressReserve", 1, cudaErrorMemoryAllocation);
  CHECK_THROWS_WITH_AS(memory.allocate(host_order, 4_MiB),
                       doctest::Contains("no addresses left for a range: set range_bytes to less, or use fewer pools"),
                       out_of_memory);
  CHECK(idle.numbers().reserved.current == 6_MiB);  // which would not help
}

TEST_CASE("addresses that there are not take no memory of the host") {
  fresh_world const world;
  auto memory = make(virtual_memory{.range_bytes = std::size_t{1} << 63});
  CHECK_THROWS_AS(memory.allocate(host_order, std::size_t{1} << 63), out_of_memory);  // else plain bad_alloc
}

TEST_CASE("what a pool is promised is kept from blocks of the source itself, and from pools that take those") {
  fresh_world const world;
  auto pages = make(virtual_memory{.max_bytes = 32_MiB});
  auto search = make(share(pages) | pool{.min_bytes = 8_MiB, .name = "search"});
  auto other = make(share(pages) | pool{});
  any_ref const erased = share(pages);
  auto segments = make(erased | pool{});
  CHECK_THROWS_AS(static_cast<void>(segments.allocate(host_order, 30_MiB)), out_of_memory);
  try {
    static_cast<void>(pages.allocate(host_order, 26_MiB));
    FAIL("the last 8 MiB are promised");
  } catch (out_of_memory const& error) {
    CHECK(mentions(error.what(), "search: holds 0 B, 0 B of it in use, at least 8.00 MiB"));
    CHECK(mentions(error.what(), "promised to pools (min_bytes)"));
  }
  void* const bare = pages.allocate(host_order, 16_MiB);
  CHECK_THROWS_AS(static_cast<void>(other.allocate(host_order, 10_MiB)), out_of_memory);
  CHECK(mentions(report_of(pages).lines(), "blocks without a pool: hold 16.00 MiB"));
  void* const rest = other.allocate(host_order, 8_MiB);
  void* const promised = search.allocate(host_order, 8_MiB);
  search.deallocate(host_order, promised, 8_MiB);
  other.deallocate(host_order, rest, 8_MiB);
  pages.deallocate(host_order, bare, 16_MiB);
  CHECK(search.trim() + other.trim() > 0);
  void* const all_but_that = segments.allocate(host_order, 24_MiB);
  segments.deallocate(host_order, all_but_that, 24_MiB);
}

TEST_CASE("a block of the source itself has what pools do not use") {
  fresh_world const world;
  auto pages = make(virtual_memory{.max_bytes = 32_MiB});
  auto kept = make(share(pages) | pool{});
  void* const live = kept.allocate(host_order, 4_MiB);
  kept.deallocate(host_order, kept.allocate(host_order, 28_MiB), 28_MiB);
  void* const p = pages.allocate(host_order, 6_MiB);
  CHECK(kept.numbers().reserved.current == 26_MiB);
  CHECK_THROWS_AS(static_cast<void>(pages.allocate(host_order, 24_MiB)), out_of_memory);
  pages.deallocate(host_order, p, 6_MiB);
  kept.deallocate(host_order, live, 4_MiB);
}

TEST_CASE("where the device has less than max_bytes a block of the source itself has what pools do not use") {
  fresh_world const world;
  sim::set_capacity(0, 10_MiB);
  auto pages = make(virtual_memory{.max_bytes = 12_MiB});
  auto idle = make(share(pages) | pool{.initial_bytes = 10_MiB});
  void* const p = pages.allocate(host_order, 4_MiB);  // beyond max_bytes by less than beyond the device
  pages.deallocate(host_order, p, 4_MiB);
}

TEST_CASE("what a pool is giving back just now serves a block of the source itself") {
  fresh_world const world;
  auto pages = make(virtual_memory{.max_bytes = 8_MiB});
  watched_pages watched{pages};
  auto idle = make(share(watched) | pool{.initial_bytes = 8_MiB});
  std::thread other;
  void* p = nullptr;
  watched.before_unmap = [&] {
    sim::reset_counters();
    other = std::thread([&] { p = pages.allocate(host_order, 8_MiB); });
    while (sim::calls("cuMemAddressFree") == 0) std::this_thread::yield();  // it found nothing at first
  };
  CHECK(idle.trim_layer() == 8_MiB);
  other.join();
  CHECK(p != nullptr);
  pages.deallocate(host_order, p, 8_MiB);
}

TEST_CASE("a stack's numbers name mapped, held and spare bytes, and the limit") {
  fresh_world const world;
  auto memory = make(virtual_memory{.max_bytes = 8_MiB});
  memory.deallocate(host_order, memory.allocate(host_order, 4_MiB), 4_MiB);
  void* const p = memory.allocate(host_order, 1000);
  CHECK(numbers(memory)[0] == layer_numbers{.layer = "virtual_memory",
                                            .device = 0,
                                            .allocated = 2_MiB,
                                            .allocated_peak = 4_MiB,
                                            .reserved = 4_MiB,
                                            .reserved_peak = 4_MiB,
                                            .free = 2_MiB,
                                            .max_bytes = 8_MiB});
  memory.deallocate(host_order, p, 1000);
}

// ---- failures, threads, no caching

namespace {

/// Maps, aliases and unmaps; each only where what it needs was done.
void grow_and_shrink(virtual_memory_resource& memory, std::byte* p) {
  if (!memory.map(p, 6_MiB)) return;
  if (memory.alias(p + 16_MiB, p, 4_MiB)) memory.unmap(p + 16_MiB, 4_MiB);
  memory.unmap(p + 2_MiB, 4_MiB);
  memory.trim(4_MiB);
}

/// All that a program can do with it, once; whatever throws ends it.
void live() try {
  auto memory = make(virtual_memory{.scrub = true});
  address_range const range = memory.reserve_range(64_MiB);
  try {
    grow_and_shrink(memory, begin_of(range));
    void* const p = memory.allocate(host_order, 5_MiB);
    memory.deallocate(host_order, p, 5_MiB);
  } catch (...) {
    memory.release_range(range);
    throw;
  }
  memory.release_range(range);
} catch (cuda_error const&) {
} catch (out_of_memory const&) {
} catch (std::invalid_argument const&) {  // make says that the device has no such memory, where the probe fails so
}

}  // namespace

TEST_CASE("whichever call fails, nothing leaks") {
  fresh_world const world;
  live();  // looks the driver up
  std::size_t const handles = sim::live_handles();
  for (std::string const call :
       {"cudaGetDevice", "cudaMemGetInfo", "cudaThreadExchangeStreamCaptureMode", "cuDeviceGet", "cuDeviceGetAttribute",
        "cuMemGetAllocationGranularity", "cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate", "cuMemRelease",
        "cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cudaMemsetAsync", "cudaStreamIsCapturing",
        "cudaStreamSynchronize"}) {
    sim::reset_counters();
    live();
    std::uint64_t const calls = sim::calls(call.c_str());
    CAPTURE(call);
    REQUIRE(calls != 0);
    for (cudaError_t const code :
         {cudaErrorUnknown, cudaErrorMemoryAllocation, cudaErrorNotSupported, cudaErrorNotReady})
      for (std::uint64_t k = 1; k <= calls; ++k) {
        CAPTURE(code);
        CAPTURE(k);
        sim::fail_call(call.c_str(), k, code);
        live();
        sim::clear_failure();
        // What the driver did not release, though it was the last call that could, is lost.
        CHECK(sim::live_allocations() <= (call == "cuMemRelease" ? 1 : 0));
        CHECK(sim::live_handles() == handles);
        CHECK(cudaPeekAtLastError() == cudaSuccess);
        sim::reset();
      }
  }
}

TEST_CASE("once every call fails, all that was held goes back as soon as calls work again") {
  fresh_world const world;
  std::size_t const handles = sim::live_handles();
  auto memory = make(virtual_memory{.scrub = true});
  for (std::uint64_t k = 1; k <= 40; ++k) {
    CAPTURE(k);
    address_range const range = memory.reserve_range(64_MiB);
    sim::fail_from(k, cudaErrorUnknown);
    try {
      grow_and_shrink(memory, begin_of(range));
    } catch (cuda_error const&) {
    }
    sim::clear_failure();
    memory.release_range(range);
    CHECK(memory.numbers().allocated.current == 0);
    CHECK(sim::live_bytes(0) == memory.numbers().reserved.current);
    CHECK(sim::live_handles() == handles);
  }
}

TEST_CASE("what a map that failed left behind serves whoever asks next, and trim gives it to the device") {
  fresh_world const world;
  auto memory = make(virtual_memory{.max_bytes = 4_MiB});
  auto other = make(share(memory) | pool{});
  address_range const range = memory.reserve_range(64_MiB);
  for (bool const is_trimmed : {false, true}) {
    CAPTURE(is_trimmed);
    memory.trim();
    sim::fail_from(5, cudaErrorUnknown);  // the capture mode is set, two chunks are created, one is mapped
    CHECK_THROWS_AS(memory.map(range.begin, 4_MiB), cuda_error);
    sim::clear_failure();
    CHECK(memory.numbers().allocated.current == 4_MiB);
    if (is_trimmed) CHECK(memory.trim() == 4_MiB);
    other.deallocate(host_order, other.allocate(host_order, 4_MiB), 4_MiB);
    other.trim();
  }
  memory.release_range(range);
}

TEST_CASE("what could not be given back serves whoever asks next, and trim gives it to the device") {
  fresh_world const world;
  std::size_t const handles = sim::live_handles();
  auto memory = make(virtual_memory{.max_bytes = 4_MiB});
  for (bool const is_trimmed : {false, true}) {
    CAPTURE(is_trimmed);
    void* p = memory.allocate(host_order, 4_MiB);
    sim::fail_from(1, cudaErrorUnknown);
    memory.deallocate(host_order, p, 4_MiB);
    sim::clear_failure();
    CHECK(memory.numbers().allocated.current == 4_MiB);
    if (is_trimmed) CHECK(memory.trim() == 4_MiB);
    p = memory.allocate(host_order, 4_MiB);
    memory.deallocate(host_order, p, 4_MiB);
  }
  CHECK(sim::live_handles() == handles);
}

TEST_CASE("threads grow and shrink ranges of their own on one set of chunks") {
  fresh_world const world;
  auto memory = make(virtual_memory{.max_bytes = 16_MiB});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&memory] {
      address_range const range = memory.reserve_range(16_MiB);
      for (int round = 0; round < 100; ++round) {
        if (!memory.map(range.begin, 4_MiB)) continue;
        if (memory.alias(begin_of(range) + 8_MiB, range.begin, 4_MiB)) memory.unmap(begin_of(range) + 8_MiB, 4_MiB);
        memory.unmap(range.begin, 4_MiB);
        if (round % 10 == 0) memory.trim(8_MiB);
      }
      memory.release_range(range);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(memory.numbers().allocated.current == 0);
  CHECK(memory.numbers().reserved.peak <= 16_MiB);
  memory.trim();
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE("with WEIR_NO_CACHING=1 it is plain device memory, and does not grow") {
  fresh_world const world;
  no_caching const off;
  auto memory = make(virtual_memory{});
  sim::reset_counters();
  void* const p = memory.allocate(host_order, 1000);
  CHECK(sim::calls("cudaMalloc") == 1);
  CHECK(sim::live_bytes(0) == 1000);
  CHECK(taken(memory, 1000) == 1000);
  CHECK_THROWS_AS(memory.reserve_range(64_MiB), cuda_error);
  memory.deallocate(host_order, p, 1000);
  CHECK(sim::calls("cudaFree") == 1);
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE("a request whose chunks exceed max_bytes is told to ask for less") {
  fresh_world const world;
  auto memory = make(virtual_memory{.max_bytes = 3_MiB});  // one chunk
  try {
    memory.allocate(host_order, 2_MiB + 1);
    FAIL("nothing was thrown");
  } catch (out_of_memory const& error) {
    CHECK(std::string(error.hint()).starts_with("the request is larger than max_bytes of the source"));
  }
}
