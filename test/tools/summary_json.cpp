#include <weir/tools/summary_json.hpp>

#include <doctest/doctest.h>
#include <support/json.hpp>

#include <cstddef>
#include <string>

using namespace weir;
using weir::test::json_reader;

TEST_CASE("JSON has what each layer knows") {
  CHECK(summary_json(stack_summary{.name = "", .layers = {}}) == R"({"stack":"","device":null,"layers":[]})");
  stack_summary const stack{
      .name = "search",
      .device = 1,
      .layers = {
          {.numbers = {.layer = "statistics",
                       .name = "mine",
                       .device = 1,
                       .requested = 1000,
                       .requested_peak = 6000,
                       .requested_total = 7000,
                       .live = 1,
                       .failed = 2},
           .tags = {{.layer = "tag", .name = "decoder/kv", .requested = 600}, {.layer = "tag", .requested = 400}}},
          {.numbers = {.layer = "pool", .depth = 1, .free = 800, .largest_free = 200}, .tags = {}}}};
  std::string const text = summary_json(stack);
  CHECK(text ==
        R"({"stack":"search","device":1,"layers":[)"
        R"({"layer":"statistics","name":"mine","depth":0,"device":1,"requested":1000,"requested_peak":6000,)"
        R"("requested_total":7000,"allocations":1,"failed_total":2,)"
        R"("tags":[{"tag":"decoder/kv","requested":600},{"tag":"","requested":400}]},)"
        R"({"layer":"pool","name":"","depth":1,"device":null,"free":800,"largest_free":200,"fragmentation":0.7500}]})");
  CHECK(json_reader::is_valid(text));
}

TEST_CASE("JSON is valid whatever the bytes of names, and however large the numbers") {
  for (int c = 0; c < 256; ++c) {
    std::string const name = std::string("a\",\"b") + static_cast<char>(c);
    layer_numbers const n{.layer = name, .name = name, .requested = ~std::size_t{0}, .free = 3, .largest_free = 1};
    std::string const text = summary_json(stack_summary{.name = name, .layers = {{n, {n}}, {n, {}}}});
    INFO(text);
    CHECK(json_reader::is_valid(text));
    CHECK(text.find("\"requested\":18446744073709551615") != std::string::npos);
  }
}
