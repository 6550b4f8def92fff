#include <weir/tools/config_text.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

namespace {

namespace option = weir::option;
using weir::detail::config_layer;
using weir::detail::config_reader;

enum class side { left, right };

/// A field of each kind.
struct fields {
  std::size_t bytes = 7, max = 0;
  unsigned number = 0, mode = 0;
  int whole = 0;
  double fraction = 0;
  side which = side::left;
  bool flag = false;
  std::string text = {};
};
constexpr auto size = option::bytes("size", "bytes", &fields::bytes);
constexpr auto part = option::part("fraction", "fraction", &fields::fraction, "none").first();
constexpr auto k_side = option::one_of("k", "which", &fields::which, "left", side::left, "right", side::right);

/// What `field` is after "layer(WORD=VALUE)" was read.
fields read(auto const& field, std::string const& value) {
  std::string const text = std::string("layer(") + field.word + "=" + value + ")";  // layers refer to it
  std::vector<config_layer> layers = config_reader(text).layers();
  fields into;
  layers.front().take(field, into);
  layers.front().finish();
  return into;
}

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

std::size_t bytes_in(std::string const& value) { return read(size, value).bytes; }

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
  auto const number = option::count("n", "number", &fields::number);
  auto const whole = option::count("n", "whole", &fields::whole);
  auto const mode = option::octal("n", "mode", &fields::mode);
  CHECK(read(number, "17").number == 17);
  CHECK(read(whole, "-1").whole == -1);
  CHECK(read(number, "4294967295").number == 4294967295U);
  CHECK(read(mode, "0640").mode == 0640);
  for (char const* wrong : {"-1", "4294967296", "1KiB", "1.5", "x", "+1"})
    CHECK_THROWS_WITH_AS(read(number, wrong), doctest::Contains("it can be a whole number from 0 to 4294967295\n"),
                         weir::config_error);
  CHECK_THROWS_WITH_AS(
      read(whole, "2147483648"),
      doctest::Contains("layer's n is '2147483648'; it can be a whole number from -2147483648 to 2147483647\n"),
      weir::config_error);
  CHECK_THROWS_WITH_AS(read(mode, "0680"), doctest::Contains("an octal number"), weir::config_error);
}

TEST_CASE("what a number can be is told with the option's own bounds") {
  auto const number = option::count("n", "number", &fields::number);
  CHECK_THROWS_WITH_AS(read(number.at_least(1), "-1"), doctest::Contains("from 1 to 4294967295\n"), weir::config_error);
  CHECK_THROWS_WITH_AS(read(number.at_most(64), "x"), doctest::Contains("from 0 to 64\n"), weir::config_error);
  CHECK_THROWS_WITH_AS(read(number.at_least(8).or_zero("none"), "x"), doctest::Contains("from 0 to 4294967295\n"),
                       weir::config_error);
}

TEST_CASE("words, flags and texts are taken as they are, and others refused") {
  CHECK(read(k_side, "right").which == side::right);
  CHECK(read(k_side, "left").which == side::left);
  CHECK_THROWS_WITH_AS(read(k_side, "up"), doctest::Contains("layer's k is 'up'; it can be left or right\n"),
                       weir::config_error);
  auto const flag = option::flag("k", "flag", &fields::flag);
  CHECK(read(flag, "true").flag);
  CHECK_FALSE(read(flag, "false").flag);
  CHECK_THROWS_WITH_AS(read(flag, "yes"), doctest::Contains("k is 'yes'; it can be true or false\n"),
                       weir::config_error);
  auto const text = option::text("k", "text", &fields::text);
  CHECK(read(text, "a b=c ").text == "a b=c");
  CHECK_THROWS_WITH_AS(read(text, " "), doctest::Contains("expected a value"), weir::config_error);
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
  fields into;
  std::vector<config_layer> layers = config_reader("layer(25%)|layer(5KiB)").layers();
  for (config_layer& layer : layers) {
    layer.take(part, into);
    layer.take(option::bytes("max", "max", &fields::max).first(), into);
    layer.finish();
  }
  CHECK(into.fraction == 0.25);
  CHECK(into.max == 5 * 1024);
  auto const read = [&](config_layer& layer) { layer.take(part, into); };
  CHECK(column_of_refusal("layer(100%)", read) == 0);
  CHECK(into.fraction == 1);
  for (char const* wrong :
       {"layer(100.1%)", "layer(0%)", "layer(-5%)", "layer(nan%)", "layer(inf%)", "layer(%)", "layer(1e1%)"})
    CHECK(column_of_refusal(wrong, read) == 7);
  CHECK(column_of_refusal("layer(fraction=5)", read) == 16);
  CHECK(column_of_refusal("layer(5)", read) == 7);
}

TEST_CASE("what is given twice is told from what stands beside it without a name, by the sign of a percentage") {
  fields into;
  auto const read = [&](config_layer& layer) {
    layer.take(part, into);
    layer.take(option::bytes("max", "max", &fields::max).first(), into);
  };
  for (char const* both :
       {"layer(5KiB, fraction=25%)", "layer(5KiB, 25%)", "layer(25%, 5KiB)", "layer(max=5KiB, 25%)"}) {
    CAPTURE(both);
    into = {};
    CHECK(column_of_refusal(both, read) == 0);
    CHECK(into.fraction == 0.25);
    CHECK(into.max == 5 * 1024);
  }
  for (char const* twice : {"layer(25%, 50%)", "layer(25%, fraction=50%)", "layer(fraction=25%, 50%)"}) {
    CAPTURE(twice);
    std::vector<config_layer> layers = config_reader(twice).layers();
    CHECK_THROWS_WITH_AS(read(layers.front()), doctest::Contains("layer's fraction is given twice\n"),
                         weir::config_error);
  }
  CHECK(column_of_refusal("layer(5KiB, max=6KiB)", read) == 13);
  CHECK(column_of_refusal("layer(5KiB, 6KiB)", read) == 13);
}

TEST_CASE("an argument that nobody takes is refused at its column, with what is taken") {
  fields into;
  auto const read = [&](config_layer& layer) { layer.take(size, into); };
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

TEST_CASE("of a long text what stands around the column is shown") {
  std::string const filler(50'000, 'x');
  weir::config_error const inside(filler + "!" + filler, 50'000, "'" + filler + "' is wrong");
  std::string const side(500, 'x');
  CHECK(std::string(inside.what()) == "weir: column 50001: '" + side.substr(1) + " ... " + side.substr(10) +
                                          "' is wrong\n  ... " + side + "!" + side.substr(1) + " ...\n  " +
                                          std::string(504, ' ') + "^");
  CHECK(inside.column() == 50'001);
  weir::config_error const first("!" + filler, 0, "wrong");
  CHECK(std::string(first.what()) == "weir: column 1: wrong\n  !" + side.substr(1) + " ...\n  ^");
  weir::config_error const last(filler, 50'000, "wrong");
  CHECK(std::string(last.what()) == "weir: column 50001: wrong\n  ... " + side + "\n  " + std::string(504, ' ') + "^");
}

TEST_CASE("what is wrong is said without the control bytes that the text holds") {
  std::string const text = "layer(size=\x1b[2J)";
  std::vector<config_layer> layers = config_reader(text).layers();
  fields into;
  CHECK_THROWS_WITH_AS(layers.front().take(size, into), doctest::Contains("12: '?[2J' is not a number of bytes"),
                       weir::config_error);
}

}  // namespace
