#include <weir/core/escape.hpp>

#include <doctest/doctest.h>

using weir::csv_field;
using weir::printable;

TEST_CASE("printable text has one line and no control bytes, and can be told from what it escapes") {
  CHECK(printable("plain text, UTF-8: \xc3\xa9") == "plain text, UTF-8: \xc3\xa9");
  CHECK(printable("a\nb\rc\td") == "a\\nb\\rc\\td");
  CHECK(printable("\x1b[31m\x7f") == "\\x1b[31m\\x7f");
  CHECK(printable(std::string_view("\0", 1)) == "\\x00");
  CHECK(printable("a\\nb") == "a\\\\nb");
}

TEST_CASE("a plain field is written as it is") {
  CHECK(csv_field("") == "");
  CHECK(csv_field("decoder/layer 3") == "decoder/layer 3");
  CHECK(csv_field("a-b=c+d@e") == "a-b=c+d@e");
}

TEST_CASE("separators, quotes and outer spaces are quoted") {
  CHECK(csv_field("a,b") == "\"a,b\"");
  CHECK(csv_field("a;b") == "\"a;b\"");
  CHECK(csv_field("say \"hi\"") == "\"say \"\"hi\"\"\"");
  CHECK(csv_field(" a") == "\" a\"");
  CHECK(csv_field("a ") == "\"a \"");
}

TEST_CASE("line breaks cannot start a record of their own") {
  CHECK(csv_field("a\r\n1,2") == "\"a\\r\\n1,2\"");
  CHECK(csv_field("a\nb") == "a\\nb");
}

TEST_CASE("a field that a spreadsheet would take for a formula is made text") {
  CHECK(csv_field("=1+1") == "\"'=1+1\"");
  CHECK(csv_field("+cmd") == "\"'+cmd\"");
  CHECK(csv_field("-cmd") == "\"'-cmd\"");
  CHECK(csv_field("@SUM(A1)") == "\"'@SUM(A1)\"");
  CHECK(csv_field("  =x") == "\"'  =x\"");
  CHECK(csv_field("\t=x") == "\\t=x");  // the tab is no longer one, so this starts with a backslash
}
