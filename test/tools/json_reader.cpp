#include <weir/tools/json_reader.hpp>

#include <doctest/doctest.h>

#include <string>

using namespace weir;
using detail::json_object_reader;

namespace {

/// `name=value ` of each member, or why the line is refused.
std::string read(std::string_view line) try {
  detail::text_lines lines(line, "file");
  std::string out;
  json_object_reader(lines, lines.next().value_or("")).for_each_member([&](json_object_reader::member const& m) {
    out += m.name + "=" + m.text;
    for (std::string const& each : m.list) out += "[" + each + "]";
    out += " ";
  });
  return out;
} catch (damaged_trace const& damaged) {
  return damaged.what();
}

}  // namespace

TEST_CASE("texts, numbers, words and lists of texts are read") {
  CHECK(read("{}") == "");
  CHECK(read(R"( { "a" : "b" , "n":12,"t":true,"x":null,"l":["p","q"],"e":[] } )") ==
        "a=b n=12 t=true x=null l=[p][q] e= ");
  CHECK(read(R"({"a":"\"\\\/\b\f\n\r\t"})") == "a=\"\\/\b\f\n\r\t ");
  CHECK(read(R"({"a":"\u0041\u00e4\u20ac\ud83d\ude00"})") == "a=A\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80 ");
  CHECK(read(R"({"a":"\ud83d.\ude00\ud83d\u0041"})") == "a=\xef\xbf\xbd.\xef\xbf\xbd\xef\xbf\xbd ");
}

TEST_CASE("what is no such object is refused with its line") {
  for (char const* const line : {"", "{", "[]", "{\"a\"}", "{\"a\":}", "{\"a\":1", "{\"a\":1,}", "{\"a\":\"b",
                                 "{\"a\":\"\\", "{\"a\":\"\\u12\"}", "{\"a\":\"\\q\"}", "{\"a\":[1]}", "{\"a\":{}}",
                                 "{\"a\":-1}", "{\"a\":nil}", "{} x", "{\"a\":[\"b\"", "{\"a\":\"\\ud83d\\u"})
    CHECK_MESSAGE(read(line).starts_with("file:1: "), line << " is read as " << read(line));
}
