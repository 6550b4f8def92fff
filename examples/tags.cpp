// Who holds the memory? Each part of a program names what it allocates; when memory runs out, the error says who has
// how much, and a table says it at any time.
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/core/any_ref.hpp>
#include <weir/core/error.hpp>
#include <weir/core/tag.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

using namespace weir::literals;

namespace {

struct block {
  void* p;
  std::size_t bytes;
};

/// Written once: whoever calls it, in which scope, says whose memory it is.
block buffer(weir::any_ref memory, weir::stream_ref stream, std::size_t bytes) {
  return {memory.allocate(stream, bytes), bytes};
}

/// One step of a model: its activations are gone at the end, its cache stays.
void step(weir::any_ref memory, weir::stream_ref stream, std::vector<block>& cache) {
  static weir::tag_name const kv("decoder/kv");  // looked up once
  weir::tag const scope{"decoder/ffn"};
  {
    weir::tag const inner{kv};
    cache.push_back(buffer(memory, stream, 1_MiB));
  }
  block const activations = buffer(memory, stream, 2_MiB);
  memory.deallocate(stream, activations.p, activations.bytes);
}

}  // namespace

int main() {
  auto memory =
      weir::make(weir::async{} | weir::pool{} | weir::limit{.max_bytes = 10_MiB} | weir::statistics{.by_tag = true});
  weir::stream const stream;
  std::vector<block> cache;
  cache.push_back(buffer(memory, stream, 100_KiB));  // nobody said whose this is

  std::string report;
  try {
    for (;;) step(memory, stream, cache);
  } catch (weir::out_of_memory const& failure) {
    report = failure.what();
  }
  std::printf("%s\n\n%s", report.c_str(), memory.summary("after the last step").c_str());

  auto const by_tag = memory.numbers_by_tag();
  bool const right =
      report.find("holders    decoder/kv 8.00 MiB in 8 | (untagged) 100.00 KiB in 1") != std::string::npos &&
      by_tag.size() == 3 && by_tag[2].tag.text() == "decoder/ffn" && by_tag[2].numbers.live() == 0 &&
      by_tag[2].numbers.requested.peak == 2 << 20;
  for (block const& each : cache) memory.deallocate(stream, each.p, each.bytes);
  stream.synchronize();
  return right && memory.numbers().live() == 0 ? 0 : 1;
}
