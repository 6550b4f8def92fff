#pragma once
// Steps of random programs: made from a seed, shrunk to the fewest that fail, and written down as a test.

#include <random/program.hpp>
#include <random/repeat.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace random_program {

/// Every seed likes some kinds of steps more than others, and some not at all: that reaches further than the same
/// mixture always. `most_liking`: for what captures do, which may be most of a program.
inline std::vector<step> steps_from(std::uint64_t seed, std::size_t count, unsigned most_liking = 16) {
  std::mt19937_64 random(seed);
  // Of their own, so that they leave programs without them as they are.
  std::mt19937_64 more(~seed);
  bool const captures = more() % 3 == 0, pairs = more() % 3 == 0, sticks = more() % 8 == 0, afters = more() % 3 == 0;
  unsigned const liking_captures = captures ? std::min(std::array{1u, 4u, 16u}[more() % 3], most_liking) : 0;
  unsigned upto[kinds];
  unsigned sum = 0;
  for (unsigned i = 0; i < kinds; ++i) {
    unsigned liking = 1;
    if (i >= begin_capture)
      liking = i == sticky_error ? sticks : i == fail_twice ? pairs : i == free_after_others ? afters : liking_captures;
    else if (i != allocate_block && i != free_where_it_is)
      liking = std::array{0u, 1u, 1u, 4u}[random() % 4];
    upto[i] = sum += weights[i] * liking;
  }
  std::vector<step> steps(count);
  for (step& s : steps) {
    auto const what = std::upper_bound(upto, upto + kinds, random() % sum) - upto;
    std::uint64_t const a = random(), b = random();
    s = {static_cast<std::uint32_t>(what), static_cast<std::uint32_t>(a >> 32), static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(b >> 32)};
  }
  return steps;
}

/// Leaves out whatever is not needed for some failure; `failing` is one that fails.
inline std::vector<step> shrunk(setting const& how, std::function<stack()> const& make, std::vector<step> failing) {
  int tries = 3000;
  for (std::size_t chunk = failing.size() / 2; chunk > 0 && tries > 0;) {
    bool smaller = false;
    for (std::size_t begin = 0; begin + chunk <= failing.size() && --tries > 0;) {
      std::vector<step> candidate = failing;
      auto const first = candidate.begin() + static_cast<std::ptrdiff_t>(begin);
      candidate.erase(first, first + static_cast<std::ptrdiff_t>(chunk));
      outcome const o = run(how, make, candidate);
      if (o.what.empty()) {
        begin += chunk;
        continue;
      }
      if (o.at < candidate.size()) candidate.resize(o.at + 1);
      failing = std::move(candidate);
      smaller = true;
    }
    if (!smaller) chunk /= 2;
  }
  return failing;
}

/// The setting and the steps as a test that repeats them, on the stack that has this name in random_stacks.hpp.
inline std::string as_test(std::string const& stack_name, setting const& how, std::span<step const> steps) {
  std::string text =
      "TEST_CASE(\"found: " + stack_name + ", " + name_of(how.mode) + ", " + std::to_string(how.schedule) +
      "\") {\n  repeat(\"" + stack_name + "\",\n         {.mode = sim::mode::" + name_of(how.mode) +
      ", .schedule = " + std::to_string(how.schedule) + ", .capacity = " + std::to_string(how.capacity) +
      ", .streams_end = " + (how.streams_end ? "true" : "false") + ", .most_bytes = " + std::to_string(how.most_bytes) +
      ", .starving = " + (how.starving ? "true" : "false") + ", .few_sizes = " + (how.few_sizes ? "true" : "false") +
      ", .device = " + std::to_string(how.device) + ", .current = " + std::to_string(how.current) +
      (how.two_threads ? ", .two_threads = true" : "") + "},\n         {";
  char const* between = "";
  for (step const& s : steps) {
    text += std::string(between) + "{" + names[s.what];
    for (std::uint32_t const part : {s.x, s.y, s.z}) text += ", " + std::to_string(part);
    text += "}";
    between = ",\n          ";
  }
  return text + "});\n}\n";
}

}  // namespace random_program
