#include <weir/pool/limits_between.hpp>

#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/scrub.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/resource_ref.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "support/test_growable.hpp"

using namespace weir;
using namespace weir::test;

namespace {

constexpr std::size_t chunk = test_growable::chunk;

/// The budgets that are short, and by how many chunks.
template <class Memory>
std::vector<std::pair<std::size_t, std::size_t>> short_ones(Memory& memory, std::size_t chunks) {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  detail::for_each_short_limit(memory, chunks * chunk, [&](limit_ref const& limit, std::size_t by) {
    found.emplace_back(limit.max_bytes() / chunk, by / chunk);
  });
  return found;
}
using pairs = std::vector<std::pair<std::size_t, std::size_t>>;

}  // namespace

TEST_CASE("each limit down to the source says by how much it is short") {
  shared_growable source(100 * chunk);
  auto outer = make(share(source) | limit{.max_bytes = 8 * chunk});
  auto inner = make(share(outer) | statistics{} | limit{.max_bytes = 6 * chunk});
  auto const range = inner.reserve_range(16 * chunk);
  auto* const p = static_cast<std::byte*>(range.begin);
  REQUIRE(outer.map(p, 3 * chunk));
  REQUIRE(inner.map(p + 3 * chunk, 2 * chunk));
  CHECK(short_ones(inner, 3) == pairs{});
  CHECK(short_ones(inner, 4) == pairs{{8, 1}});
  CHECK(short_ones(inner, 6) == pairs{{6, 2}, {8, 3}});
  CHECK(detail::most_short(inner, 6 * chunk) == 3 * chunk);
  any_host_resource const erased(share(inner));
  CHECK(short_ones(erased, 6) == pairs{{6, 2}, {8, 3}});
  inner.unmap(p + 3 * chunk, 2 * chunk);
  outer.unmap(p, 3 * chunk);
  inner.release_range(range);
}

TEST_CASE("what a reserve pays is not charged below, but where it cannot reach") {
  shared_growable source(100 * chunk);
  auto lowest = make(share(source) | limit{.max_bytes = 5 * chunk});
  auto outer = make(share(lowest) | scrub{} | limit{.max_bytes = 8 * chunk});
  auto inner = make(share(outer) | limit{.max_bytes = 8 * chunk, .reserve_bytes = 6 * chunk});
  CHECK(short_ones(inner, 5) == pairs{});
  CHECK(short_ones(inner, 7) == pairs{{5, 2}});
}

TEST_CASE("a limit is known from above, whatever is between, and no other is taken for it") {
  shared_growable source(100 * chunk);
  auto team = make(share(source) | limit{.max_bytes = 8 * chunk});
  auto other = make(share(source) | limit{.max_bytes = 8 * chunk});
  auto member = share(team);
  auto nested = make(share(team) | statistics{} | limit{.max_bytes = chunk});
  any_host_resource const erased(share(team));
  limit_ref const limit(team);
  CHECK(detail::is_under(member, limit));
  CHECK(detail::is_under(nested, limit));
  CHECK(detail::is_under(erased, limit));
  CHECK_FALSE(detail::is_under(other, limit));
  CHECK_FALSE(detail::is_under(source, limit));
}
