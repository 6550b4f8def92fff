#include <weir/core/options.hpp>

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

namespace option = weir::option;

namespace {

enum class side { left, right };

struct fields {
  std::size_t most = 0, least = 300, grain = 256, page = 4096;
  unsigned mode = 0600;
  int device = -1;
  double part = 0.5;
  side which = side::left;
  bool flag = false;
  std::string name = {};

  static constexpr char const* layer_name = "layer";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(option::bytes("most", "most", &fields::most).or_zero("no limit").at_least(1024));
    f(option::bytes("least", "least", &fields::least).at_least(1).at_most(1000, "what fits"));
    f(option::bytes("grain", "grain", &fields::grain).power_of_two());
    f(option::bytes("page", "page", &fields::page).power_of_two().at_least(256).at_most(4096));
    f(option::octal("mode", "mode", &fields::mode).at_most(0777));
    f(option::count("device", "device", &fields::device).at_least(-1, "which is the current device"));
    f(option::part("part", "part", &fields::part, "not given").first());
    f(option::one_of("which", "which", &fields::which, "left", side::left, "right", side::right));
    f(option::flag("flag", "flag", &fields::flag));
    f(option::text("name", "name", &fields::name).first());
  }
};

std::string problem(fields const& options) { return option::first_problem(options); }

}  // namespace

TEST_CASE("what is allowed has no problem, bounds included") {
  CHECK(problem({}) == "");
  CHECK(problem({.most = 1024, .least = 1, .grain = 1, .mode = 0, .device = 7, .part = 1}) == "");
  CHECK(problem({.least = 1000, .grain = std::size_t{1} << 63, .mode = 0777, .part = 0, .which = side::right}) == "");
}

TEST_CASE("a wrong field is named with its value and what is allowed") {
  CHECK(problem({.most = 1023}) == "layer: most is 1023 B; it must be 0 (no limit) or at least 1 KiB");
  CHECK(problem({.least = 0}) == "layer: least is 0 B; it must be 1 B to 1000 B, what fits");
  CHECK(problem({.least = 2048}) == "layer: least is 2 KiB; it must be 1 B to 1000 B, what fits");
  for (std::size_t const grain : {std::size_t{0}, std::size_t{3}, std::numeric_limits<std::size_t>::max()})
    CHECK(problem({.grain = grain}).find("; it must be a power of two") != std::string::npos);
  for (std::size_t const page : {std::size_t{128}, std::size_t{300}, std::size_t{8192}})
    CHECK(problem({.page = page}) == "layer: page is " +
                                         (page == 8192 ? std::string("8 KiB") : std::to_string(page) + " B") +
                                         "; it must be a power of two, 256 B to 4 KiB");
  CHECK(problem({.mode = 01000}) == "layer: mode is 01000; it must be at most 0777");
  CHECK(problem({.device = -2}) == "layer: device is -2; it must be at least -1, which is the current device");
  CHECK(problem({.which = side(7)}) == "layer: which is 7; it must be left or right");
  for (double const part :
       {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    CHECK(problem({.part = part}).find("; it must be 0 (not given) or above 0 and at most 1") != std::string::npos);
}

TEST_CASE("a part is told with as many digits as make it what it is") {
  CHECK(problem({.part = 1 + std::numeric_limits<double>::epsilon()}) ==
        "layer: part is 1.0000000000000002; it must be 0 (not given) or above 0 and at most 1");
  CHECK(problem({.part = -0.5}) == "layer: part is -0.5; it must be 0 (not given) or above 0 and at most 1");
  CHECK(problem({.part = 1e300}).find("layer: part is 1e+300;") == 0);
  CHECK(problem({.part = -1e-12}).find("layer: part is -1e-12;") == 0);
}

TEST_CASE("the first of several problems is told") {
  CHECK(problem({.most = 1, .mode = 01000}).find("layer: most is 1 B") == 0);
}

TEST_CASE("the table has every field once, in order, and says which may stand without its word") {
  std::vector<std::string> names, first;
  fields::for_each_option([&](auto const& field) {
    names.push_back(field.name);
    if constexpr (requires { field.is_first; })
      if (field.is_first) first.push_back(field.word);
  });
  CHECK(names ==
        std::vector<std::string>{"most", "least", "grain", "page", "mode", "device", "part", "which", "flag", "name"});
  CHECK(first == std::vector<std::string>{"part", "name"});
}
