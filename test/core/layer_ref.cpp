#include <weir/core/layer_ref.hpp>

#include <weir/core/numbers.hpp>
#include <weir/core/report.hpp>

#include <doctest/doctest.h>
#include <core/recorder.hpp>

#include <cstddef>
#include <cstdint>
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

  silent_layer silent;
  std::size_t held = 10;
  int waits = 0;
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
}

TEST_CASE("a layer that knows nothing says nothing and does nothing") {
  hoard above;
  layer_ref const ref(above.silent);
  CHECK_FALSE(ref.keeps_memory());
  CHECK(ref.trim() == 0);
  CHECK(ref.reserved() == 0);
  ref.synchronize();
  CHECK(ref.release_captured() == 0);
  CHECK_FALSE(ref.limit().has_value());
  CHECK(ref.numbers() == layer_numbers{.layer = "silent"});
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
