// needs: tsan
#include <weir/adaptors/logging.hpp>
#include <weir/adaptors/tracking.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/core/tag.hpp>

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/temporary_folder.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

stream_ref const legacy;
using tracked = tracking_resource<source_resource>;
static_assert(resource<tracked>);
static_assert(device_accessible<tracked> && host_accessible<tracked> && host_ordered<tracked>);
static_assert(knows_blocks<tracked>);

/// What a resource says at its end.
struct heard {
  std::vector<std::string> reports;
  tracking options() {
    return {.on_leaks = [this](std::string const& report) { reports.push_back(report); }};
  }
};

std::string hex_of(void const* p) { return detail::hex(p); }

std::size_t lines_in(std::string const& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

/// A stack that ends with a block that nobody freed through it; below it is freed, or leak sanitizers would speak too.
void leak(unsigned status) {
  source_state state;
  auto memory = make(source{&state} | tracking{.report_leaks = false, .leak_exit_status = status});
  memory.upstream().deallocate(legacy, memory.allocate(legacy, 100), 100, default_alignment);
}

/// What a child that does this ends with; 3 if nothing changes it.
template <class F>
int status_after(F work) {
  std::fflush(nullptr);  // or the child prints it again
  ::pid_t const child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    work();
    std::exit(3);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("wrong options are refused") {
  CHECK(tracking{.frames = 65}.problem() == "tracking: frames is 65; it must be at most 64");
  CHECK(tracking{.frames = 64}.valid());
  source_state state;
  CHECK_THROWS_AS(static_cast<void>(make(source{&state} | tracking{.frames = 65})), std::invalid_argument);
}

TEST_CASE("each live block is known with who allocated it, the largest first") {
  source_state state;
  auto memory = make(source{&state} | tracking{});
  stream_ref const other(reinterpret_cast<cudaStream_t>(std::uintptr_t{0x55d0}));
  void *a = nullptr, *b = nullptr;
  {
    tag const scope{"decoder"};
    a = memory.allocate(other, 100, 512);
  }
  std::uint64_t thread = 0;
  std::thread([&] {
    thread = static_cast<std::uint64_t>(::gettid());
    b = memory.allocate(host_order, 3000);
  }).join();
  auto const blocks = memory.blocks();
  REQUIRE(blocks.size() == 2);
  CHECK(blocks[0].address == reinterpret_cast<std::uintptr_t>(b));
  CHECK(blocks[0].bytes == 3000);
  CHECK(blocks[0].thread == thread);
  CHECK(blocks[0].stream == stream_ref(host_order));
  CHECK_FALSE(blocks[0].tag);
  CHECK(blocks[1].address == reinterpret_cast<std::uintptr_t>(a));
  CHECK(blocks[1].alignment == 512);
  CHECK(blocks[1].thread == static_cast<std::uint64_t>(::gettid()));
  CHECK(blocks[1].stream == other);
  CHECK(blocks[1].tag == tag_name("decoder"));
  CHECK(blocks[1].nanoseconds <= blocks[0].nanoseconds);
  memory.deallocate(other, a, 100, 512);
  memory.deallocate(host_order, b, 3000);
  CHECK(memory.blocks().empty());
}

TEST_CASE("it counts as statistics do") {
  source_state state;
  auto memory = make(source{&state} | tracking{});
  void* const a = memory.allocate(legacy, 100);
  void* const b = memory.allocate(legacy, 300);
  memory.deallocate(legacy, a, 100);
  CHECK(memory.numbers().requested == counter{300, 400, 400});
  CHECK(memory.numbers().allocated == counter{512, 768, 768});
  CHECK(memory.numbers().allocations == counter{1, 2, 2});
  REQUIRE(memory.numbers_by_tag().size() == 1);
  CHECK(memory.numbers_by_tag()[0].numbers == memory.numbers());
  memory.deallocate(legacy, b, 300);
  memory.reset_peaks();
  CHECK(memory.numbers().requested == counter{0, 0, 400});
  CHECK(memory.numbers_by_tag()[0].numbers == memory.numbers());
}

TEST_CASE("a failure is counted, leaves no block, and the report names the largest holders") {
  source_state state;
  auto memory = make(source{&state} | tracking{.name = "search"});
  tag const scope{"index"};
  void* const p = memory.allocate(legacy, 2048);
  state.fail = failing::out_of_memory;
  std::string const what = message_of<out_of_memory>([&] { memory.allocate(legacy, 1000); });
  CHECK(contains(what, "chain: search: tracking > source"));
  CHECK(contains(what, "\n  search: tracking 2.00 KiB requested in 1 live blocks\n"));
  CHECK(contains(what, "\n  holders    index 2.00 KiB in 1\n"));
  state.fail = failing::other;
  CHECK_THROWS_AS(memory.allocate(legacy, 1000), std::logic_error);
  CHECK(memory.numbers().failures == 2);
  CHECK(memory.blocks().size() == 1);
  memory.deallocate(legacy, p, 2048);
}

TEST_CASE("zero bytes are nothing") {
  source_state state;
  auto memory = make(source{&state} | tracking{.frames = 4});
  CHECK(memory.allocate(legacy, 0) == nullptr);
  memory.deallocate(legacy, nullptr, 0);
  CHECK(memory.numbers() == memory_statistics{});
  CHECK(state.calls == 0);
}

TEST_CASE("a wrong free is said what it is, and does not reach the upstream") {
  source_state state;
  auto memory = make(source{&state} | tracking{});
  tag const scope{"decoder/kv"};
  void* const p = memory.allocate(legacy, 3000);
  auto const said_of = [&](void* wrong, std::size_t bytes, std::size_t alignment) {
    std::size_t const calls = state.calls;
    caught_misuse const misuse;
    memory.deallocate(legacy, wrong, bytes, alignment);
    CHECK(misuse.count() == 1);
    CHECK(state.calls == calls);
    return misuse.last();
  };
  std::string const me = std::to_string(::gettid());
  std::string const size = said_of(p, 2999, 256);
  CHECK(contains(size, "weir: tracking: deallocate of " + hex_of(p) + " with 2999 B aligned to 256: it was allocated " +
                           "with 3000 B aligned to 256 (decoder/kv) by thread " + me +
                           " on the legacy default stream, 0.0 s ago; give back the same"));
  CHECK(contains(said_of(p, 3000, 512), "with 3000 B aligned to 512: it was allocated with 3000 B aligned to 256"));
  CHECK(contains(said_of(p, 0, 256), "with 0 B"));
  CHECK(contains(said_of(static_cast<char*>(p) + 512, 3000, 256),
                 "no live block starts there; it lies 512 B into that of 3000 B"));
  int mine = 0;
  CHECK(contains(said_of(&mine, 4, 256), "it is not this layer's memory"));
  CHECK(memory.numbers().requested == counter{3000, 3000, 3000});

  memory.deallocate(legacy, p, 3000);
  std::string const twice = said_of(p, 3000, 256);
  CHECK(contains(twice, "freed twice: thread " + me + " freed it 0.0 s ago; it was allocated with 3000 B"));
  CHECK(contains(twice, "(decoder/kv)"));
  CHECK(memory.numbers().requested.current == 0);
  CHECK(state.live_count == 0);
}

TEST_CASE("a free that a layer below finds wrong leaves the block live") {
  source_state state;
  auto below = make(source{&state} | tracking{});
  auto memory = make(share(below) | tracking{.report_leaks = false});
  void* const p = memory.allocate(legacy, 100);
  below.deallocate(legacy, p, 100);  // past the layer above
  caught_misuse const misuse;
  memory.deallocate(legacy, p, 100);
  CHECK(misuse.count() == 1);
  CHECK(contains(misuse.last(), "freed twice"));
  CHECK(memory.numbers().requested == counter{100, 100, 100});
  CHECK(memory.blocks().size() == 1);
}

TEST_CASE("what nobody freed is reported at the end, and nothing where nothing is live") {
  heard all;
  source_state state;
  void *a = nullptr, *b = nullptr;
  {
    auto memory = make(source{&state} | all.options());
    memory.deallocate(legacy, memory.allocate(legacy, 5), 5);
  }
  CHECK(all.reports.empty());
  {
    auto memory = make(source{&state} | all.options());
    tag const scope{"decoder/kv"};
    a = memory.allocate(legacy, 3 << 20);
    b = memory.allocate(host_order, 1 << 10);
  }
  REQUIRE(all.reports.size() == 1);
  std::string const& text = all.reports[0];
  CHECK(text.starts_with("weir: tracking: 2 blocks of 3.00 MiB are live\n  by tag\n"));
  CHECK(contains(text, "      3.00 MiB in 2      oldest    0.0 s decoder/kv\n"));
  CHECK(contains(text, "oldest    0.0 s thread " + std::to_string(::gettid()) + "\n"));
  CHECK(contains(text, "      1.00 KiB in 1      oldest    0.0 s the host's order\n"));
  CHECK(contains(text, "    " + hex_of(a) + " 3.00 MiB, 0.0 s old, decoder/kv, thread "));
  CHECK(text.find(hex_of(a)) < text.find(hex_of(b)));
  CHECK_FALSE(contains(text, "call stack"));
  std::free(a), std::free(b);
}

TEST_CASE("nobody need hear of leaks, a function that throws does no harm, and without one stderr has the report") {
  source_state state;
  heard all;
  std::vector<void*> left;
  auto const leak = [&](tracking const& options) {
    auto memory = make(source{&state} | options);
    left.push_back(memory.allocate(legacy, 10));
  };
  tracking quiet = all.options();
  quiet.report_leaks = false;
  leak(quiet);
  CHECK(all.reports.empty());
  leak({.on_leaks = [](std::string const&) { throw std::runtime_error("no"); }});
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  std::fflush(stderr);
  int const before = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  leak({});
  std::fflush(stderr);
  ::dup2(before, STDERR_FILENO);
  ::close(before), ::close(ends[1]);
  char text[64] = {};
  CHECK(::read(ends[0], text, sizeof text - 1) > 0);
  ::close(ends[0]);
  CHECK(contains(text, "weir: tracking: 1 block of 10 B is live\n"));
  for (void* const p : left) std::free(p);
}

TEST_CASE("a forked child does not report what its parent has live") {
  source_state state;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  auto const options = tracking{.on_leaks = [&](std::string const&) { static_cast<void>(!::write(ends[1], "x", 1)); }};
  auto* const memory = new tracked(source{&state}, options);
  void* const p = memory->allocate(legacy, 10);
  ::pid_t const child = ::fork();
  if (child == 0) {
    delete memory;
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  memory->deallocate(legacy, p, 10);
  delete memory;
  ::close(ends[1]);
  char byte = 0;
  CHECK(::read(ends[0], &byte, 1) == 0);
  ::close(ends[0]);
}

TEST_CASE("a report is bounded, and says how much it leaves out") {
  source_state state;
  auto memory = make(source{&state} | tracking{});
  std::vector<void*> blocks;
  for (std::size_t i = 0; i < 100; ++i) {
    tag const scope{"part " + std::to_string(i)};
    blocks.push_back(memory.allocate(legacy, 1000 + i));
  }
  std::string const text = memory.live_report(3);
  CHECK(contains(text, "100 blocks of"));
  CHECK(contains(text, "part 99\n"));
  CHECK(contains(text, "    and 97 more: "));
  CHECK_FALSE(contains(text, "part 96\n"));
  CHECK(lines_in(text) == 1 + (1 + 3 + 1) + (1 + 1) + (1 + 1) + (1 + 3));
  CHECK(memory.holders(held_by::tag, 2).size() == 2);
  CHECK(memory.holders(held_by::tag)[0].who == "part 99");
  CHECK(memory.holders(held_by::thread)[0].blocks == 100);
  for (std::size_t i = 0; i < 100; ++i) memory.deallocate(legacy, blocks[i], 1000 + i);
  CHECK(memory.live_report() == "weir: tracking: 0 blocks of 0 B are live\n");
}

namespace {
/// Two places that allocate.
[[gnu::noinline]] void* here(tracked& memory) { return memory.allocate(legacy, 100); }
[[gnu::noinline]] void* there(tracked& memory) {
  void* const p = memory.allocate(legacy, 200);
  return p;
}
}  // namespace

TEST_CASE("call stacks tell places apart") {
  source_state state;
  auto memory = make(source{&state} | tracking{.frames = 8});
  std::vector<void*> small, large;
  int const volatile three = 3, two = 2;  // or compilers unroll the loop into several places
  for (int i = 0; i < three; ++i) small.push_back(here(memory));
  for (int i = 0; i < two; ++i) large.push_back(there(memory));
  auto const blocks = memory.blocks();
  REQUIRE(blocks.size() == 5);
  CHECK(blocks[0].call_stack == blocks[1].call_stack);
  CHECK(blocks[2].call_stack == blocks[4].call_stack);
  CHECK(blocks[0].call_stack != blocks[2].call_stack);
  auto const lines = memory.call_stack(blocks[0]);
  CHECK(lines.size() >= 2);
  CHECK(lines.size() <= 8);
  auto const holders = memory.holders(held_by::call_stack);
  REQUIRE(holders.size() == 2);
  CHECK(holders[0].bytes == 400);
  CHECK(holders[0].blocks == 2);
  CHECK(holders[1].blocks == 3);
  CHECK(contains(holders[0].who, lines.back()));
  CHECK(contains(memory.live_report(), "  by call stack\n"));
  CHECK(contains(memory.live_report(), lines.back()));
  {
    caught_misuse const misuse;
    memory.deallocate(legacy, small[0], 1);
    CHECK(contains(misuse.last(), ", at "));
    CHECK_FALSE(contains(misuse.last(), "\n"));
  }
  for (void* const p : small) memory.deallocate(legacy, p, 100);
  for (void* const p : large) memory.deallocate(legacy, p, 200);
}

TEST_CASE("without frames no call stack is kept") {
  source_state state;
  auto memory = make(source{&state} | tracking{});
  void* const p = here(memory);
  CHECK(memory.blocks()[0].call_stack == 0);
  CHECK(memory.call_stack(memory.blocks()[0]).empty());
  CHECK(memory.holders(held_by::call_stack)[0].who == "(call stack not kept)");
  memory.deallocate(legacy, p, 100);
}

TEST_CASE("a free is forgotten before the upstream has the memory back") {
  source_state state;
  auto memory = make(source{&state} | tracking{});
  void* const p = memory.allocate(legacy, 1000);
  std::size_t seen = 9;
  state.on_deallocate = [&] { seen = memory.blocks().size(); };
  memory.deallocate(legacy, p, 1000);
  CHECK(seen == 0);
}

TEST_CASE("eight threads: nothing is lost, and reports may be asked for meanwhile") {
  source_state state;
  auto memory = make(source{&state} | tracking{.frames = 2});
  constexpr std::size_t threads = 8, rounds = 300;
  std::vector<std::thread> running;
  std::atomic<std::size_t> done{0};
  for (std::size_t t = 0; t < threads; ++t)
    running.emplace_back([&, t] {
      tag const scope{"thread " + std::to_string(t)};
      std::vector<void*> mine;
      for (std::size_t i = 0; i < rounds; ++i) {
        mine.push_back(memory.allocate(legacy, 64));
        if (i % 3 != 0) continue;
        memory.deallocate(legacy, mine.front(), 64);
        mine.erase(mine.begin());
      }
      ++done;
    });
  while (done != threads) CHECK(contains(memory.live_report(), "weir: tracking: "));
  for (auto& thread : running) thread.join();
  auto const blocks = memory.blocks();
  CHECK(blocks.size() == threads * (rounds - rounds / 3));
  CHECK(memory.holders(held_by::tag).size() == threads);
  CHECK(memory.numbers().live() == static_cast<std::int64_t>(blocks.size()));
  for (tracked_block const& each : blocks)
    memory.deallocate(legacy, reinterpret_cast<void*>(each.address), each.bytes, each.alignment);
  CHECK(state.live_count == 0);
  CHECK(memory.numbers().requested.current == 0);
}

TEST_CASE("a process whose blocks leaked ends with the status that was asked for") {
  CHECK(status_after([] { leak(23); }) == 23);
  CHECK(status_after([] { leak(0); }) == 3);
  CHECK(status_after([] {
          source_state state;
          auto memory = make(source{&state} | tracking{.leak_exit_status = 23});
          memory.deallocate(legacy, memory.allocate(legacy, 100), 100);
        }) == 3);
  CHECK(tracking{.leak_exit_status = 256}.problem() == "tracking: leak_exit_status is 256; it must be at most 255");
}

TEST_CASE("what is to run at exit does so though blocks leaked, and logs are complete") {
  temporary_folder const folder;
  static std::string later;  // static: exit functions take no arguments
  later = folder / "later";
  std::string const path = folder / "log.csv";
  CHECK(status_after([&] {
          std::atexit([] { std::ofstream(later) << "ran"; });
          static source_state state;
          static auto* const memory = new auto(make(source{&state} | logging{.path = path}));
          memory->deallocate(legacy, memory->allocate(legacy, 100), 100);
          leak(23);
        }) == 23);
  CHECK(text_of(later) == "ran");
  CHECK(records_of(path).size() == 3);
}

TEST_CASE("a forked child ends with a status of its own, whatever its parent leaked") {
  int const status = status_after([] {
    leak(23);
    int const that_leaked_nothing = status_after([] {}), that_leaked = status_after([] { leak(24); });
    if (that_leaked_nothing != 3 || that_leaked != 24) ::_exit(1);
  });
  CHECK(status == 23);
}
