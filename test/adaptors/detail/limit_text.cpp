// The whole of a report is tested in adaptors/limit.cpp and adaptors/pool_refusals.cpp.
#include <weir/adaptors/detail/limit_text.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <string>

using weir::detail::limit_state;
using weir::detail::refusal_hint;
using weir::detail::text_of;

namespace {

std::string const label = "search: limit";

bool begins(std::string const& text, std::string const& with) { return text.starts_with(with); }

}  // namespace

TEST_CASE("a line says what is charged, and the rest only where there is such") {
  limit_state s{.label = label, .most = 1024, .held = 768, .peak = 1024, .refused = 2, .soft = ~std::size_t{0}};
  CHECK(text_of(s) == "1.00 KiB, 768 B charged, 256 B left; peak 1.00 KiB, 2 refused");
  s.in_graphs = 512;
  s.kept = 256;
  s.soft = 512;
  s.crossed = 3;
  s.reserve = 2048;
  s.reserve_left = 1024;
  CHECK(
      text_of(s) ==
      "1.00 KiB, 768 B charged (512 B of it captured), 256 B left; peak 1.00 KiB, 2 refused; went above 512 B 3 times; "
      "1.00 KiB left of a reserve of 2.00 KiB; 256 B were kept for good");
  s.most = 512;
  CHECK(text_of(s).find("256 B too much") != std::string::npos);
}

TEST_CASE("a hint names the first remedy that would be enough") {
  limit_state s{.label = label, .most = 1024, .held = 1024};
  CHECK(begins(refusal_hint(s, 2048), "the request is larger than the whole budget of search: limit (1.00 KiB)"));
  CHECK(begins(refusal_hint(s, 0), "the request is larger"));
  CHECK(begins(refusal_hint(s, 512), "the budget of search: limit is used up"));
  s.in_graphs = 256;
  s.kept = 256;
  CHECK(begins(refusal_hint(s, 256), "the budget of search: limit is held by captured graphs"));
  CHECK(begins(refusal_hint(s, 512), "the budget of search: limit is held by what was kept for good, as sources"));
  s.has_pool_below = true;
  CHECK(begins(refusal_hint(s, 512), "the budget of search: limit is held by what was kept for good, where a free"));
  CHECK(begins(refusal_hint(s, 768), "the budget of search: limit is used up"));
}

TEST_CASE("a hint counts what is captured no higher than what is charged") {
  limit_state const s{.label = label, .most = 1024, .held = 256, .in_graphs = 512};
  CHECK(begins(refusal_hint(s, 1024), "the budget of search: limit is held by captured graphs"));
}
