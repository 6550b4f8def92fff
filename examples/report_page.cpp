// A page to look at: the same work on segments and on one growable range, as two runs of one page. Open memory.html in
// any browser; it needs no network.
//
//     report_page [FILE]     without one: memory.html in the folder for temporary files

#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/trace.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/tag.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/virtual_memory.hpp>
#include <weir/tools/report_page.hpp>

#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

using namespace weir::literals;

namespace {

/// Batches whose sizes change, beside weights that stay.
template <class Memory>
weir::report_run recorded(char const* name, Memory& memory) {
  weir::stream const stream;
  std::vector<std::pair<void*, std::size_t>> weights;
  for (std::size_t i = 0; i < 8; ++i) {
    weir::tag const tag("weights");
    weights.emplace_back(memory.allocate(stream, 3_MiB), 3_MiB);
  }
  for (std::size_t batch = 0; batch < 40; ++batch) {
    weir::tag const tag("activations");
    std::vector<std::pair<void*, std::size_t>> layers;
    for (std::size_t i = 0; i < 6; ++i) {
      std::size_t const bytes = 1_MiB + (batch * 7 + i * 3) % 11 * 512_KiB;
      layers.emplace_back(memory.allocate(stream, bytes), bytes);
    }
    for (auto const& [p, bytes] : layers) memory.deallocate(stream, p, bytes);
  }
  weir::report_run run{name, weir::trace_of(memory), weir::snapshot(memory)};
  for (auto const& [p, bytes] : weights) memory.deallocate(stream, p, bytes);
  return run;
}

}  // namespace

int main(int argc, char** argv) {
  std::string const path = argc > 1 ? argv[1] : (std::filesystem::temp_directory_path() / "memory.html").string();
  // The trace on top sees the blocks; the one below the pool sees the segments.
  auto segments = weir::make(weir::device{} | weir::trace{.name = "device"} | weir::pool{} | weir::trace{});
  auto range = weir::make(weir::virtual_memory{} | weir::trace{.name = "device"} | weir::pool{} | weir::trace{});
  weir::write_report({recorded("segments", segments), recorded("one growable range", range)}, path);
  std::printf("%s\nheld at most: segments %s, one growable range %s\n", path.c_str(),
              weir::format_bytes(segments.upstream().numbers().reserved.peak).c_str(),
              weir::format_bytes(range.upstream().numbers().reserved.peak).c_str());
  return 0;
}
