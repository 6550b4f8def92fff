// Who held the memory when it ran out: a trace of what happened, where the memory is at that moment, and files that
// other tools open.
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/adaptors/trace.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/error.hpp>
#include <weir/core/tag.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>
#include <weir/tools/read_trace.hpp>
#include <weir/tools/snapshot.hpp>
#include <weir/tools/torch_memory.hpp>
#include <weir/tools/trace_of.hpp>
#include <weir/tools/trace_text.hpp>

#include <cstddef>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

using namespace weir::literals;

int main() {
  // The trace on top sees what the program asks for; the one below the pool, what the pool takes from the device.
  auto memory = weir::make(weir::device{} | weir::trace{} | weir::pool{.max_bytes = 64_MiB} |
                           weir::statistics{.by_tag = true} | weir::trace{});
  weir::stream const stream;
  std::vector<void*> images;
  std::string report;
  try {
    for (;;) {
      {
        weir::tag const scope{"search/images"};
        images.push_back(memory.allocate(stream, 5_MiB));  // a cache that nothing bounds
      }
      weir::tag const scope{"search/batch"};
      void* const batch = memory.allocate(stream, 20_MiB);
      memory.deallocate(stream, batch, 20_MiB);
    }
  } catch (weir::out_of_memory const& failure) {
    report = failure.what();
  }
  std::printf("%s\n\n", report.c_str());

  weir::recorded_trace const trace = weir::trace_of(memory);
  weir::memory_snapshot const now = weir::snapshot(memory);
  std::size_t blocks = 0, images_live = 0;
  for (weir::memory_segment const& segment : now.segments)
    for (weir::memory_block const& block : segment.blocks) {
      ++blocks;
      if (block.tag == "search/images") images_live += block.requested;
    }
  std::printf("%zu events; now %zu segments with %zu blocks, in which search/images has %s\n", trace.events.size(),
              now.segments.size(), blocks, weir::format_bytes(images_live).c_str());

  std::ofstream("memory.csv") << weir::trace_csv(trace);                               // for RMM's tools
  std::ofstream("memory.jsonl") << weir::trace_json_lines(trace);                      // for scripts
  std::ofstream("memory.pickle", std::ios::binary) << weir::torch_memory(trace, now);  // for PyTorch's viewer
  bool const same = weir::read_trace(weir::trace_json_lines(trace)).events.size() == trace.events.size();  // and back

  for (void* const image : images) memory.deallocate(stream, image, 5_MiB);
  bool const right = report.find("hint") != std::string::npos &&
                     report.find("search/images holds") != std::string::npos && images_live == images.size() * 5_MiB;
  return right && same ? 0 : 1;
}
