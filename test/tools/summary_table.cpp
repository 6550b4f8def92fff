#include <weir/tools/summary_table.hpp>

#include <weir/core/bytes.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <sstream>
#include <string>
#include <vector>

using namespace weir;
using namespace weir::literals;

namespace {

/// The most columns of a line, in which nothing but one Chinese character takes two.
std::size_t widest(std::string const& text) {
  std::istringstream lines(text);
  std::size_t most = 0;
  for (std::string line; std::getline(lines, line);) {
    std::size_t columns = 0;
    detail::for_each_character(line, [&](std::string_view c) { columns += c == "\xe4\xb8\xad" ? 2 : 1; });
    most = columns > most ? columns : most;
  }
  return most;
}

}  // namespace

TEST_CASE("a table has the rows that each layer knows") {
  stack_summary const stack{
      .name = "search",
      .device = 0,
      .layers = {{.numbers = {.layer = "limit",
                              .name = "index",
                              .charged = 2_MiB,
                              .charged_peak = 3_MiB,
                              .max_bytes = 1_GiB,
                              .refused = 7},
                  .tags = {}},
                 {.numbers = {.layer = "statistics",
                              .requested = 1000,
                              .requested_peak = 6000,
                              .requested_total = 7000,
                              .live = 1,
                              .live_peak = 2,
                              .live_total = 3,
                              .failed = 0},
                  .tags = {{.layer = "tag",
                            .name = "decoder/kv",
                            .requested = 600,
                            .requested_peak = 600,
                            .requested_total = 5000},
                           {.layer = "tag", .requested = 400, .requested_peak = 5400, .requested_total = 2000}}},
                 {.numbers = {.layer = "pool",
                              .depth = 1,
                              .reserved = 4_MiB,
                              .reserved_peak = 4_MiB,
                              .pending = 0,
                              .free = 1_MiB,
                              .largest_free = 64_KiB},
                  .tags = {}},
                 {.numbers = {.layer = "device"}, .tags = {}}}};
  CHECK(summary_table(stack) ==
        "weir summary of search                                                 device 0\n"
        "| Layer                             |     Current |        Peak |       Total |\n"
        "| index: limit                      |             |             |             |\n"
        "|   Charged                         |    2.00 MiB |    3.00 MiB |             |\n"
        "|   Limit                           |    1.00 GiB |             |             |\n"
        "|   Refused                         |             |             |           7 |\n"
        "| statistics                        |             |             |             |\n"
        "|   Requested                       |      1000 B |    5.86 KiB |    6.84 KiB |\n"
        "|   Allocations                     |           1 |           2 |           3 |\n"
        "|   Failed                          |             |             |           0 |\n"
        "|   Requested by tag                |             |             |             |\n"
        "|     decoder/kv                    |       600 B |       600 B |    4.88 KiB |\n"
        "|     (untagged)                    |       400 B |    5.27 KiB |    1.95 KiB |\n"
        "|   pool                            |             |             |             |\n"
        "|     Reserved                      |    4.00 MiB |    4.00 MiB |             |\n"
        "|     Pending                       |         0 B |             |             |\n"
        "|     Free                          |    1.00 MiB |             |             |\n"
        "|     Largest free                  |   64.00 KiB |             |             |\n"
        "|     Fragmentation                 |      93.8 % |             |             |\n"
        "| device                            |             |             |             |\n");
}

TEST_CASE("no table is wider than 79 columns, whatever is in it") {
  std::string everything;
  for (int c = 255; c > 0; --c) everything += static_cast<char>(c);
  std::string wide;
  for (int i = 0; i < 50; ++i) wide += "\xe4\xb8\xad";
  for (std::string const& name : {std::string(500, 'n'), everything, wide}) {
    layer_numbers most{.layer = name, .name = name, .depth = 1000};
    most.requested = most.requested_peak = most.free = ~std::size_t{0};
    most.largest_free = 0;
    most.requested_total = most.live = most.live_peak = most.live_total = ~std::uint64_t{0};
    std::string const text = summary_table({.name = name, .device = 2147483647, .layers = {{most, {most}}}});
    CHECK(widest(text) == 79);
  }
}

TEST_CASE("of many tags those that stand first are shown, and how many there are") {
  std::vector<layer_numbers> tags;
  for (int i = 0; i < 25; ++i) tags.push_back({.layer = "tag", .name = "tag " + std::to_string(i)});
  std::string const text = summary_table({.name = "", .layers = {{{.layer = "statistics"}, tags}}});
  CHECK(text.starts_with("weir summary\n"));
  CHECK(text.find("|     tag 19 ") != std::string::npos);
  CHECK(text.find("tag 20") == std::string::npos);
  CHECK(text.find("|     and 5 more ") != std::string::npos);
}
