#include <weir/tools/parse.hpp>

#include <weir/core/bytes.hpp>
#include <weir/core/numbers.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/parsed.hpp>
#include <support/temporary_folder.hpp>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace weir::literals;
using weir::parse;
using anything = weir::basic_any_resource<false, false>;

std::string chain_of(std::string const& text) {
  weir::report r = weir::report_of(parse<anything>(text));
  return r.chain();
}

/// The error's column, 0 if there was none, and its text.
struct refusal {
  std::size_t column = 0;
  std::string what;
};
refusal refused(std::string const& text) {
  try {
    auto const made = parse<anything>(text);
    static_cast<void>(made);
    return {};
  } catch (weir::config_error const& e) {
    return {e.column(), e.what()};
  }
}

bool mentions(std::string const& text, char const* part) { return text.find(part) != std::string::npos; }

TEST_CASE("a stack is made as it is written, and works") {
  weir::sim::reset();
  {
    auto const memory = parse("async | pool(initial=1MiB, max=1GiB) | limit(60%) | statistics");
    void* const p = memory.allocate(cudaStream_t{}, 1000);
    REQUIRE(p != nullptr);
    std::memset(p, 1, 1000);
    memory.deallocate(cudaStream_t{}, p, 1000);
  }
  CHECK(weir::sim::live_allocations() == 0);
}

TEST_CASE("options arrive where they belong") {
  weir::sim::reset();
  CHECK(chain_of("host | limit(1.5GiB) | pool(2MiB)") == "pool(2.00 MiB) > limit(1.50 GiB) > host");
  CHECK(chain_of("  host|limit( max = 64KiB )  ") == "limit(64.00 KiB) > host");
  CHECK(chain_of("host | arena(max=1GiB, per=stream, streams=outlives_pool, pending=wait, synchronize=false)") ==
        "arena(1.00 GiB) > host");
  weir::sim::set_capacity(0, std::size_t{1} << 30);
  CHECK(chain_of("device | limit(50%)").substr(0, 17) == "limit(512.00 MiB)");
}

TEST_CASE("a source may be on another device") {
  weir::sim::reset();
  {
    auto const memory = parse("device(device=1)");
    void* const p = memory.allocate(weir::host_order, 4096);
    CHECK(weir::sim::live_bytes(1) == 4096);
    memory.deallocate(weir::host_order, p, 4096);
  }
  CHECK(refused("device(device=x)").column == 15);
}

TEST_CASE("what is wrong is shown by column, with what is allowed") {
  weir::sim::reset();
  refusal r = refused("async | pol(initial=1GiB)");
  CHECK(r.column == 9);
  CHECK(mentions(r.what, "no adaptor is called 'pol'"));
  CHECK(mentions(
      r.what,
      "aligned, arena, binning, fixed_size, limit, logging, pool, prefetch, scrub, statistics, trace, tracking, "
      "wait_for_memory"));
  CHECK(mentions(r.what, "\n  async | pol(initial=1GiB)\n          ^"));

  r = refused("asink");
  CHECK(r.column == 1);
  CHECK(mentions(r.what, "device, host, managed, pinned, system, virtual_memory"));

  r = refused("async | pool(initially=1GiB)");
  CHECK(r.column == 14);
  CHECK(mentions(r.what, "'initially'"));
  CHECK(mentions(r.what, "max, growth"));

  CHECK(refused("virtual_memory(device=99) | pool").column == 1);  // which only the machine can tell
  CHECK(refused("async | limit()").column == 9);                   // neither bytes nor a part
  for (char const* const both : {"1GiB, fraction=50%", "1GiB, 50%", "50%, 1GiB", "50%, max=1GiB"}) {
    CAPTURE(both);
    r = refused("async | limit(" + std::string(both) + ")");
    CHECK(r.column == 9);
    CHECK(mentions(r.what, "max_bytes is 1073741824, fraction is 0.5"));
    CHECK(mentions(r.what, "give exactly one of them"));
  }
  CHECK(refused("async | limit(max=1GiB, fraction=50%)").column == 9);
  CHECK(refused("async | limit(120%)").column == 15);
  CHECK(refused("async | limit(0%)").column == 15);
  CHECK(refused("async | limit(fraction=5)").column == 24);
  CHECK(refused("async | limit(5GB)").column == 15);
  CHECK(refused("async | limit(0.3B)").column == 15);
  CHECK(refused("async | limit(99999999999TiB)").column == 15);
  CHECK(refused("async | limit(-1)").column == 15);
  CHECK(refused("async | limit(1e3)").column == 15);
  CHECK(mentions(refused("async | limit(60)").what, "for a part of the device write limit(60%)"));
  CHECK(mentions(refused("async | limit(0.6)").what, "'0.6' is not a whole number of bytes; a part is written 60%"));
  CHECK_FALSE(mentions(refused("async | pool(0.6)").what, "a part"));
  CHECK(mentions(refused("async | limit(fraction=5)").what, "limit's fraction is '5'; it can be a percentage"));
  CHECK(mentions(refused("async | limit(120%)").what, "limit's fraction is '120%'; it can be above 0% and at most"));
  CHECK(mentions(refused("host | limit(60%)").what, "limit: fraction is 0.6, a part of a device's memory, and"));
  CHECK(refused("host | limit(60%)").column == 8);
  CHECK(mentions(refused("async | limit").what,
                 "no budget is given: max_bytes, fraction and fraction_of_free are 0; give exactly one"));
  CHECK(mentions(refused("async | pool(1MiB, 2MiB)").what, "'2MiB' needs its name before it, as in name=value: pool"));
  CHECK(mentions(refused("async | pool(size=1MiB)").what, "pool has no option 'size'; it takes initial, max, growth"));
  CHECK(mentions(refused("host(device=0)").what, "host has no option 'device'; it takes nothing"));
  CHECK(mentions(refused("Async").what, "no source is called 'Async'"));
  CHECK(mentions(refused("pool | async").what, "'pool' is an adaptor, which stands on a source; a stack starts with"));
  CHECK(mentions(refused("async | async").what, "'async' is a source, and a stack has one, at its start"));
  CHECK(chain_of("host | limit(64B, granularity=1)") == "limit(64 B) > host");
  CHECK(chain_of("host | limit(1KiB, name=search)") == "search: limit(1.00 KiB) > host");
  CHECK(chain_of("host | statistics(name=search)") == "search: statistics > host");
  CHECK(refused("async | pool(max=1MiB, initial=2MiB)").column == 9);
  CHECK(mentions(refused("async | pool(max=1MiB, initial=2MiB)").what, "column 9: pool: initial_bytes"));
  CHECK(refused("async | pool(max=1MiB, max=2MiB)").column == 24);
  CHECK(mentions(refused("async | pool(max=1MiB, max=2MiB)").what, "pool's max is given twice"));
  CHECK(refused("async | pool(pending=later)").column == 22);
  CHECK(refused("async | pool(synchronize=1)").column == 26);
  CHECK(refused("async | statistics(1)").column == 20);
}

TEST_CASE("a pool on virtual_memory grows in place, and moves chunks, also through layers") {
  weir::sim::reset();
  // In segments of whole chunks 10 MiB hold two blocks of 3 MiB, and one of 5 MiB.
  std::string pool;
  std::size_t block = 3_MiB;
  SUBCASE("pool") { pool = "pool"; }
  SUBCASE("arena") { pool = "arena"; }
  SUBCASE("fixed_size") { pool = "fixed_size(5MiB, blocks_per_chunk=1)", block = 5_MiB; }
  SUBCASE("under other layers") { pool = "pool | limit(1GiB)"; }
  SUBCASE("on a budget") { pool = "limit(10MiB) | pool"; }
  SUBCASE("on all layers that pass requests on") {
    pool =
        "aligned | limit(10MiB) | statistics(by_tag=true) | logging(/dev/null) | tracking | trace | "
        "wait_for_memory(1) | pool | statistics";
  }
  auto const memory = parse("virtual_memory(max=10MiB) | " + pool);
  std::vector<void*> blocks(10_MiB / block);
  for (void*& p : blocks) p = memory.allocate(weir::host_order, block);
  CHECK(weir::numbers(memory).back().allocated == 10_MiB);
  // Of those of 3 MiB two chunks at the end and one at the beginning are idle now.
  memory.deallocate(weir::host_order, blocks.front(), block);
  memory.deallocate(weir::host_order, blocks.back(), block);
  void* const large = memory.allocate(weir::host_order, 5_MiB);
  std::memset(large, 1, 5_MiB);
  memory.deallocate(weir::host_order, large, 5_MiB);
  for (std::size_t i = 1; i + 1 < blocks.size(); ++i) memory.deallocate(weir::host_order, blocks[i], block);
}

TEST_CASE("a text is checked without making anything, with the same errors") {
  weir::sim::reset();
  for (char const* const text :
       {"", "async |", "nothing | pool", "async | host", "async | pol", "async | pool(initial=x)", "pool",
        "host | host", "async | pool(initial=2GiB, max=1GiB)", "device | limit(0%)",
        "host | binning(min_exponent=9, max_exponent=8)", "async(release_threshold=1) | aligned(3)"}) {
    refusal const at_making = refused(text);
    weir::sim::reset_counters();
    CAPTURE(text);
    CHECK(at_making.column != 0);
    try {
      weir::check_text<anything>(text);
      FAIL_CHECK("no error");
    } catch (weir::config_error const& e) {
      CHECK(std::string(e.what()) == at_making.what);
    }
    CHECK(weir::sim::calls() == 0);
  }
  weir::check_text("async | pool(initial=1MiB) | limit(60%) | binning(min_exponent=8) | statistics");
  weir::check_text("device(device=7)");  // that there are only two is found when it is made
  CHECK_THROWS_WITH_AS(weir::check_text("host | pool"), doctest::Contains("'host' cannot be reached by the device"),
                       weir::config_error);
  CHECK_THROWS_WITH_AS(weir::check_text<weir::any_host_resource>("async | pool"),
                       doctest::Contains("'async' cannot be reached by the host"), weir::config_error);
  CHECK(weir::sim::calls() == 0);
}

TEST_CASE("a source whose memory is out of reach is refused with all that are in reach") {
#if CUDART_VERSION >= 13000
  std::string const pools = "async_managed, async_pinned, ";
#else
  std::string const pools;
#endif
  CHECK_THROWS_WITH_AS(weir::check_text<weir::any_host_device_resource>("host"),
                       doctest::Contains(("the device; take one of " + pools + "managed, pinned, system\n").c_str()),
                       weir::config_error);
  CHECK_THROWS_WITH_AS(
      weir::check_text<weir::any_host_resource>("async"),
      doctest::Contains(("the host; take one of " + pools + "host, managed, pinned, system\n").c_str()),
      weir::config_error);
  CHECK_THROWS_WITH_AS(weir::check_text("host"), doctest::Contains("system, virtual_memory\n"), weir::config_error);
}

TEST_CASE("a text that is refused has emptied no log that it names") {
  weir::sim::reset();
  weir::test::temporary_folder const folder;
  std::string const path = folder / "log.csv";
  std::ofstream(path) << "precious\n";
  for (std::string const above : {" | pol", " | limit(150%)", " | limit(max=x)", " | pool(initial=2GiB, max=1GiB)",
                                  " | binning(min_exponent=9, max_exponent=8)", " | host"}) {
    CAPTURE(above);
    CHECK(refused("host | logging(" + path + ")" + above).column > 8);
    CHECK(weir::test::text_of(path) == "precious\n");
  }
  CHECK_THROWS_AS(static_cast<void>(parse("host | logging(" + path + ")")), weir::config_error);
  CHECK(weir::test::text_of(path) == "precious\n");
  static_cast<void>(parse<anything>("host | logging(" + path + ")"));
  CHECK(weir::test::text_of(path).starts_with("Thread,"));
}

TEST_CASE("what is wrong with a source is its own error, whatever stands on it") {
  weir::sim::reset();
  for (std::string const above : {"", " | pool", " | limit(1GiB)"}) {
    CAPTURE(above);
    CHECK(refused("virtual_memory(chunk=3MiB)" + above).column == 1);
    CHECK(refused("virtual_memory(device=7)" + above).column == 1);
    CHECK(refused("virtual_memory(chunks=2MiB)" + above).column == 16);
  }
  CHECK(refused("virtual_memory | pol").column == 18);
  CHECK(refused("virtual_memory | pool(size=1)").column == 23);
  CHECK(refused("virtual_memory | pool(max=1MiB, initial=2MiB)").column == 18);
  CHECK(refused("virtual_memory | virtual_memory").column == 18);
}

TEST_CASE("text that is no stack is refused where it breaks") {
  CHECK(refused("").column == 1);
  CHECK(refused("   ").column == 4);
  CHECK(refused("host |").column == 7);
  CHECK(refused("host || pool").column == 7);
  CHECK(refused("host pool").column == 6);
  CHECK(refused("host | pool(").column == 13);
  CHECK(refused("host | pool(1MiB").column == 17);
  CHECK(refused("host | pool(1MiB,)").column == 18);
  CHECK(refused("host | pool(1MiB | limit(2MiB)").column == 18);
  CHECK(refused("host | pool(=1MiB)").column == 13);
  CHECK(refused("host | pool(max=)").column == 17);
  CHECK(refused("host | pool)").column == 12);
  CHECK(mentions(refused("host\1").what, "host?"));
}

TEST_CASE("memory that cannot keep the promise asked for is refused") {
  weir::sim::reset();
  CHECK_THROWS_AS(static_cast<void>(parse("host | pool")), weir::config_error);
  CHECK_THROWS_AS(static_cast<void>(parse<weir::any_host_resource>("async | pool")), weir::config_error);
  CHECK_NOTHROW(static_cast<void>(parse<weir::any_host_resource>("host | pool")));
  CHECK_NOTHROW(static_cast<void>(parse<weir::any_host_device_resource>("pinned | pool")));
  CHECK_NOTHROW(static_cast<void>(parse("managed")));
}

TEST_CASE("no text crashes it: random words, cuts and bytes are made or refused") {
  weir::sim::reset();
  std::mt19937 random(7);
  char const* const pieces[] = {"host", "device", "pool", "limit", "arena",   "(",          ")",       "|",
                                ",",    "=",      "max",  "1MiB",  "60%",     " ",          "initial", "x",
                                "1",    ".",      "%",    "GiB",   "binning", "fixed_size", "block",   "4KiB",
                                "-",    "\xff",   "\n",   "true",  "per",     "thread"};
  int made = 0, refusals = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = round % 2 == 0 ? "host | " : "";
    for (auto n = random() % 12; n > 0; --n) text += pieces[random() % std::size(pieces)];
    try {
      auto const stack = parse<anything>(text);
      stack.deallocate(weir::host_order, stack.allocate(weir::host_order, 64), 64);
      ++made;
    } catch (weir::config_error const& e) {
      REQUIRE(e.column() >= 1);
      REQUIRE(e.column() <= text.size() + 1);
      ++refusals;
    } catch (weir::out_of_memory const&) {  // a limit below 256 B
      ++made;
    }
  }
  CHECK(made > 0);
  CHECK(refusals > 10000);
}

}  // namespace
