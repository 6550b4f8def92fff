#include <weir/tools/summary_prometheus.hpp>

#include <doctest/doctest.h>

#include <map>
#include <set>
#include <sstream>
#include <string>

using namespace weir;

TEST_CASE("each number of a layer is a sample") {
  stack_summary const stack{.name = "search",
                            .device = 0,
                            .layers = {{.numbers = {.layer = "pool",
                                                    .name = "mine",
                                                    .device = 0,
                                                    .requested = 1000,
                                                    .requested_peak = 6000,
                                                    .requested_total = 7000,
                                                    .free = 800,
                                                    .largest_free = 200,
                                                    .live = 1,
                                                    .live_peak = 2,
                                                    .live_total = 3},
                                        .tags = {{.layer = "tag", .name = "kv", .requested = 600}}}}};
  std::string const who = R"({stack="search",position="0",layer="pool",name="mine",device="0")";
  CHECK(
      summary_prometheus({stack}) ==
      "# HELP weir_requested_bytes Bytes as callers asked.\n# TYPE weir_requested_bytes gauge\n"
      "weir_requested_bytes" +
          who +
          "} 1000\n"
          "# HELP weir_tag_requested_bytes Bytes as callers asked, by tag.\n# TYPE weir_tag_requested_bytes gauge\n"
          "weir_tag_requested_bytes" +
          who +
          ",tag=\"kv\"} 600\n"
          "# HELP weir_requested_peak_bytes Bytes as callers asked, at most.\n# TYPE weir_requested_peak_bytes gauge\n"
          "weir_requested_peak_bytes" +
          who +
          "} 6000\n"
          "# HELP weir_requested_bytes_total Bytes as callers asked, in all.\n# TYPE weir_requested_bytes_total "
          "counter\n"
          "weir_requested_bytes_total" +
          who +
          "} 7000\n"
          "# HELP weir_free_bytes Bytes free for anyone.\n# TYPE weir_free_bytes gauge\n"
          "weir_free_bytes" +
          who +
          "} 800\n"
          "# HELP weir_largest_free_bytes Bytes in the largest free piece.\n# TYPE weir_largest_free_bytes gauge\n"
          "weir_largest_free_bytes" +
          who +
          "} 200\n"
          "# HELP weir_allocations Number of allocations.\n# TYPE weir_allocations gauge\n"
          "weir_allocations" +
          who +
          "} 1\n"
          "# HELP weir_allocations_peak Number of allocations, at most.\n# TYPE weir_allocations_peak gauge\n"
          "weir_allocations_peak" +
          who +
          "} 2\n"
          "# HELP weir_allocations_total Number of allocations, in all.\n# TYPE weir_allocations_total counter\n"
          "weir_allocations_total" +
          who +
          "} 3\n"
          "# HELP weir_fragmentation_ratio Share of free and pending memory outside its largest piece.\n"
          "# TYPE weir_fragmentation_ratio gauge\n"
          "weir_fragmentation_ratio" +
          who + "} 0.7500\n");
}

TEST_CASE("a metric is described once, its samples stand together, and no two are of one name") {
  layer_numbers const n{.layer = "pool", .requested = 1, .requested_peak = 2};
  stack_summary const two{.name = "a", .layers = {{n, {n}}, {n, {n}}}}, other{.name = "b", .layers = {{n, {n}}}};
  std::istringstream lines(summary_prometheus({two, other}));
  std::map<std::string, int> described;
  std::set<std::string> samples;
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# TYPE ")) {
      last = line.substr(7, line.find(' ', 7) - 7);
      ++described[last];
    } else if (!line.starts_with("#")) {
      CHECK(line.substr(0, line.find('{')) == last);
      CHECK(samples.insert(line.substr(0, line.rfind(' '))).second);
    }
  }
  CHECK(described == std::map<std::string, int>{{"weir_requested_bytes", 1},
                                                {"weir_requested_peak_bytes", 1},
                                                {"weir_tag_requested_bytes", 1},
                                                {"weir_tag_requested_peak_bytes", 1}});
  CHECK(samples.size() == 12);
}

TEST_CASE("names that differ in bytes that are no UTF-8 are two series") {
  auto const tag = [](char const* name) { return layer_numbers{.layer = "tag", .name = name, .requested = 1}; };
  std::string const text =
      summary_prometheus({{.name = "a", .layers = {{{.layer = "pool"}, {tag("\xff"), tag("\xfe")}}}}});
  CHECK(text.find(R"(tag="\\xff"} 1)") != std::string::npos);
  CHECK(text.find(R"(tag="\\xfe"} 1)") != std::string::npos);
}

TEST_CASE("no name ends its label or its line") {
  stack_summary const stack{.name = "a\"} 1\nb", .layers = {{{.layer = "pool", .name = "c\\", .requested = 1}, {}}}};
  std::string const text = summary_prometheus({stack});
  CHECK(text.substr(text.find("\nweir_") + 1) ==
        "weir_requested_bytes{stack=\"a\\\"} 1\\nb\",position=\"0\",layer=\"pool\",name=\"c\\\\\",device=\"\"} 1\n");
  CHECK(summary_prometheus(std::vector<stack_summary>{}).empty());
}
