#include <weir/core/live_block.hpp>

#include <weir/adaptors.hpp>
#include <weir/core.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources.hpp>
#include <weir/sources/virtual_memory.hpp>
#include <weir/tools.hpp>

#include <doctest/doctest.h>
#include <support/parsed.hpp>
#include <support/sim_fixture.hpp>

#include <cstdlib>
#include <string>

using namespace weir;

namespace {

/// A fresh world where misuse is written down.
struct told {
  told() {
    sim::reset();
    misuse().clear();
    before_ = set_misuse_handler([](char const* text) noexcept { misuse() = text; });
  }
  ~told() {
    set_misuse_handler(before_);
    sim::reset();
  }
  static std::string& misuse() {
    static std::string text;
    return text;
  }
  stream_ref const stream = cudaStreamLegacy;

 private:
  misuse_handler before_;
};

}  // namespace

TEST_CASE_FIXTURE(told, "a pool knows what a block was asked for with") {
  auto memory = make(device{} | pool{});
  void* const p = memory.allocate(stream, 1000, 512);
  live_block const found = find_block(memory, p);
  CHECK(found.bytes == 1000);
  CHECK(found.alignment == 512);
  CHECK_FALSE(find_block(memory, static_cast<char*>(p) + 256));
  CHECK(find_block(memory, static_cast<char*>(p) + 256).inside);
  memory.deallocate(stream, p, 1000, 512);
  CHECK_FALSE(find_block(memory, p));
  CHECK_FALSE(find_block(memory, &memory).inside);
}

TEST_CASE_FIXTURE(told, "every stack with a layer that knows its blocks takes frees without a size") {
  auto const works_on = [&](auto const& recipe) {
    auto memory = make(recipe);
    void* const small = memory.allocate(stream, 100);
    void* const large = memory.allocate(stream, 30'000, 1024);
    deallocate_unsized(memory, stream, small);
    deallocate_unsized(any_ref(memory), stream, large);
    deallocate_unsized(share(memory), stream, nullptr);
    CHECK(misuse() == "");
    for (layer_numbers const& one : numbers(memory)) {
      INFO(one.layer);
      if (one.layer == "pool" && one.depth == 0 && memory.layer_name != std::string("pool")) continue;  // holds chunks
      CHECK(one.live.value_or(0) == 0);
      CHECK(one.charged.value_or(0) == 0);
    }
  };
  works_on(device{} | pool{});
  works_on(device{} | arena{});
  works_on(device{} | fixed_size{.block_bytes = 32'768});
  works_on(virtual_memory{} | pool{});
  works_on(device{} | pool{} | limit{.max_bytes = 1_MiB} | statistics{} | logging{.path = "/dev/null"});
  works_on(device{} | pool{} | aligned{.alignment = 4096});
  works_on(device{} | pool{} | scrub{});
  works_on(device{} | tracking{});
  works_on(device{} | pool{} | binning{{bin{1024}, bin{4096, pool{}}}});
  works_on(device{} | fixed_size{.block_bytes = 256} | fallback{device{} | pool{}});
  works_on(device{} | pool{} | fallback{device{} | pool{}});
}

TEST_CASE_FIXTURE(told, "an erased stack and one from text take them too") {
  any_resource const memory = parse("async | pool | limit(1MiB) | statistics");
  deallocate_unsized(memory, stream, memory.allocate(stream, 5000));
  CHECK(misuse() == "");
  CHECK(find_limit(memory).used() == 0);
  CHECK(find(memory, "pool").find_block(nullptr).bytes == 0);
}

TEST_CASE_FIXTURE(told, "what a layer keeps and its own blocks are told apart where they begin at one address") {
  auto memory = make(device{} | pool{} | binning{{bin{4096}}});
  void* const first = memory.allocate(stream, 4096);
  deallocate_unsized(memory, stream, first);
  deallocate_unsized(memory, stream, first);  // the bin's chunk may begin there: that is no block of the caller's
  CHECK(misuse().find("no live block starts there") != std::string::npos);
  CHECK(find_block(find<pool_resource>(memory), first).inside);

  auto twice = make(device{} | pool{} | pool{});
  void* const p = twice.allocate(stream, 2_MiB);
  deallocate_unsized(twice, stream, p);
  misuse().clear();
  deallocate_unsized(twice, stream, p);
  CHECK(misuse().find("no live block starts there") != std::string::npos);
}

TEST_CASE_FIXTURE(told, "a pointer that nobody knows is misuse") {
  auto memory = make(device{} | pool{} | statistics{});
  int other = 0;
  deallocate_unsized(memory, stream, &other);
  CHECK(misuse().find("no layer of this stack knows it") != std::string::npos);

  auto source = make(device{});
  void* const p = source.allocate(stream, 1000);
  misuse().clear();
  deallocate_unsized(source, stream, p);
  CHECK(misuse().find("without pool, arena, fixed_size, scrub or tracking") != std::string::npos);
  source.deallocate(stream, p, 1000);
}

TEST_CASE_FIXTURE(told, "they work without caching") {
  setenv("WEIR_NO_CACHING", "1", 1);
  auto const works_on = [&](auto const& recipe) {
    auto memory = make(recipe);
    void* const p = memory.allocate(stream, 1000);
    void* const q = memory.allocate(stream, 3000, 4096);
    deallocate_unsized(memory, stream, p);
    CHECK(find_block(memory, q).alignment == 4096);
    deallocate_after(memory, stream, q, 3000, {}, 4096);
    CHECK_FALSE(find_block(memory, q));
    CHECK(misuse() == "");
    CHECK(sim::live_allocations() == 0);
  };
  works_on(device{} | pool{} | statistics{});
  works_on(device{} | arena{} | statistics{});
  works_on(device{} | pool{} | pool{});
  unsetenv("WEIR_NO_CACHING");
}
