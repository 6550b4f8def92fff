// Every option that a text can name does what it does in C++: seen by what the stack asks of the simulated runtime.
#include <support/temporary_folder.hpp>

#include <support/parsed.hpp>
#include <weir/core/bytes.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <system_error>

namespace sim = weir::sim;
using namespace weir::literals;
using weir::parse;

namespace {

struct streams {
  cudaStream_t a = nullptr, b = nullptr;
  streams() {
    sim::reset();
    REQUIRE(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking) == cudaSuccess);
  }
  ~streams() {
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
  }
  streams(streams const&) = delete;
  streams& operator=(streams const&) = delete;
};

/// Whether so much can be had; it is kept.
bool gives(weir::any_resource const& memory, std::size_t bytes, weir::stream_ref stream = weir::host_order) {
  try {
    return memory.allocate(stream, bytes) != nullptr;
  } catch (weir::out_of_memory const&) {
    return false;
  }
}

std::string refusal(std::string const& text) {
  try {
    static_cast<void>(parse(text));
    return {};
  } catch (weir::config_error const& refused) {
    return refused.what();
  }
}
std::string described(std::string const& text) {
  weir::report const r = weir::report_of(parse(text));
  return r.chain() + "\n" + r.lines();
}
bool mentions(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

/// Layers that know streams, so that one 2 MiB block is one segment, with room for more options.
char const* const layers[] = {"device | pool(growth=2MiB", "device | arena(growth=2MiB",
                              "device | fixed_size(2MiB, blocks_per_chunk=1"};

TEST_CASE("pool: sizes") {
  sim::reset();
  {
    auto const memory = parse("device | pool(initial=3MiB)");
    CHECK(sim::live_bytes(0) == 3_MiB);
  }
  {
    auto const memory = parse("device | pool(growth=8MiB)");
    memory.deallocate(weir::host_order, memory.allocate(weir::host_order, 1000), 1000);
    CHECK(sim::live_bytes(0) == 8_MiB);
  }
  {
    auto const memory = parse("device | pool(growth=8MiB, release_threshold=1MiB)");
    memory.deallocate(weir::host_order, memory.allocate(weir::host_order, 1000), 1000);
    CHECK(sim::live_bytes(0) == 0);
  }
  CHECK(mentions(refusal("device | pool(initial=2MiB, max_split=1MiB)"), "max_split_bytes"));
  CHECK(mentions(refusal("device | pool(initial=2MiB, max=1MiB)"), "max_bytes (1.00 MiB)"));
}

TEST_CASE("streams: what outlives the layer needs no event") {
  for (std::string const layer : layers) {
    CAPTURE(layer);
    for (bool const outlives : {false, true}) {
      streams const s;
      auto const memory = parse(layer + (outlives ? ", streams=outlives_pool)" : ", streams=may_end)"));
      memory.deallocate(s.a, memory.allocate(s.a, 1000), 1000);
      CHECK((sim::calls("cudaEventRecord") == 0) == outlives);
    }
  }
}

TEST_CASE("declared_captures: no stream is asked for a capture that nobody declared") {
  for (std::string const layer : layers) {
    CAPTURE(layer);
    for (bool const declared : {false, true}) {
      streams const s;
      auto const memory = parse(layer + (declared ? ", declared_captures=true)" : ", declared_captures=false)"));
      sim::reset_counters();
      memory.deallocate(s.a, memory.allocate(s.a, 1000), 1000);
      CHECK((sim::calls("cudaStreamGetCaptureInfo") == 0) == declared);
    }
  }
}

TEST_CASE("pending: grows, or lets the stream wait") {
  for (std::string const layer : layers) {
    CAPTURE(layer);
    for (bool const wait : {false, true}) {
      streams const s;
      sim::set_mode(sim::mode::lazy);
      auto const memory = parse(layer + (wait ? ", pending=wait)" : ", pending=grow)"));
      memory.deallocate(s.a, memory.allocate(s.a, 2_MiB), 2_MiB);
      void* const p = memory.allocate(s.b, 2_MiB);
      CHECK(sim::live_bytes(0) == (wait ? 2_MiB : 4_MiB));
      memory.deallocate(s.b, p, 2_MiB);
    }
  }
}

TEST_CASE("synchronize: the host waits before a request is refused, or does not; max: there is no more") {
  for (std::string const layer : layers) {
    CAPTURE(layer);
    for (bool const synchronize : {false, true}) {
      streams const s;
      sim::set_mode(sim::mode::lazy);
      auto const memory = parse(layer + ", max=2MiB" + (synchronize ? ", synchronize=true)" : ", synchronize=false)"));
      memory.deallocate(s.a, memory.allocate(s.a, 2_MiB), 2_MiB);
      bool const given = gives(memory, 2_MiB);
      CHECK(given == synchronize);
      CHECK_FALSE(gives(memory, 4_MiB));
    }
  }
}

TEST_CASE("aligned: how far, and from which size on") {
  sim::reset();
  for (char const* const text : {"device | aligned(4KiB, from=1KiB)", "device | aligned(alignment=4KiB, from=1KiB)"}) {
    auto const memory = parse(text);
    CHECK(weir::taken(memory, 1023) == 1023);
    CHECK(weir::taken(memory, 1024) == 1024 + 4096 - 256);
  }
  CHECK(mentions(refusal("device | aligned(100)"), "aligned: alignment is 100 B; it must be a power of two"));
}

TEST_CASE("arena: one for each thread or stream, and how many") {
  struct expected {
    char const* options;
    std::size_t held;
  };
  for (expected const& e : {expected{"", 2_MiB}, expected{", per=thread", 2_MiB}, expected{", per=stream", 4_MiB},
                            expected{", per=stream, max_arenas=1", 2_MiB}}) {
    CAPTURE(e.options);
    streams const s;
    auto const memory = parse(std::string("device | arena(growth=2MiB") + e.options + ")");
    void *const p = memory.allocate(s.a, 1000), *const q = memory.allocate(s.b, 1000);
    CHECK(sim::live_bytes(0) == e.held);
    memory.deallocate(s.a, p, 1000);
    memory.deallocate(s.b, q, 1000);
  }
  CHECK(mentions(refusal("device | arena(max_arenas=65)"), "max_arenas is 65"));
  CHECK(mentions(refusal("device | arena(max_arenas=1KiB)"),
                 "column 27: arena's max_arenas is '1KiB'; it can be a whole number"));
}

TEST_CASE("fixed_size: the size of a block and of a chunk") {
  sim::reset();
  auto const memory = parse("device | fixed_size(block=1MiB, blocks_per_chunk=6)");
  CHECK(gives(memory, 1_MiB));
  CHECK(sim::live_bytes(0) == 6_MiB);
  CHECK_FALSE(gives(memory, 1_MiB + 1));
  CHECK(mentions(refusal("device | fixed_size"), "block_bytes is 0"));
}

TEST_CASE("binning: its smallest and its largest bin") {
  sim::reset();
  CHECK(mentions(described("device | binning"), "5 bins for up to 4.00 MiB"));
  CHECK(mentions(described("device | binning(min_exponent=20)"), "3 bins for up to 4.00 MiB"));
  CHECK(mentions(described("device | binning(max_exponent=20)"), "3 bins for up to 1.00 MiB"));
  CHECK(mentions(refusal("device | binning(min_exponent=23)"), "column 10: binning: powers of two from 2^23"));
  CHECK(mentions(refusal("device | binning(min_exponent=-1)"),
                 "column 31: binning's min_exponent is '-1'; it can be a whole number"));
}

TEST_CASE("limit: what each request is rounded up to") {
  sim::reset();
  auto const memory = parse("device | limit(2MiB, granularity=1MiB)");
  CHECK(gives(memory, 1));
  CHECK(gives(memory, 1));
  CHECK_FALSE(gives(memory, 1));
  CHECK(gives(parse("device | limit(fraction=50%)"), 1));
}

TEST_CASE("prefetch: where to, and what is advised") {
  sim::reset();
  for (char const* const advice : {"preferred_location", "accessed_by", "read_mostly"}) {
    CAPTURE(advice);
    auto const memory = parse(std::string("managed | prefetch(") + advice + "=true)");
    sim::reset_counters();
    CHECK(gives(memory, 1000));
    CHECK(sim::calls("cudaMemAdvise") == 1);
    CHECK(sim::calls("cudaMemPrefetchAsync") == 1);
  }
  CHECK(mentions(described("managed | prefetch(device=1)"), "0 hints for device 1"));
  CHECK(mentions(refusal("managed | prefetch(device=2)"), "prefetch: there is no device 2"));
}

TEST_CASE("scrub: when") {
  struct expected {
    char const* options;
    unsigned memsets;  // of an allocation and its free
  };
  for (expected const& e : {expected{"", 1}, expected{"(on_allocation=true)", 2},
                            expected{"(on_free=false, on_allocation=true)", 1}, expected{"(on_free=true)", 1}}) {
    CAPTURE(e.options);
    streams const s;
    auto const memory = parse(std::string("device | scrub") + e.options);
    sim::reset_counters();
    memory.deallocate(s.a, memory.allocate(s.a, 1000), 1000);
    CHECK(sim::calls("cudaMemsetAsync") == e.memsets);
  }
  CHECK(mentions(refusal("device | scrub(on_free=false)"), "at least one must be true"));
}

TEST_CASE("logging: where, who may read it, and when it is written") {
  sim::reset();
  weir::test::temporary_folder const folder;
  std::string const path = folder / "memory.csv", shared = folder / "shared.csv", link = folder / "link";
  auto const permissions = [](std::string const& of) {
    struct stat about {};
    REQUIRE(::stat(of.c_str(), &about) == 0);
    return about.st_mode & 0777U;
  };
  {
    auto const memory = parse("device | logging(" + path + ")");
    CHECK(permissions(path) == 0600);
    CHECK(gives(memory, 1000));
    CHECK(weir::test::records_of(path).size() == 1);  // the header; the line is in the buffer
  }
  {
    auto const memory = parse("device | logging(path=" + shared + ", mode=0640, buffer=0)");
    CHECK(permissions(shared) == 0640);
    CHECK(gives(memory, 1000));
    CHECK(weir::test::records_of(shared).size() == 2);
  }
  std::filesystem::create_symlink(path, link);
  CHECK_THROWS_AS(static_cast<void>(parse("device | logging(" + link + ")")), std::system_error);
  CHECK_NOTHROW(static_cast<void>(parse("device | logging(" + link + ", follow_links=true)")));
  CHECK(mentions(refusal("device | logging(x, mode=0680)"),
                 "column 26: logging's mode is '0680'; it can be an octal number"));
  CHECK(mentions(refusal("device | logging(x, mode=1000)"), "logging: mode is 01000; it must be at most 0777"));
}

TEST_CASE("async: CUDA's pool") {
  sim::reset();
  CHECK(mentions(described("async(initial=4MiB)"), "CUDA's pool holds 4.00 MiB"));
  CHECK(mentions(described("async(max=64MiB)"), "at most 64.00 MiB"));
  CHECK(mentions(described("async(device=1)"), "async(1)"));
  CHECK(mentions(refusal("async(initial=4MiB, release_threshold=1MiB)"), "initial_bytes"));
  CHECK(refusal("async(default_pool=true)").empty());
  for (char const* const own :
       {"initial=1MiB", "max=1GiB", "release_threshold=0", "reuse_follow_event_dependencies=false",
        "reuse_allow_opportunistic=false", "reuse_allow_internal_dependencies=false"}) {
    CAPTURE(own);
    CHECK(refusal(std::string("async(") + own + (own[0] == 'i' ? ", release_threshold=1GiB)" : ")")).empty());
    CHECK(mentions(refusal(std::string("async(default_pool=true, ") + own + ")"), "use_default_pool is set"));
  }
}

#if CUDART_VERSION >= 13000
TEST_CASE("async_managed and async_pinned: CUDA's pools of such memory") {
  sim::reset();
  for (std::string const name : {"async_managed", "async_pinned"}) {
    CAPTURE(name);
    CHECK(mentions(described(name + "(device=1)"), name + "(1)"));
    CHECK(gives(parse(name + "(max=2MiB)"), 2_MiB));
    CHECK_FALSE(gives(parse(name + "(max=2MiB)"), 4_MiB));
    CHECK(refusal(name + "(release_threshold=1MiB)").empty());
    CHECK(mentions(refusal(name + "(device=7)"), name + ": there is no device 7"));
  }
}
#endif

TEST_CASE("system: headroom") {
  sim::reset();
  CHECK(mentions(refusal("system(device=1)"), "system: device 1 does not reach memory of malloc"));
  sim::set_pageable_access(true);
  CHECK(mentions(described("system(device=1)"), "system(1)"));
  for (bool const with : {false, true}) {
    auto const memory = parse(with ? "system(headroom=1MiB)" : "system");
    sim::reset_counters();
    void* const p = memory.allocate(weir::host_order, 1_MiB);
    CHECK((sim::calls("cudaMemAdvise") != 0) == with);
    memory.deallocate(weir::host_order, p, 1_MiB);
  }
  sim::reset();
}

TEST_CASE("virtual_memory") {
  sim::reset();
  CHECK(
      mentions(described("virtual_memory(device=1, chunk=4MiB, max=8MiB)"),
               "virtual_memory(1)\n  virtual_memory holds 0 B in chunks of 4.00 MiB, 0 B of it mapped, at most 8.00"));
  CHECK(gives(parse("virtual_memory(range=4MiB)"), 4_MiB));
  CHECK(!gives(parse("virtual_memory(range=4MiB)"), 4_MiB + 1));
  CHECK(mentions(refusal("virtual_memory(range=1MiB)"), "range_bytes is 1048576"));
  CHECK(mentions(refusal("virtual_memory(handle_type=posix_fd)"), "exports no memory by file descriptors"));
  CHECK(refusal("virtual_memory(handle_type=none, movable=false)").empty());
  auto const gives_zeros = [](char const* text) {
    auto memory = parse(text);
    auto* const p = static_cast<unsigned char*>(memory.allocate(weir::host_order, 100));
    bool const zero = std::count(p, p + 100, 0) == 100;
    memory.deallocate(weir::host_order, p, 100);
    return zero;
  };
  CHECK(gives_zeros("virtual_memory(scrub=true)"));
  CHECK(!gives_zeros("virtual_memory"));
  sim::reset_counters();
  CHECK(refusal("virtual_memory(peers=false)").empty());
  CHECK(sim::calls("cudaDeviceCanAccessPeer") == 0);
  CHECK(refusal("virtual_memory(peers=true)").empty());
  CHECK(sim::calls("cudaDeviceCanAccessPeer") == 1);
}

TEST_CASE("peers of async and device") {
  sim::reset();
  CHECK(refusal("async(peers=false)").empty());
  CHECK(refusal("device(peers=false)").empty());
  CHECK(sim::calls("cudaDeviceCanAccessPeer") == 0);
  CHECK(refusal("async(peers=true)").empty());
  CHECK(sim::calls("cudaMemPoolSetAccess") == 1);
  CHECK(refusal("device(peers=true)").empty());
  CHECK(sim::calls("cudaDeviceEnablePeerAccess") == 1);
  CHECK(mentions(refusal("async(default_pool=true, peers=true)"), "use_default_pool is set"));
}

TEST_CASE("managed and pinned memory of another device") {
  sim::reset();
  CHECK(mentions(described("managed(device=1)"), "managed(1)"));
  CHECK(mentions(described("pinned(device=1)"), "pinned(1)"));
  CHECK(mentions(refusal("managed(device=7)"), "column 1: managed: there is no device 7"));
}

}  // namespace
