#include <weir/core/report.hpp>

#include <doctest/doctest.h>
#include <core/recorder.hpp>

using namespace weir;

TEST_CASE("a report has a chain of names and a line for each layer, outermost first") {
  report r;
  r.below("pool", "8 free");
  r.below("device(0)", "1 GiB left");
  r.above("limit(1.00 GiB)", "all used");
  CHECK(r.chain() == "limit(1.00 GiB) > pool > device(0)");
  CHECK(r.lines() ==
        "  limit      all used\n"
        "  pool       8 free\n"
        "  device     1 GiB left\n");
}

TEST_CASE("a layer that has nothing to say is in the chain only") {
  report r;
  r.below("quiet", "");
  CHECK(r.chain() == "quiet");
  CHECK(r.lines().empty());
}

TEST_CASE("a note is a line below the layers, and not in the chain") {
  report r;
  r.below("device", "1 GiB left");
  r.note("shared by", "search");
  r.above("pool", "8 free");
  CHECK(r.chain() == "pool > device");
  CHECK(r.lines() ==
        "  pool       8 free\n"
        "  device     1 GiB left\n"
        "  shared by  search\n");
}

TEST_CASE("the lines of a stack beside this one are below it, and not in the chain") {
  report other;
  other.below("pool", "8 free");
  report r;
  r.below("fallback(pool)", "the second:");
  r.beside(other);
  r.below("device", "1 GiB left");
  CHECK(r.chain() == "fallback(pool) > device");
  CHECK(r.lines() ==
        "  fallback   the second:\n"
        "  pool       8 free\n"
        "  device     1 GiB left\n");
}

TEST_CASE("the first hint counts, which is that of the layer that refused") {
  report r;
  CHECK(r.hint().empty());
  r.hint("free something");
  r.hint("ask for less");
  r.main_holder("cache holds 8 B of it");
  r.main_holder("decoder holds 7 B of it");
  CHECK(r.hint() == "free something");
  CHECK(r.main_holder() == "cache holds 8 B of it");
}

TEST_CASE("a long name is separated from its line") {
  report r;
  r.below("a_name_of_more_than_thirteen", "text");
  CHECK(r.lines() == "  a_name_of_more_than_thirteen text\n");
}

TEST_CASE("brackets in a layer's own name stay in its line; those of its setting do not") {
  report r;
  r.below("search (EU): limit(8.00 GiB)", "1 B charged");
  r.below("search (EU): statistics", "0 failures");
  r.below("fallback(pool(1.00 GiB) > managed(0))", "the second:");
  r.below("a(b: limit(1.00 GiB)", "2 B charged");
  CHECK(r.lines() ==
        "  search (EU): limit 1 B charged\n"
        "  search (EU): statistics 0 failures\n"
        "  fallback   the second:\n"
        "  a(b: limit 2 B charged\n");
}

TEST_CASE("the report of a stack is its layers' from the top down") {
  auto memory = make(recorder<>{.label = 5} | passing{"inner"} | passing{"outer"});
  CHECK(report_of(memory).chain() == "outer > inner > recorder");
  CHECK(report_of(memory).lines().find("label 5") != std::string::npos);
}

TEST_CASE("a resource that does not describe itself is passed over") {
  struct mute {
  } const nothing;
  CHECK(report_of(nothing).chain().empty());

  struct mute_adaptor {
    recorder_resource<> below{5};
    recorder_resource<> const& upstream() const { return below; }
  } const over;
  CHECK(report_of(over).chain() == "recorder");
}
