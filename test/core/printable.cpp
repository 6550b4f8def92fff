#include <weir/core/printable.hpp>

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

TEST_CASE("control characters of UTF-8 are escaped whole") {
  CHECK(printable("a\xc2\x9b"
                  "31mb") == "a\\xc2\\x9b31mb");  // U+009B begins a terminal's sequence, as \x1b[ does
  CHECK(printable("\xc2\x80\xc2\x85\xc2\x9f") == "\\xc2\\x80\\xc2\\x85\\xc2\\x9f");
  CHECK(printable("\xc2\xa0\xc2\xbf") == "\xc2\xa0\xc2\xbf");                          // their neighbours
  CHECK(printable("\xe2\x80\xa8|\xe2\x80\xa9") == "\\xe2\\x80\\xa8|\\xe2\\x80\\xa9");  // line breaks
}

TEST_CASE("characters that turn the direction of text are escaped, and their neighbours are not") {
  auto const steers = [](std::string const& text) { return printable(text).find('\\') != std::string::npos; };
  auto const third = [](std::string text, int last) { return text += static_cast<char>(last); };
  for (int last = 0x80; last <= 0xbf; ++last) {
    INFO("last byte ", last);
    CHECK(steers(third("\xe2\x80", last)) == (last == 0x8e || last == 0x8f || (last >= 0xa8 && last <= 0xae)));
    CHECK(steers(third("\xe2\x81", last)) == (last >= 0xa6 && last <= 0xa9));
    CHECK(!steers(third("\xe2\x82", last)));
    CHECK(steers(third("\xd8", last)) == (last == 0x9c));
  }
  CHECK(printable("user\xe2\x80\xaegpj.exe") == "user\\xe2\\x80\\xaegpj.exe");
}

TEST_CASE("a character that the text breaks off in is kept") {
  for (char const* text : {"\xc2", "\xd8", "\xe2", "\xe2\x80", "\xe2\x81", "\x80\x9b"}) CHECK(printable(text) == text);
}

TEST_CASE("a plain field is written as it is") {
  CHECK(csv_field("") == "");
  CHECK(csv_field("decoder/layer 3") == "decoder/layer 3");
  CHECK(csv_field("a-b=c+d@e") == "a-b=c+d@e");
}

TEST_CASE("a field is UTF-8 whatever the text is") {
  CHECK(csv_field("caf\xe9") == "caf\\xe9");
  CHECK(csv_field("\xff,\xc3\xa9\xc3") == "\"\\xff,\xc3\xa9\\xc3\"");
  CHECK(csv_field("\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80") ==  // too long, half of a pair, above U+10FFFF
        "\\xc0\\xaf\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80");
  CHECK(csv_field("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x9a\x80") == "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x9a\x80");
  for (char const* const text : {"\xc2", "\xe2\x80", "\xf0\x9f\x9a", "\x80", "=\xff"})
    for (char const c : csv_field(text)) CHECK(static_cast<unsigned char>(c) < 0x80);
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

TEST_CASE(
    "a field that a spreadsheet would take for a formula is made text, and one that looks like that is told apart") {
  CHECK(csv_field("=1+1") == "\"'=1+1\"");
  CHECK(csv_field("+cmd") == "\"'+cmd\"");
  CHECK(csv_field("-cmd") == "\"'-cmd\"");
  CHECK(csv_field("@SUM(A1)") == "\"'@SUM(A1)\"");
  CHECK(csv_field("  =x") == "\"'  =x\"");
  CHECK(csv_field("'=x") == "\"''=x\"");  // not what "=x" gives
  CHECK(csv_field("'") == "\"''\"");
  CHECK(csv_field(" 'x") == "\"' 'x\"");
  CHECK(csv_field("it's") == "\"it's\"");
  CHECK(csv_field("\t=x") == "\\t=x");  // the tab is no longer one, so this starts with a backslash
}
