#include <weir/core/numbers.hpp>

#include <weir/adaptors.hpp>
#include <weir/sources.hpp>
#include <weir/tools.hpp>
#include <weir/weir.hpp>

#include <doctest/doctest.h>
#include <support/parsed.hpp>
#include <support/sim_fixture.hpp>
#include <support/test_source.hpp>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace weir;
using namespace weir::test;

namespace {

std::string names_of(std::vector<layer_numbers> const& layers) {
  std::string text;
  for (layer_numbers const& one : layers)
    text += (text.empty() ? "" : " ") + std::string(one.depth, '>') + one.layer +
            (one.name.empty() ? "" : "(" + one.name + ")");
  return text;
}

template <class Memory>
std::string error_of_find(Memory& memory, char const* name) {
  return message_of<std::invalid_argument>([&] { static_cast<void>(weir::find(memory, name)); });
}
template <class Memory>
std::string error_of_limit(Memory& memory, char const* name) {
  return message_of<std::invalid_argument>([&] { static_cast<void>(find_limit(memory, name)); });
}

}  // namespace

TEST_CASE_FIXTURE(fresh_world, "each layer says what it knows, and leaves the rest empty") {
  auto memory = make(async{.max_bytes = 1_GiB} | limit{.max_bytes = 64_MiB, .name = "search"} |
                     pool{.max_bytes = 32_MiB} | statistics{});
  void* const a = memory.allocate(host_order, 1000);
  void* const b = memory.allocate(host_order, 5000);
  memory.deallocate(host_order, b, 5000);
  CHECK_THROWS_AS(memory.allocate(host_order, 40_MiB), out_of_memory);

  std::vector<layer_numbers> const now = numbers(memory);
  CHECK(names_of(now) == "statistics pool limit(search) async");
  CHECK(now[0] == layer_numbers{.layer = "statistics",
                                .device = 0,
                                .requested = 1000,
                                .requested_peak = 6000,
                                .requested_total = 6000,
                                .allocated = 1024,
                                .allocated_peak = 6144,
                                .allocated_total = 6144,
                                .live = 1,
                                .live_peak = 2,
                                .live_total = 2,
                                .failed = 1});
  CHECK(now[1] == layer_numbers{.layer = "pool",
                                .device = 0,
                                .requested = 1000,
                                .requested_peak = 6000,
                                .requested_total = 6000,
                                .allocated = 1024,
                                .allocated_peak = 6144,
                                .reserved = 2_MiB,
                                .reserved_peak = 2_MiB,
                                .pending = 0,
                                .free = 2_MiB - 1024,
                                .captured = 0,
                                .max_bytes = 32_MiB,
                                .live = 1,
                                .live_total = 2,
                                .refused = 1});
  CHECK(now[2] == layer_numbers{.layer = "limit",
                                .name = "search",
                                .device = 0,
                                .captured = 0,
                                .charged = 2_MiB,
                                .charged_peak = 2_MiB,
                                .max_bytes = 64_MiB,
                                .refused = 0});
  CHECK(now[3] == layer_numbers{.layer = "async",
                                .device = 0,
                                .allocated = 2_MiB,
                                .allocated_peak = 2_MiB,
                                .reserved = 2_MiB,
                                .reserved_peak = 2_MiB,
                                .max_bytes = 1_GiB});
  memory.deallocate(host_order, a, 1000);
}

TEST_CASE_FIXTURE(fresh_world, "a stack says the same whatever is known of its type") {
  auto memory = make(async{} | pool{} | binning{.bins = {bin{64_KiB}, bin{1_MiB, pool{}}}} |
                     limit{.max_bytes = 64_MiB, .name = "search"});
  void* const p = memory.allocate(host_order, 100'000);
  std::vector<layer_numbers> const typed = numbers(memory);
  CHECK(names_of(typed) == "limit(search) binning >fixed_size >pool pool async");
  CHECK(typed[1].reserved == 2_MiB);
  CHECK(typed[3].reserved == 2_MiB);
  CHECK(typed[4].live == 1);
  CHECK(numbers(std::as_const(memory)) == typed);
  CHECK(numbers(share(memory)) == typed);
  CHECK(numbers(any_ref(memory)) == typed);
  CHECK(numbers(any_resource(share(memory))) == typed);
  memory.deallocate(host_order, p, 100'000);
}

TEST_CASE_FIXTURE(fresh_world, "a parsed stack names all of its layers, and reports on them") {
  auto const parsed =
      parse("async | pool | limit(1GiB, name=search) | arena | statistics | fixed_size(4096) | logging(/dev/null)");
  CHECK(names_of(numbers(parsed)) == "logging fixed_size statistics arena limit(search) pool async");
  CHECK(report_of(parsed).chain() ==
        "logging > fixed_size(4.00 KiB) > statistics > arena > search: limit(1.00 GiB) > pool > async(0)");
  for (char const* source : {"device", "managed", "pinned", "host"}) {
    auto const bare = parse<basic_any_resource<false, false>>(source);
    CHECK(names_of(numbers(bare)) == source);
    bool const has_device = source != std::string("host");
    CHECK(numbers(bare)[0] == layer_numbers{.layer = source, .device = has_device ? std::optional(0) : std::nullopt});
  }
}

TEST_CASE_FIXTURE(fresh_world, "a limit is found by its name, and followed while the stack is used") {
  auto const check = [](auto& memory) {
    limit_ref const search = find_limit(memory, "search"), index = find_limit(memory, "index");
    void* const p = memory.allocate(host_order, 1_MiB);
    CHECK(search.used() == 1_MiB);
    CHECK(index.used() == 1_MiB);
    CHECK(search.max_bytes() == 2_MiB);
    CHECK(index.max_bytes() == 64_MiB);
    CHECK_THROWS_AS(memory.allocate(host_order, 2_MiB), out_of_memory);
    CHECK(search.refused() == 1);
    CHECK(index.refused() == 0);
    memory.deallocate(host_order, p, 1_MiB);
    CHECK(search.used() == 0);
    CHECK(search.peak() == 1_MiB);
    CHECK(find_limit(memory).max_bytes() == 2_MiB);  // the outermost
  };
  auto memory = make(device{} | limit{.max_bytes = 64_MiB, .name = "index"} | statistics{} |
                     limit{.max_bytes = 2_MiB, .name = "search"});
  check(memory);
  any_resource const parsed = parse("device | limit(64MiB, name=index) | statistics | limit(2MiB, name=search)");
  check(parsed);
}

TEST_CASE_FIXTURE(fresh_world, "a layer is found by its name or by what it is, in bins too, and asked alone") {
  any_resource const memory{async{} | pool{} |
                            binning{.bins = {bin{64_KiB}, bin{1_MiB,
                                                              [](auto upstream) {
                                                                return upstream | pool{} |
                                                                       limit{.max_bytes = 8_MiB, .name = "large"};
                                                              }}}} |
                            pool{} | statistics{}};
  memory.deallocate(host_order, memory.allocate(host_order, 1_MiB), 1_MiB);
  CHECK(weir::find(memory, "large").numbers().max_bytes == 8_MiB);
  CHECK(weir::find(memory, "large").limit().has_value());
  CHECK(!weir::find(memory, "pool").limit().has_value());
  CHECK(find_limit(memory).max_bytes() == 8_MiB);

  layer_ref const outer = weir::find(memory, "pool");
  CHECK(outer.keeps_memory());
  CHECK(!weir::find(memory, "statistics").keeps_memory());
  std::size_t const held = outer.reserved();
  CHECK(held > 0);
  CHECK(outer.trim() == held);
  CHECK(outer.reserved() == 0);
  CHECK(weir::find(memory, "async").reserved() >= held);  // nobody asked the layers below
}

TEST_CASE_FIXTURE(fresh_world,
                  "a layer of the stack is found before one of a stack beside it, however deep it stands") {
  auto memory = make(device{} | pool{} | limit{.max_bytes = 1_MiB, .name = "x"} |
                     fallback{device{} | pool{} | limit{.max_bytes = 2_MiB, .name = "x"}});
  void* const p = memory.allocate(host_order, 1000);
  CHECK(weir::find(memory, "pool").numbers().allocated == 1024);
  CHECK(weir::find(any_ref(memory), "pool").numbers().allocated == 1024);
  CHECK(find_limit(memory, "x").max_bytes() == 1_MiB);
  CHECK(find_limit(memory).max_bytes() == 1_MiB);
  memory.deallocate(host_order, p, 1000);
}

TEST_CASE_FIXTURE(fresh_world, "who asks for a name that is not there learns which are") {
  any_resource const memory =
      parse("device | limit(64MiB, name=index) | pool | limit(32MiB) | limit(2MiB, name=search)");
  CHECK(error_of_limit(memory, "serch") ==
        "weir: this stack has no limit called 'serch'; it has 'search', one without a name, 'index'");
  CHECK(error_of_find(memory, "arena") ==
        "weir: this stack has no layer called 'arena'; it has limit 'search', limit, pool, limit 'index', device");
  auto bare = make(device{});
  CHECK(error_of_limit(bare, "") == "weir: this stack has no limit");
  CHECK(error_of_limit(bare, "a\nb") == "weir: this stack has no limit called 'a\\nb'");
}

// ---- peaks that start again

TEST_CASE_FIXTURE(fresh_world, "the peaks of all layers start again from what is so now") {
  auto const check = [](auto&& memory) {
    void* const kept = memory.allocate(host_order, 1_MiB);
    memory.deallocate(host_order, memory.allocate(host_order, 3_MiB), 3_MiB);
    weir::synchronize(memory);
    weir::trim(memory);
    for (layer_numbers const& one : numbers(memory)) {
      INFO(one.layer);
      if (one.requested) CHECK(one.requested_peak != one.requested);
      if (one.charged) CHECK(one.charged_peak == 4_MiB);
    }
    weir::reset_peaks(memory);
    for (layer_numbers const& one : numbers(memory)) {
      INFO(one.layer);
      CHECK(one.requested_peak == one.requested);
      CHECK(one.allocated_peak == one.allocated);
      CHECK(one.reserved_peak == one.reserved);
      CHECK(one.charged_peak == one.charged);
    }
    memory.deallocate(host_order, memory.allocate(host_order, 2_MiB), 2_MiB);
    layer_numbers const outermost = numbers(memory).front();
    CHECK(outermost.charged_peak == 3_MiB);
    memory.deallocate(host_order, kept, 1_MiB);
  };
  check(make(async{} | pool{} | statistics{.by_tag = true} | limit{64_MiB}));
  check(make(async{} | arena{} | statistics{} | limit{64_MiB}));
  check(make(virtual_memory{} | pool{} | limit{64_MiB}));
  check(parse("async | pool | statistics | limit(64MiB)"));
  auto memory = make(async{} | pool{} | limit{64_MiB});
  check(share(memory));
}

TEST_CASE_FIXTURE(fresh_world, "the peaks of layers that stand in bins start again too") {
  any_resource const memory{async{} | binning{.bins = {bin{64_KiB, pool{}}}}};
  memory.deallocate(host_order, memory.allocate(host_order, 1000), 1000);
  CHECK(numbers(memory)[1].requested_peak == 1000);
  weir::reset_peaks(memory);
  CHECK(numbers(memory)[1].layer == "pool");
  CHECK(numbers(memory)[1].requested_peak == 0);
}

TEST_CASE_FIXTURE(fresh_world, "a CUDA pool that is someone else's keeps its peaks") {
  auto memory = make(async{.use_default_pool = true});
  memory.deallocate(host_order, memory.allocate(host_order, 1_MiB), 1_MiB);
  std::size_t const peak = numbers(memory)[0].allocated_peak.value();
  CHECK(peak >= 1_MiB);
  weir::reset_peaks(memory);
  CHECK(numbers(memory)[0].allocated_peak == peak);
}

TEST_CASE_FIXTURE(fresh_world, "how much may lie idle does not go by peaks that were reset") {
  // With the default max_waste, a pool that once had 60 MiB live may hold idle segments that one with a peak of 1 MiB
  // gives back before it grows.
  auto const held_after = [](bool reset) {
    auto memory = make(device{} | pool{.growth_bytes = 2_MiB});
    std::vector<void*> blocks;
    for (int i = 0; i < 30; ++i) blocks.push_back(memory.allocate(host_order, 2_MiB));
    for (void* const p : blocks) memory.deallocate(host_order, p, 2_MiB);
    if (reset) weir::reset_peaks(memory);
    void* const p = memory.allocate(host_order, 3_MiB);  // fits no segment: the pool grows
    std::size_t const held = memory.numbers().reserved.current;
    memory.deallocate(host_order, p, 3_MiB);
    return held;
  };
  CHECK(held_after(true) == held_after(false));
}

TEST_CASE_FIXTURE(fresh_world, "where CUDA refuses, its peaks stay, and the other layers' are reset") {
  auto memory = make(async{} | pool{});
  memory.deallocate(host_order, memory.allocate(host_order, 1_MiB), 1_MiB);
  sim::fail_call("cudaMemPoolSetAttribute", 1, cudaErrorUnknown);
  weir::reset_peaks(memory);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(numbers(memory)[0].requested_peak == 0);
  CHECK(numbers(memory)[1].allocated_peak == 2_MiB);
}
