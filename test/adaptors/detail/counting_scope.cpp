#include <weir/adaptors/detail/counting_scope.hpp>

#include <doctest/doctest.h>

#include <optional>
#include <thread>

using weir::memory_statistics;
using weir::detail::counting_scope;
using weir::detail::statistics_counters;

namespace {

void count(statistics_counters& layer) {
  counting_scope::for_each_on(layer, [](memory_statistics& n) { ++n.failures; });
}

}  // namespace

TEST_CASE("each scope that is open on a layer counts, and no other") {
  statistics_counters layer, other;
  CHECK_FALSE(counting_scope::are_open());
  counting_scope const outer(layer), elsewhere(other);
  count(layer);
  {
    counting_scope const inner(layer);
    count(layer);
    CHECK(inner.numbers().failures == 1);
    CHECK(layer.watchers.load() == 2);
  }
  count(layer);
  CHECK(outer.numbers().failures == 3);
  CHECK(elsewhere.numbers().failures == 0);
  CHECK(layer.watchers.load() == 1);
}

TEST_CASE("scopes may end in any order") {
  statistics_counters layer;
  std::optional<counting_scope> first(std::in_place, layer), second(std::in_place, layer);
  first.reset();
  count(layer);
  CHECK(second->numbers().failures == 1);
  second.reset();
  CHECK_FALSE(counting_scope::are_open());
  CHECK(layer.watchers.load() == 0);
}

TEST_CASE("a scope sees its own thread only") {
  statistics_counters layer;
  counting_scope const scope(layer);
  bool others_have_some = true;
  std::thread([&] {
    others_have_some = counting_scope::are_open();
    count(layer);
  }).join();
  CHECK_FALSE(others_have_some);
  CHECK(scope.numbers().failures == 0);
}
