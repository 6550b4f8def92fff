#include <weir/tools/wide_characters.hpp>

#include <doctest/doctest.h>

using weir::detail::columns_of;
using weir::detail::number_of;

TEST_CASE("a character has its number") {
  CHECK(number_of("a") == U'a');
  CHECK(number_of("\xc3\xa9") == U'\u00e9');
  CHECK(number_of("\xe4\xb8\xad") == U'\u4e2d');
  CHECK(number_of("\xf0\x9f\x99\x82") == U'\U0001f642');
}

TEST_CASE("what is wide in East Asia takes two columns, and nothing else does") {
  for (char const* wide : {"\xe1\x84\x80", "\xe4\xb8\xad", "\xe3\x81\x82", "\xea\xb0\x80", "\xef\xbc\xa1",
                           "\xe2\x8f\xb0", "\xf0\x9f\x99\x82", "\xf0\xa0\x80\x80"})
    CHECK(columns_of(wide) == 2);
  for (char const* narrow : {"a", "~", "\xc3\xa9", "\xe1\x83\xbf", "\xe2\x82\xac", "\xe2\x80\x93", "\xe2\x86\x92",
                             "\xe0\xa4\x85", "\xef\xbd\xa1", "\xef\xbf\xbd", "\xf0\x9d\x84\x9e"})
    CHECK(columns_of(narrow) == 1);
}
