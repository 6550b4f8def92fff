#include <weir/tools/text_formats.hpp>

#include <doctest/doctest.h>
#include <support/json.hpp>

#include <string>
#include <string_view>

using namespace weir;
using namespace std::string_view_literals;

TEST_CASE("characters of UTF-8 are told from bytes that are none") {
  for (std::string_view const character :
       {"a"sv, "\0"sv, "\x7f"sv, "\xc2\x80"sv, "\xdf\xbf"sv, "\xe0\xa0\x80"sv, "\xed\x9f\xbf"sv, "\xef\xbf\xbd"sv,
        "\xf0\x90\x80\x80"sv, "\xf4\x8f\xbf\xbf"sv})
    CHECK(detail::utf8_bytes(std::string(character) + "x") == character.size());
  for (std::string_view const bytes :
       {"\x80"sv, "\xbf"sv, "\xc0\x80"sv, "\xc1\xbf"sv, "\xc2"sv, "\xc2x"sv, "\xe0\x9f\xbf"sv, "\xe2\x82"sv,
        "\xed\xa0\x80"sv, "\xf0\x8f\xbf\xbf"sv, "\xf0\x90\x80"sv, "\xf4\x90\x80\x80"sv, "\xf5\x80\x80\x80"sv, "\xff"sv})
    CHECK(detail::utf8_bytes(bytes) == 0);
}

TEST_CASE("a JSON string is valid whatever its bytes") {
  CHECK(detail::json_string("") == R"("")");
  CHECK(detail::json_string("a \"b\" \\c/") == R"("a \"b\" \\c/")");
  CHECK(detail::json_string("a\nb\x01\x7f") == R"("a\u000ab\u0001\u007f")");
  CHECK(detail::json_string("</script>") == R"("\u003c/script>")");
  CHECK(detail::json_string("h\xc3\xa9") == "\"h\xc3\xa9\"");
  CHECK(detail::json_string("\xe9 \xed\xa0\x80") == "\"\xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
  for (int first = 0; first < 256; ++first)
    for (int second = 0; second < 256; ++second) {
      std::string const made = detail::json_string(std::string{static_cast<char>(first), static_cast<char>(second)});
      bool all_utf8 = true;
      for (std::string_view rest = made; !rest.empty() && all_utf8; rest.remove_prefix(detail::utf8_bytes(rest)))
        all_utf8 = detail::utf8_bytes(rest) != 0;
      INFO(first, " ", second);
      REQUIRE(all_utf8);
      REQUIRE(test::json_reader::is_valid(made));
    }
}

TEST_CASE("the value of a label ends where it should") {
  CHECK(detail::prometheus_value("a \"b\"\\\nc") == R"("a \"b\"\\\nc")");
  CHECK(detail::prometheus_value("h\xc3\xa9\xef\xbf\xbd") == "\"h\xc3\xa9\xef\xbf\xbd\"");
  CHECK(detail::prometheus_value("h\xff\xc3(") == R"("h\\xff\\xc3(")");
}

TEST_CASE("a cell has its width, and no character is cut") {
  CHECK(detail::table_cell("pool", 6) == "pool  ");
  CHECK(detail::table_cell("fixed_size", 5) == "fixed");
  CHECK(detail::table_cell("a\nb\x1b", 10) == "a\\nb\\x1b  ");
  CHECK(detail::table_cell("h\xc3\xa9h\xc3\xa9", 3) == "h\xc3\xa9h");
  CHECK(detail::table_cell("\xe4\xb8\xad\xe6\x96\x87", 4) == "\xe4\xb8\xad\xe6\x96\x87");
  CHECK(detail::table_cell("\xe4\xb8\xad\xe6\x96\x87"
                           "a",
                           3) == "\xe4\xb8\xad ");  // nothing after what was cut
  CHECK(detail::table_cell("\xff", 4) == "\xef\xbf\xbd   ");
  CHECK(detail::table_cell("5 \xe2\x82\xac", 4) == "5 \xe2\x82\xac ");
}

TEST_CASE("a share has four decimals") {
  CHECK(detail::ratio_text(0) == "0.0000");
  CHECK(detail::ratio_text(1) == "1.0000");
  CHECK(detail::ratio_text(0.99996) == "1.0000");
  CHECK(detail::ratio_text(0.0625) == "0.0625");
}
