#include <weir/tools/config_text.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

namespace {

using weir::detail::config_layer;
using weir::detail::config_reader;

std::size_t column_of_refusal(std::string const& text, auto read) {
  try {
    std::vector<config_layer> layers = config_reader(text).layers();
    read(layers.front());
    layers.front().finish();
  } catch (weir::config_error const& refused) {
    return refused.column();
  }
  return 0;
}

std::size_t bytes_in(std::string const& value) {
  std::size_t bytes = 7;
  std::string const text = "layer(size=" + value + ")";  // layers refer to it
  std::vector<config_layer> layers = config_reader(text).layers();
  layers.front().take("size", bytes);
  layers.front().finish();
  return bytes;
}

TEST_CASE("text is cut into layers with their names and arguments") {
  std::vector<config_layer> layers = config_reader(" one | two( a = 1 , 2 ) |three()").layers();
  REQUIRE(layers.size() == 3);
  CHECK(layers[0].name() == "one");
  CHECK(layers[1].name() == "two");
  CHECK(layers[2].name() == "three");
  REQUIRE(layers[1].arguments().size() == 2);
  CHECK(layers[1].arguments()[0].key == "a");
  CHECK(layers[1].arguments()[0].value == "1");
  CHECK(layers[1].arguments()[1].key.empty());
  CHECK(layers[1].arguments()[1].value == "2");
  CHECK(layers[0].arguments().empty());
  CHECK(layers[2].arguments().empty());
}

TEST_CASE("bytes are read with binary units, whole numbers only") {
  CHECK(bytes_in("4096") == 4096);
  CHECK(bytes_in("12B") == 12);
  CHECK(bytes_in("64KiB") == std::size_t{64} * 1024);
  CHECK(bytes_in("1.5GiB") == std::size_t{1536} * 1024 * 1024);
  CHECK(bytes_in("2TiB") == std::size_t{2} << 40);
  for (char const* wrong : {"1.5", "1kb", "GiB", "1 GiB x", "0x10", "1..5KiB", "nan", "inf", "9999999999TiB"})
    CHECK_THROWS_AS(bytes_in(wrong), weir::config_error);
}

TEST_CASE("a percentage is told from bytes by its sign") {
  double fraction = 0;
  std::size_t bytes = 0;
  std::vector<config_layer> layers = config_reader("layer(25%)|layer(5KiB)").layers();
  for (config_layer& layer : layers) {
    layer.take_percent("fraction", fraction, config_layer::place::first);
    layer.take("max", bytes, config_layer::place::first);
    layer.finish();
  }
  CHECK(fraction == 0.25);
  CHECK(bytes == 5 * 1024);
}

TEST_CASE("an argument that nobody takes is refused at its column, with what is taken") {
  std::size_t bytes = 0;
  auto const read = [&](config_layer& layer) { layer.take("size", bytes); };
  CHECK(column_of_refusal("layer(size=1)", read) == 0);
  CHECK(column_of_refusal("layer(site=1)", read) == 7);
  CHECK(column_of_refusal("layer(1)", read) == 7);
  CHECK(column_of_refusal("layer(size=1, size=2)", read) == 15);
  CHECK(column_of_refusal("layer(size=x)", read) == 12);
  try {
    std::vector<config_layer> layers = config_reader("layer(site=1)").layers();
    read(layers.front());
    layers.front().finish();
    FAIL("it was taken");
  } catch (weir::config_error const& refused) {
    CHECK(std::string(refused.what()).find("it takes size") != std::string::npos);
  }
}

TEST_CASE("the mark stands under the column, whatever bytes the text holds") {
  weir::config_error const error(std::string_view("a\tb\x80 c", 6), 5, "wrong");
  CHECK(error.column() == 6);
  CHECK(std::string(error.what()) == "weir: column 6: wrong\n  a?b? c\n       ^");
}

}  // namespace
