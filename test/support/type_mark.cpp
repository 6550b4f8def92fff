#include <weir/support/type_mark.hpp>

#include <doctest/doctest.h>

using weir::detail::type_mark;

namespace {

template <class T>
struct one {};

}  // namespace

TEST_CASE("each type has a mark of its own") {
  constexpr type_mark mark = type_mark::of<one<int>>();
  CHECK(mark == type_mark::of<one<int>>());
  CHECK(mark != type_mark::of<one<one<int>>>());
  CHECK(mark != type_mark::of<one<int> const>());
  CHECK(mark != type_mark());
  CHECK(type_mark() == type_mark());
}
