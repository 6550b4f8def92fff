#include <weir/support/function.hpp>

#include <doctest/doctest.h>

#include <concepts>
#include <functional>
#include <stdexcept>

using weir::detail::function;

namespace {

int twice(int n) { return 2 * n; }

static_assert(std::constructible_from<function<int(int)>, int (*)(int)>);
static_assert(!std::constructible_from<function<int(int)>, int>);
static_assert(!std::constructible_from<function<int(int)>, int* (*)(int)>);
static_assert(!std::constructible_from<function<void(int)>, int (*)(int*)>);

}  // namespace

TEST_CASE("functions, lambdas and objects are called with what is given") {
  int sum = 0;
  function<int(int)> const plain = &twice;
  function<void(int const&)> const adds = [&sum](int n) { sum += n; };
  CHECK(plain(21) == 42);
  adds(3);
  adds(4);
  CHECK(sum == 7);
}

TEST_CASE("where nothing is returned, what is called may return something") {
  int sum = 0;
  function<void(int)> const adds = [&sum](int n) { return sum += n; };
  adds(3);
  CHECK(sum == 3);
  function<void(int)> const plain = &twice;
  plain(1);
}

TEST_CASE("copies call the same object") {
  function<int()> const counts = [n = 0]() mutable { return ++n; };
  function<int()> const copy = counts;
  CHECK(counts() == 1);
  CHECK(copy() == 2);
  CHECK(counts() == 3);
}

TEST_CASE("one that was made from nothing is empty") {
  function<int(int)> f;
  CHECK_FALSE(f);
  f = &twice;
  CHECK(f);
}

TEST_CASE("one that was made from a null pointer or an empty function is empty, too") {
  int (*const null)(int) = nullptr;
  CHECK_FALSE(function<int(int)>(null));
  CHECK_FALSE(function<int(int)>(std::function<int(int)>()));
  CHECK_FALSE(function<void(int)>(function<int(int)>()));
  CHECK(function<int(int)>(std::function<int(int)>(&twice))(2) == 4);
  CHECK(function<int(int)>([](int n) { return n; })(2) == 2);
}

TEST_CASE("what is called may throw") {
  function<void()> const fails = [] { throw std::runtime_error("no"); };
  CHECK_THROWS_AS(fails(), std::runtime_error);
}
