// Memory given back wrongly: each way, at each layer that can see it, ends the program with words that say what it was.
#include "death.hpp"

#include <weir/adaptors/tracking.hpp>
#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>
#include <weir/testing/checked.hpp>
#include <weir/weir.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

using namespace weir;

namespace {

stream_ref const legacy = cudaStreamLegacy;
constexpr std::size_t bytes = 3000;  // of every block here

void good(any_ref memory, any_ref, std::byte* p) { memory.deallocate(legacy, p, bytes); }
void twice(any_ref memory, any_ref, std::byte* p) {
  memory.deallocate(legacy, p, bytes);
  memory.deallocate(legacy, p, bytes);
}
void twice_merged(any_ref memory, any_ref, std::byte* p) {
  void* const next = memory.allocate(legacy, bytes);
  memory.deallocate(legacy, p, bytes);
  memory.deallocate(legacy, next, bytes);
  memory.deallocate(legacy, p, bytes);
}
void foreign(any_ref memory, any_ref, std::byte*) {
  void* theirs = nullptr;
  static_cast<void>(cudaMallocAsync(&theirs, bytes, cudaStreamLegacy));
  memory.deallocate(legacy, static_cast<std::byte*>(theirs) + 256, bytes);
}
void on_the_stack(any_ref memory, any_ref, std::byte*) {
  std::byte mine[64];
  memory.deallocate(legacy, mine, bytes);
}
void interior(any_ref memory, any_ref, std::byte* p) { memory.deallocate(legacy, p + 512, bytes); }
void too_small(any_ref memory, any_ref, std::byte* p) { memory.deallocate(legacy, p, bytes - 1); }
void too_large(any_ref memory, any_ref, std::byte* p) { memory.deallocate(legacy, p, bytes + 1); }
void no_bytes(any_ref memory, any_ref, std::byte* p) { memory.deallocate(legacy, p, 0); }
void all_bytes(any_ref memory, any_ref, std::byte* p) { memory.deallocate(legacy, p, ~std::size_t{0}); }
void wrong_alignment(any_ref memory, any_ref, std::byte* p) { memory.deallocate(legacy, p, bytes, 512); }
void wrong_resource(any_ref, any_ref other, std::byte* p) { other.deallocate(legacy, p, bytes); }

/// What becomes of a wrong free of `recipe`'s memory, in a child.
template <class F, class Wrong>
death::ending after(F const& recipe, Wrong wrong) {
  return death::of([&] {
    auto memory = make(recipe);
    auto other = make(recipe);
    static_cast<void>(other.allocate(legacy, bytes));  // so that it knows some memory
    wrong(any_ref(memory), any_ref(other), static_cast<std::byte*>(memory.allocate(legacy, bytes)));
  });
}

/// A layer that knows its blocks sees all of it; `name` is how it calls itself.
template <class F>
void check_knows_its_blocks(F const& recipe, char const* name) {
  CAPTURE(name);
  CHECK(after(recipe, good).signal == 0);
  CHECK(after(recipe, twice).with("weir:", name, "freed twice"));
  CHECK(after(recipe, twice_merged).with(name, "freed twice"));
  CHECK(after(recipe, interior).with(name, "no live block starts there"));
  CHECK(after(recipe, foreign).with(name, "is not this"));
  CHECK(after(recipe, on_the_stack).with(name, "is not this"));
  CHECK(after(recipe, wrong_resource).with(name, "is not this"));
  CHECK(after(recipe, too_small).with(name, "with 2999 B", "allocated with 3000 B"));
  CHECK(after(recipe, too_large).with(name, "with 3001 B", "allocated with 3000 B"));
  CHECK(after(recipe, no_bytes).with(name, "with 0 B"));
  CHECK(after(recipe, all_bytes).with(name, "18446744073709551615 B"));
  CHECK(after(recipe, wrong_alignment).with(name, "aligned to 512", "aligned to 256"));
}

}  // namespace

TEST_CASE("a pool sees every wrong free") { check_knows_its_blocks(device{} | pool{}, "pool"); }
TEST_CASE("a pool on CUDA's pool sees every wrong free") { check_knows_its_blocks(async{} | pool{}, "pool"); }
TEST_CASE("arenas see every wrong free") { check_knows_its_blocks(device{} | arena{}, "arena"); }
TEST_CASE("blocks of one size are known as well") {
  check_knows_its_blocks(device{} | fixed_size{.block_bytes = 4096}, "fixed_size");
}
TEST_CASE("tracking sees every wrong free, whatever stands below it") {
  check_knows_its_blocks(device{} | tracking{}, "tracking");
  check_knows_its_blocks(async{} | pool{} | tracking{.frames = 3} | limit{.max_bytes = 1_GiB}, "tracking");
}
TEST_CASE("layers that only look on let through what the pool below them sees") {
  check_knows_its_blocks(device{} | pool{} | logging{.path = "/dev/null"}, "pool");
  check_knows_its_blocks(device{} | pool{} | checked{}, "pool");
  check_knows_its_blocks(device{} | pool{} | limit{.max_bytes = 1_GiB} | statistics{}, "pool");
  check_knows_its_blocks(device{} | fixed_size{.block_bytes = 4096} | limit{.max_bytes = 1_GiB}, "fixed_size");
}

TEST_CASE("a bin sees what goes wrong inside it; a size of another bin leads there") {
  auto const recipe = device{} | pool{} | binning::powers_of_two(10, 14);
  CHECK(after(recipe, good).signal == 0);
  CHECK(after(recipe, twice).with("fixed_size", "freed twice"));
  CHECK(after(recipe, interior).with("fixed_size", "no live block starts there"));
  CHECK(after(recipe, foreign).with("fixed_size", "is not this"));
  CHECK(after(recipe, wrong_resource).with("fixed_size", "is not this"));
  CHECK(after(recipe, too_small).with("fixed_size", "allocated with 3000 B"));
  CHECK(after(recipe, wrong_alignment).with("fixed_size", "aligned to 512"));
  CHECK(after(recipe, all_bytes).with("weir: pool", "18446744073709551615 B"));  // beyond all bins
  CHECK(after(recipe, no_bytes).with("fixed_size", "with 0 B"));
}

TEST_CASE("a limit sees more go back than it let through, also where nothing below it knows sizes") {
  auto const recipe = device{} | limit{.max_bytes = 1_MiB};
  CHECK(after(recipe, good).signal == 0);
  CHECK(after(recipe, twice).with("weir: limit", "freed twice"));
  CHECK(after(recipe, all_bytes).with("weir: limit", "a size, an alignment or a pointer is wrong"));
  CHECK(after(recipe, interior).with("weir: device", "does not know this pointer"));
}

TEST_CASE("statistics see more go back than was taken, also where nothing below them knows sizes") {
  auto const recipe = device{} | statistics{};
  CHECK(after(recipe, good).signal == 0);
  CHECK(after(recipe, twice).with("weir: statistics", "freed twice"));
  CHECK(after(recipe, too_large).with("weir: statistics", "3001 B"));
  CHECK(after(recipe, no_bytes).with("weir: statistics", "0 B"));
  CHECK(after(recipe, all_bytes).with("weir: statistics", "18446744073709551615 B"));
}

TEST_CASE("sources report the pointers that CUDA does not know") {
  auto const check = [](auto const& recipe, char const* name) {
    CAPTURE(name);
    CHECK(after(recipe, good).signal == 0);
    CHECK(after(recipe, twice).with(name, "does not know this pointer"));
    CHECK(after(recipe, interior).with(name, "does not know this pointer"));
    CHECK(after(recipe, on_the_stack).with(name, "does not know this pointer"));
  };
  check(device{}, "device");
  check(async{}, "async");
  check(managed{}, "managed");
  check(pinned{}, "pinned");
}

TEST_CASE("memory of a stack that ended is foreign to every other, and nothing may touch it") {
  CHECK(death::of([] {
          void* p = nullptr;
          {
            auto ended = make(device{} | pool{});
            p = ended.allocate(legacy, bytes);
          }
          auto memory = make(device{} | pool{.initial_bytes = 1_MiB});
          memory.deallocate(legacy, p, bytes);
        }).with("weir: pool", "deallocate of"));
  void* p = nullptr;
  {
    auto ended = make(device{} | pool{});
    p = ended.allocate(legacy, bytes);
  }
  CHECK(cudaMemsetAsync(p, 0, bytes, cudaStreamLegacy) == cudaErrorInvalidValue);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("a checked layer tells the simulated runtime, where nothing else knows sizes") {
  auto const kinds_over = [](auto recipe, auto wrong) {
    sim::reset();
    sim::check_order(true);
    auto const before = set_misuse_handler([](char const*) noexcept {});
    {
      auto memory = make(recipe | checked{});
      auto other = make(recipe | checked{});
      wrong(any_ref(memory), any_ref(other), static_cast<std::byte*>(memory.allocate(legacy, bytes)));
    }
    set_misuse_handler(before);
    std::vector<sim::order_problem> found;
    for (auto const& report : sim::reports()) found.push_back(report.kind);
    sim::reset();
    found.resize(found.empty() ? 0 : 1);  // what follows from it may be reported too
    return found;
  };
  auto const kinds = [&](auto wrong) { return kinds_over(device{}, wrong); };
  using enum sim::order_problem;
  using problems = std::vector<sim::order_problem>;
  CHECK(kinds(good) == problems{});
  CHECK(kinds(too_small) == problems{wrong_size});
  CHECK(kinds(too_large) == problems{wrong_size});
  CHECK(kinds(wrong_alignment) == problems{wrong_size});
  CHECK(kinds(wrong_resource) == problems{foreign_free});
  CHECK(kinds(twice) == problems{foreign_free});  // the memory itself is gone by then
  CHECK(kinds_over(device{} | pool{}, twice) == problems{double_free});
  CHECK(kinds(interior) == problems{foreign_free});
}
