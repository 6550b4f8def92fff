#include <weir/tools/log_reader.hpp>

#include <doctest/doctest.h>

#include <string>

using namespace weir;
using detail::log_columns;
using detail::text_lines;

namespace {

/// Why a line of a log with a tag is refused; empty if it is not.
std::string refusal(std::string const& line) {
  std::string const file = "header\n" + line;
  text_lines lines(file, "file");
  lines.next();
  std::string_view const text = lines.next().value_or("");
  try {
    log_columns::of(log_columns::tagged)->read(lines, text);
    return {};
  } catch (damaged_trace const& damaged) {
    return damaged.what();
  }
}

}  // namespace

TEST_CASE("lines end at newlines, of any kind") {
  text_lines lines("a\r\n\nb", "file");
  CHECK(lines.next() == "a");
  CHECK(lines.next() == "");
  CHECK(lines.next() == "b");
  CHECK_FALSE(lines.next());
}

TEST_CASE("a line of a log is read by its columns") {
  CHECK_FALSE(log_columns::of("Time,Action"));
  text_lines const lines("", "file");
  auto const line = log_columns::of(log_columns::tagged)->read(lines, "7,now,free,0xff,10,0x51,a,\"b\"");
  CHECK(line.is == line.frees);
  CHECK(line.address == 0xff);
  CHECK(line.bytes == 10);
  CHECK(line.stream == "0x51");
  CHECK(line.tag == "a,\"b\"");
  auto const failure = log_columns::of(log_columns::plain)->read(lines, "7,now,allocate failure,(nil),4096,0");
  CHECK(failure.is == line.fails);
  CHECK(failure.address == 0);
  CHECK(failure.bytes == 4096);
  CHECK(log_columns::of(log_columns::plain)->read(lines, "7,now,allocate failure,x,y,0").bytes == 0);
  for (char const* const null : {"7,now,allocate,(nil),0,0", "7,now,free,(nil),0,0", "7,now,free,0x0,0,0"})
    CHECK(log_columns::of(log_columns::plain)->read(lines, null).address == 0);
}

TEST_CASE("what is wrong with a line is said with its number") {
  CHECK(refusal("1,now,free,0x1,10,0,tag") == "");
  CHECK(refusal("1,now") == "file:2: has 2 fields; 7 are needed: Thread,Time,Action,Pointer,Size,Stream,Tag");
  CHECK(refusal("1,now,fly,0x1,10,0,") == "file:2: action is 'fly'; it can be allocate, free or allocate failure");
  CHECK(refusal("1,now,free,0xg,10,0,") == "file:2: pointer is '0xg', which is no number");
  CHECK(refusal("1,now,free,0x1,99999999999999999999,0,") ==
        "file:2: size is '99999999999999999999', which is no number");
}

TEST_CASE("a tag comes out of its field as it went in") {
  for (char const* const tag :
       {"",           "a",     "a b",     " a ", "a,b",      "\"", "a\"\"b", "'",      "=1",       "-",
        "a\nb\r\t\\", "\\x41", "\x1b[2J", "a\\", "\xc2\x85", "ä",  "\xff",   "a,\xc3", "\xe2\x80", "'\x80"})
    CHECK(detail::from_csv_field(csv_field(tag)) == tag);
}
