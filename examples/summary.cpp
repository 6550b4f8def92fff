// What does each layer of a stack hold? Two services share a device: a table for whoever looks, JSON for scripts, and
// text for Prometheus; and peaks that start again for each phase.
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/core/handle.hpp>
#include <weir/core/numbers.hpp>
#include <weir/core/tag.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>
#include <weir/tools/summary.hpp>

#include <cstdio>
#include <string>

using namespace weir::literals;

int main() {
  auto device_memory = weir::make(weir::async{} | weir::pool{});
  auto search = weir::make(weir::share(device_memory) | weir::limit{.max_bytes = 64_MiB, .name = "search"} |
                           weir::statistics{.by_tag = true});
  auto ranking = weir::make(weir::share(device_memory) | weir::limit{.max_bytes = 32_MiB, .name = "ranking"});
  weir::stream const stream;

  // Start-up: the index is built in a large buffer.
  void* const scratch = search.allocate(stream, 48_MiB);
  search.deallocate(stream, scratch, 48_MiB);
  stream.synchronize();
  weir::reset_peaks(search);  // from here on, peaks are those of serving

  void* index = nullptr;
  {
    weir::tag const scope{"index"};
    index = search.allocate(stream, 20_MiB);
  }
  void* const weights = ranking.allocate(stream, 8_MiB);

  // For people, when somebody asks or a watchdog barks. Layers that both share stand in both tables.
  std::string const table = weir::summary(search, {.name = "search", .by_tag = true});
  std::printf("%s\n", table.c_str());

  // For a program that keeps what it learns: one line a minute in a file.
  std::printf("%s\n\n", weir::summary_json(ranking, {.name = "ranking"}).c_str());

  // For Prometheus: what the program's own page /metrics answers. Both stacks at once, as each metric must stand once.
  std::string const metrics = weir::summary_prometheus(
      {weir::summary_of(search, {.name = "search"}), weir::summary_of(ranking, {.name = "ranking"})});
  std::printf("%s", metrics.substr(0, metrics.find("# HELP weir_allocated_bytes")).c_str());

  bool const right = table.find("|     index                         |   20.00 MiB |   20.00 MiB |   20.00 MiB |") !=
                         std::string::npos &&
                     metrics.find(
                         "weir_charged_peak_bytes{stack=\"search\",position=\"1\",layer=\"limit\",name=\"search\","
                         "device=\"0\"} 20971520\n") != std::string::npos;
  search.deallocate(stream, index, 20_MiB);
  ranking.deallocate(stream, weights, 8_MiB);
  stream.synchronize();
  return right ? 0 : 1;
}
