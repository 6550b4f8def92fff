#include <weir/core/layer_ref.hpp>

#include <weir/core/numbers.hpp>
#include <weir/core/report.hpp>
#include <weir/core/tag.hpp>

#include <doctest/doctest.h>
#include <core/recorder.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

using namespace weir;

namespace {

struct silent_layer {
  static constexpr char const* layer_name = "silent";
};

/// A layer that can be asked for everything, with one that can be asked for nothing beside its upstream.
struct hoard {
  static constexpr char const* layer_name = "hoard";

  std::size_t trim_layer(std::size_t keep) {
    std::size_t const gone = held - keep;
    held = keep;
    return gone;
  }
  std::size_t reserved() const { return held; }
  void synchronize() { ++waits; }
  std::size_t release_captured(std::uint64_t capture) { return capture + 1; }
  void visit_parts(layer_visitor& visitor) {
    layer_ref part(silent);
    visitor.see(part);
  }
  std::size_t used() const { return 3; }
  std::size_t max_bytes() const { return 5; }
  std::size_t peak() const { return 4; }
  std::uint64_t refused() const { return 2; }
  std::size_t largest_free() const { return 6; }
  void reset_peaks() { ++resets; }
  struct tag_count {
    struct known {
      std::size_t pending;
    };
    tag_name tag;
    known numbers;
  };
  std::vector<tag_count> numbers_by_tag() const { return {{tag_name("kv"), {8}}, {tag_name(), {9}}}; }

  silent_layer silent;
  std::size_t held = 10;
  int waits = 0, resets = 0;
};

struct tag_list final : detail::tag_visitor {
  void see(layer_numbers const& of_tag) override { seen.push_back(of_tag); }
  std::vector<layer_numbers> seen;
};

struct collector final : layer_visitor {
  using layer_visitor::layer_visitor;
  void see(layer_ref& layer) override { names.push_back(layer.numbers().layer); }
  std::vector<std::string> names;
};

}  // namespace

TEST_CASE("a layer is asked through the reference as it is without") {
  hoard layer;
  layer_ref const ref(layer);
  CHECK(ref.keeps_memory());
  CHECK(ref.keeps_what_it_takes());
  CHECK(ref.reserved() == 10);
  CHECK(ref.trim(4) == 6);
  CHECK(ref.reserved() == 4);
  ref.synchronize();
  CHECK(layer.waits == 1);
  CHECK(ref.release_captured(7) == 8);
  REQUIRE(ref.limit().has_value());
  CHECK(ref.limit()->max_bytes() == 5);
  CHECK(ref.numbers() ==
        layer_numbers{.layer = "hoard", .reserved = 4, .charged = 3, .charged_peak = 4, .max_bytes = 5, .refused = 2});
  collector seen(layer_visitor::extent::all);
  ref.visit_parts(seen);
  CHECK(seen.names == std::vector<std::string>{"silent"});
  CHECK(ref.numbers().largest_free == std::nullopt);  // only where somebody looks closely
  CHECK(ref.numbers(detail::look::close).largest_free == 6);
  ref.reset_peaks();
  CHECK(layer.resets == 1);
  tag_list tags;
  ref.visit_tags(tags);
  CHECK(tags.seen ==
        std::vector<layer_numbers>{{.layer = "tag", .name = "kv", .pending = 8}, {.layer = "tag", .pending = 9}});
}

TEST_CASE("a layer that knows nothing says nothing and does nothing") {
  hoard above;
  layer_ref const ref(above.silent);
  CHECK_FALSE(ref.keeps_memory());
  CHECK_FALSE(ref.keeps_what_it_takes());
  CHECK(ref.trim() == 0);
  CHECK(ref.reserved() == 0);
  ref.synchronize();
  CHECK(ref.release_captured() == 0);
  CHECK_FALSE(ref.limit().has_value());
  CHECK(ref.numbers() == layer_numbers{.layer = "silent"});
  CHECK(ref.numbers(detail::look::close) == layer_numbers{.layer = "silent"});
  ref.reset_peaks();
  tag_list tags;
  ref.visit_tags(tags);
  CHECK(tags.seen.empty());
  collector seen(layer_visitor::extent::all);
  ref.visit_parts(seen);
  CHECK(seen.names.empty());
}

TEST_CASE("a stack shows its layers from the top down") {
  auto const memory = make(recorder<>{} | passing{"first"} | passing{"second"});
  collector seen(layer_visitor::extent::all);
  detail::show_layers(memory, seen);
  CHECK(seen.names == std::vector<std::string>{"second", "first", "recorder"});
}
