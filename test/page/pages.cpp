// Writes the pages that the browser's test opens, and says what the library knows of them: a line of JSON for each.
//
//     pages FOLDER

#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/spillable.hpp>
#include <weir/adaptors/trace.hpp>
#include <weir/core/error.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/tag.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/pinned.hpp>
#include <weir/sources/virtual_memory.hpp>
#include <weir/tools/read_trace.hpp>
#include <weir/tools/report_page.hpp>
#include <weir/tools/trace_text.hpp>

#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>
#include <vector>

using namespace weir::literals;

namespace {

std::string folder;

/// What the library counts, for the test to compare.
void say(char const* name, weir::recorded_trace const& trace, weir::memory_snapshot const& snapshot,
         weir::pool_numbers const& numbers) {
  auto const peak = weir::peak_of(weir::timeline_of(trace, snapshot));
  std::printf("{\"page\":\"%s\",\"events\":%zu,\"peak\":%llu,\"peak_moment\":%zu,\"live\":%zu,\"reserved\":%zu,", name,
              trace.events.size(), static_cast<unsigned long long>(peak.bytes), peak.moment, numbers.requested.current,
              numbers.reserved.current);
  std::printf("\"pool_peak\":%zu,\"blocks\":%zu}\n", numbers.requested.peak, numbers.live());
}

template <class Memory>
void finish(char const* name, Memory& memory) {
  auto const trace = weir::trace_of(memory);
  auto const snapshot = weir::snapshot(memory);
  weir::write_report({{name, trace, snapshot}}, folder + "/" + name + ".html");
  say(name, trace, snapshot, weir::find<weir::pool_resource>(memory).numbers());
}

struct held {
  void* p;
  std::size_t bytes;
};

/// A model's weights, a cache that grows until its limit refuses, and what is left.
template <class Memory>
void serve(Memory& memory) {
  weir::stream const compute, copies;
  std::vector<held> weights, cache;
  {
    weir::tag const tag("weights");
    for (std::size_t i = 0; i < 12; ++i)
      weights.push_back({memory.allocate(compute, 1_MiB + i * 96_KiB), 1_MiB + i * 96_KiB});
  }
  std::uint32_t random = 1;
  for (std::size_t i = 0; i < 60; ++i) {
    try {
      weir::tag const tag("kv cache");
      cache.push_back({memory.allocate(compute, 512_KiB), 512_KiB});
    } catch (weir::out_of_memory const&) {
      for (std::size_t j = 0; j < cache.size(); j += 2) memory.deallocate(compute, cache[j].p, cache[j].bytes);
      std::vector<held> left;
      for (std::size_t j = 1; j < cache.size(); j += 2) left.push_back(cache[j]);
      cache = left;
    }
    weir::tag const tag("activations");
    random = random * 1664525 + 1013904223;
    std::size_t const bytes = 64_KiB + random % 1500_KiB;
    try {
      void* const p = memory.allocate(copies, bytes);
      memory.deallocate(copies, p, bytes);
    } catch (weir::out_of_memory const&) {
    }
  }
  for (held const& h : cache) memory.deallocate(compute, h.p, h.bytes);
  weir::trim(memory);
  // The weights stay: the page shows them at the end.
}

/// A pool that moves chunks, over handles that go to the host.
void moves() {
  auto host = weir::make(weir::pinned{} | weir::pool{});
  auto memory = weir::make(weir::virtual_memory{.max_bytes = 8_MiB} | weir::trace{} | weir::pool{} |
                           weir::spill{.to = weir::share(host)});
  weir::stream const stream;
  void* blocks[4];
  for (void*& b : blocks) b = memory.allocate(stream, 2_MiB);
  for (int const i : {0, 2}) memory.deallocate(stream, blocks[i], 2_MiB);
  stream.synchronize();
  {
    weir::tag const tag("batch");
    memory.deallocate(stream, memory.allocate(stream, 4_MiB), 4_MiB);  // of two pieces
  }
  for (int const i : {1, 3}) memory.deallocate(stream, blocks[i], 2_MiB);
  weir::spillable<char> table(memory, stream, 4_MiB);
  static_cast<void>(table.pin(stream));
  {
    weir::tag const tag("batch");
    memory.deallocate(stream, memory.allocate(stream, 8_MiB), 8_MiB);
  }
  static_cast<void>(table.pin(stream));
  weir::write_report(memory, folder + "/moves.html");
}

/// Names that want out of the page.
void hostile() {
  auto memory = weir::make(weir::device{} | weir::pool{} | weir::trace{});
  for (char const* const name :
       {"</script><script>document.title='out'</script>", "<!--<script>", "\xe2\x80\xa8 line \xe2\x80\xa9",
        "\"'\\`${1}", "@@DATA@@", "<img src=x onerror=document.title='out'>", "\xff\xfe", "]]>", "__proto__"}) {
    weir::tag const tag(name);
    memory.allocate(weir::host_order, 1_KiB);
  }
  finish("hostile", memory);
}

/// 100,000 events with some 2,000 blocks live.
void large() {
  auto memory =
      weir::make(weir::device{} | weir::trace{.name = "source"} | weir::pool{} | weir::trace{.events = 131072});
  std::deque<held> live;
  std::uint32_t random = 7;
  for (std::size_t i = 0; i < 51'000; ++i) {
    weir::tag const tag("step " + std::to_string(i % 20));
    random = random * 1664525 + 1013904223;
    std::size_t const bytes = 256 + random % 60'000;
    live.push_back({memory.allocate(weir::host_order, bytes), bytes});
    if (live.size() <= 2000) continue;
    std::size_t const which = random / 7 % live.size();
    memory.deallocate(weir::host_order, live[which].p, live[which].bytes);
    live[which] = live.front();
    live.pop_front();
  }
  finish("large", memory);
}

}  // namespace

int main(int, char** argv) {
  folder = argv[1];
  auto segments = weir::make(weir::device{} | weir::trace{.name = "device"} | weir::pool{.initial_bytes = 8_MiB} |
                             weir::limit{.max_bytes = 32_MiB} | weir::trace{.name = "program"});
  serve(segments);
  finish("segments", segments);
  auto range = weir::make(weir::virtual_memory{} | weir::trace{.name = "device"} | weir::pool{} |
                          weir::limit{.max_bytes = 32_MiB} | weir::trace{.name = "program"});
  serve(range);
  finish("range", range);
  weir::write_report({{"segments", weir::trace_of(segments), weir::snapshot(segments)},
                      {"one growable range", weir::trace_of(range), weir::snapshot(range)}},
                     folder + "/both.html");
  weir::write_report({{"nothing", {}, {}}}, folder + "/nothing.html");
  weir::recorded_trace ends{.layers = {"trace"}};  // of the address space
  for (std::uint64_t const address : {std::uint64_t{4096}, ~std::uint64_t{4095}})
    ends.events.push_back({.address = address, .bytes = 4096});
  weir::write_report({{"ends", ends, {}}}, folder + "/ends.html");
  weir::recorded_trace one{.layers = {"trace"}, .tags = {"", std::string(1'000'000, 'x')}};
  one.events.push_back({.address = 4096, .bytes = 1_MiB, .tag = 1});
  weir::write_report({{"one event", one, {}}}, folder + "/one.html");
  weir::write_report({{"a log", weir::read_trace(weir::trace_csv(weir::trace_of(segments))), {}}},
                     folder + "/log.html");
  moves();
  hostile();
  large();
}
