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

TEST_CASE("lines and tabs are space, as in a text that was read from a file") {
  std::vector<config_layer> layers = config_reader("\tone\r\n  | two(a\t=\n1 ,\n 2\t)\n").layers();
  REQUIRE(layers.size() == 2);
  CHECK(layers[0].name() == "one");
  CHECK(layers[1].name() == "two");
  REQUIRE(layers[1].arguments().size() == 2);
  CHECK(layers[1].arguments()[0].key == "a");
  CHECK(layers[1].arguments()[0].value == "1");
  CHECK(layers[1].arguments()[1].value == "2");
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

TEST_CASE("bytes without a point are exact, to the last that can be addressed") {
  CHECK(bytes_in("9007199254740993") == 9007199254740993);  // no double
  CHECK(bytes_in("9223372036854775807") == 0x7fff'ffff'ffff'ffff);
  CHECK(bytes_in("8388607TiB") == std::size_t{8388607} << 40);
  CHECK_THROWS_AS(bytes_in("9223372036854775808"), weir::config_error);
  CHECK_THROWS_AS(bytes_in("8388608TiB"), weir::config_error);
  CHECK_THROWS_AS(bytes_in("99999999999999999999"), weir::config_error);
}

TEST_CASE("whole numbers are read in the range of their type") {
  auto const read = [](std::string const& value, auto number, int base = 10) {
    std::string const text = "layer(n=" + value + ")";
    std::vector<config_layer> layers = config_reader(text).layers();
    layers.front().take_whole("n", number, base);
    layers.front().finish();
    return number;
  };
  CHECK(read("17", 0U) == 17);
  CHECK(read("-1", 0) == -1);
  CHECK(read("4294967295", 0U) == 4294967295U);
  CHECK(read("0640", 0U, 8) == 0640);
  for (char const* wrong : {"-1", "4294967296", "1KiB", "1.5", "x", "+1"})
    CHECK_THROWS_WITH_AS(read(wrong, 0U), doctest::Contains("a whole number of 0 or more"), weir::config_error);
  CHECK_THROWS_WITH_AS(read("2147483648", 0), doctest::Contains("layer's n is a whole number\n"), weir::config_error);
  CHECK_THROWS_WITH_AS(read("0680", 0U, 8), doctest::Contains("an octal number"), weir::config_error);
}

TEST_CASE("words, flags and texts are taken as they are, and others refused") {
  enum class side { left, right };
  auto const read = [](std::string const& value, auto take) {
    std::string const text = "layer(k=" + value + ")";
    std::vector<config_layer> layers = config_reader(text).layers();
    take(layers.front());
    layers.front().finish();
  };
  side which = side::left;
  auto const take_side = [&](config_layer& l) { l.take("k", which, "left", side::left, "right", side::right); };
  read("right", take_side);
  CHECK(which == side::right);
  read("left", take_side);
  CHECK(which == side::left);
  CHECK_THROWS_WITH_AS(read("up", take_side), doctest::Contains("layer's k is left or right"), weir::config_error);
  bool flag = false;
  auto const take_flag = [&](config_layer& l) { l.take("k", flag); };
  read("true", take_flag);
  CHECK(flag);
  read("false", take_flag);
  CHECK_FALSE(flag);
  CHECK_THROWS_WITH_AS(read("yes", take_flag), doctest::Contains("true or false"), weir::config_error);
  std::string text;
  read("a b=c ", [&](config_layer& l) { l.take("k", text); });
  CHECK(text == "a b=c");
  CHECK_THROWS_WITH_AS(read(" ", [&](config_layer& l) { l.take("k", text); }), doctest::Contains("expected a value"),
                       weir::config_error);
}

TEST_CASE("a stack has at most 64 layers, since each is a call inside of another") {
  std::string text = "layer";
  for (int i = 1; i < 64; ++i) text += "|layer";
  CHECK(config_reader(text).layers().size() == 64);
  try {
    config_reader(text + " | layer").layers();
    FAIL("it was read");
  } catch (weir::config_error const& refused) {
    CHECK(refused.column() == text.size() + 4);
  }
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
  auto const read = [&](config_layer& layer) { layer.take_percent("fraction", fraction, config_layer::place::first); };
  CHECK(column_of_refusal("layer(100%)", read) == 0);
  CHECK(fraction == 1);
  for (char const* wrong :
       {"layer(100.1%)", "layer(0%)", "layer(-5%)", "layer(nan%)", "layer(inf%)", "layer(%)", "layer(1e1%)"})
    CHECK(column_of_refusal(wrong, read) == 7);
  CHECK(column_of_refusal("layer(fraction=5)", read) == 16);
  CHECK(column_of_refusal("layer(5)", read) == 7);
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

TEST_CASE("what is wrong is said without the control bytes that the text holds") {
  std::string const text = "layer(size=\x1b[2J)";
  std::vector<config_layer> layers = config_reader(text).layers();
  std::size_t bytes = 0;
  CHECK_THROWS_WITH_AS(layers.front().take("size", bytes), doctest::Contains("12: '?[2J' is not a number of bytes"),
                       weir::config_error);
}

}  // namespace
