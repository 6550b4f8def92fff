#include <weir/adaptors/binning.hpp>
#include <weir/adaptors/detail/bin.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/live_block.hpp>
#include <weir/core/resource_ref.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

/// Says that it releases 100 bytes, each time.
struct captured_source {
  std::vector<std::uint64_t> released = {};

  void* allocate(stream_ref, std::size_t bytes, std::size_t) { return ::operator new(bytes); }
  void deallocate(stream_ref, void* p, std::size_t, std::size_t) noexcept { ::operator delete(p); }
  std::size_t release_captured(std::uint64_t capture) {
    released.push_back(capture);
    return 100;
  }
};

}  // namespace

static_assert(std::is_copy_constructible_v<bin> && std::is_copy_assignable_v<bin>);

TEST_CASE("a bin is a value: copies make resources of their own") {
  source_state first_state, second_state;
  bin const original{64_KiB, pool{}};
  binning const options{.bins = {original}};
  binning const copy = options;
  auto first = make(source{&first_state} | options);
  auto second = make(source{&second_state} | copy);
  void* const p = first.allocate(host_order, 1);
  CHECK(first_state.live_count == 1);
  CHECK(second_state.live_count == 0);
  first.deallocate(host_order, p, 1);
  CHECK(original.bytes() == 64_KiB);
}

TEST_CASE("by default a bin has chunks of at most 64 MiB, of 128 blocks, or of one block") {
  auto const chunk = [](std::size_t bytes) {
    source_state state;
    auto memory = make(source{&state} | binning{.bins = {bin{bytes}}});
    memory.deallocate(host_order, memory.allocate(host_order, bytes), bytes);
    return state.live_bytes.load();
  };
  CHECK(chunk(64_KiB) == 8_MiB);
  CHECK(chunk(1_MiB) == 64_MiB);
  CHECK(chunk(6_MiB) == 60_MiB);
  CHECK(chunk(100_MiB) == 100_MiB);
}

TEST_CASE("a bin gives back what its own layers took from the upstream, and leaves alone what is someone else's") {
  source_state state, other_state;
  auto other = make(source{&other_state} | pool{});
  auto const used_once = [&](auto how) {
    auto memory = make(source{&state} | binning{.bins = {bin{64_KiB, how}}});
    memory.deallocate(host_order, memory.allocate(host_order, 1), 1);
    std::size_t const reserved = memory.reserved();
    return std::pair(reserved, memory.trim());
  };
  CHECK(used_once([&](auto) { return share(other) | limit{1_MiB}; }) == std::pair(0_MiB, 0_MiB));
  CHECK(used_once([&](auto) { return any_host_device_resource(share(other)) | limit{1_MiB}; }) ==
        std::pair(0_MiB, 0_MiB));
  CHECK(other_state.live_bytes == 2_MiB);
  // The pool holds 2 MiB of the 4 MiB that the layer below it took.
  auto const two_layers = [](auto up) { return up | fixed_size{.block_bytes = 2_MiB, .blocks_per_chunk = 2} | pool{}; };
  CHECK(used_once([&](auto up) { return two_layers(up) | limit{1_MiB}; }) == std::pair(4_MiB, 4_MiB));
  CHECK(used_once([&](auto up) { return basic_any_resource<false, false>(two_layers(up)); }) ==
        std::pair(4_MiB, 4_MiB));
  CHECK(state.live_bytes == 0);

  auto on_a_pool = make(source{&state} | pool{.growth_bytes = 32_MiB} | binning{.bins = {bin{64_KiB}}});
  on_a_pool.deallocate(host_order, on_a_pool.allocate(host_order, 1), 1);
  CHECK(on_a_pool.reserved() == 8_MiB);
  CHECK(on_a_pool.trim_layer() == 8_MiB);
  CHECK(state.live_bytes == 32_MiB);
  CHECK(weir::trim(on_a_pool) == 32_MiB);

  auto nested = make(source{&state} | binning{.bins = {bin{64_KiB, binning{.bins = {bin{4_KiB}}}}}});
  nested.deallocate(host_order, nested.allocate(host_order, 1), 1);
  CHECK(nested.reserved() == 2_MiB);
  CHECK(nested.trim() == 2_MiB);
}

TEST_CASE("blocks are found and captured memory is released through a bin that is a handle, the upstream once") {
  source_state state, other_state;
  auto other = make(source{&other_state} | pool{});
  captured_source upstream;
  auto memory = make(share(upstream) | binning{.bins = {bin{1_KiB, [&](auto) { return share(other); }},
                                                        bin{4_KiB, [&](auto) { return any_resource(share(other)); }},
                                                        bin{64_KiB, [](auto up) { return up | limit{1_MiB}; }}}});
  for (std::size_t const bytes : {1_KiB, 4_KiB}) {
    void* const p = memory.allocate(host_order, bytes);
    CHECK(find_block(memory, p).bytes == bytes);
    deallocate_unsized(memory, host_order, p);
  }
  CHECK(other.numbers().requested.current == 0);
  CHECK(release_captured(memory, 7) == 100);
  CHECK(upstream.released == std::vector<std::uint64_t>{7});

  // A pool on the upstream's address, whose first member it is: small requests to the pool, large ones to its source.
  auto whole = make(source{&state} | pool{});
  auto below = make(share(whole.upstream()) | binning{.bins = {bin{1_KiB, [&](auto) { return share(whole); }}}});
  void* const p = below.allocate(host_order, 1_KiB);
  CHECK(find_block(below, p).bytes == 1_KiB);
  deallocate_unsized(below, host_order, p);
  CHECK(whole.numbers().requested.current == 0);

  captured_source other_captured;
  auto with_handle = make(source{&state} | binning{.bins = {bin{1_KiB, [&](auto) { return share(other_captured); }}}});
  CHECK(release_captured(with_handle, 8) == 100);
  CHECK(other_captured.released == std::vector<std::uint64_t>{8});
}
