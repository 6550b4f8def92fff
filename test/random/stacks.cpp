// Random programs on stacks, in every schedule: no violation of order, no contents lost, nothing leaked.
//
//   WEIR_SOAK_OPERATIONS  how many operations in all, at least (default 600,000)
//   WEIR_SOAK_SEED        where to begin (default 1); a failure prints what repeats it
//   WEIR_SOAK_STACK       only the stack of this name, in all schedules
//   WEIR_SOAK_SHRINK      0: do not look for the fewest steps that fail
#include "stacks.hpp"
#include "steps.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

using namespace weir;
using namespace random_program;

namespace {

constexpr std::size_t schedules = 6, by_threads = 5;
/// Threads take ten times as long, and no run of theirs is like another: few programs are theirs.
std::size_t schedule_of(std::size_t turn) { return turn % 128 == 127 ? by_threads : turn % by_threads; }

int device_of_seed(std::uint64_t seed) { return static_cast<int>(seed / 2 % 2); }

setting setting_of(candidate const& c, std::uint64_t seed, std::size_t schedule) {
  constexpr sim::mode modes[schedules] = {sim::mode::immediate, sim::mode::lazy, sim::mode::random,
                                          sim::mode::random,    sim::mode::pct,  sim::mode::threads};
  return {.mode = modes[schedule],
          .schedule = seed,
          .capacity = 8_MiB << seed % 3,
          .streams_end = c.streams_end,
          .most_bytes = c.most_bytes,
          .starving = schedule == 3,
          .few_sizes = seed % 4 == 1,
          .device = device_of_seed(seed),
          .current = static_cast<int>(seed / 3 % 2),
          .two_threads = seed % 5 == 3};
}

struct sums {
  std::uint64_t operations = 0, programs = 0, served = 0, refused = 0;
};

/// The steps of a seed on one stack in one schedule; stops the test if they find anything.
void run_program(candidate const& c, setting const& how, std::span<step const> steps, sums& all) {
  repeat_with = "WEIR_SOAK_STACK='" + c.name + "' WEIR_SOAK_SEED=" + std::to_string(how.schedule) + ", mode " +
                name_of(how.mode) + (how.starving ? " with a starved stream" : "");
  outcome const o = run(how, c.make, steps);
  all.operations += o.what.empty() ? o.at : steps.size();  // an error that stays ends a program early
  ++all.programs;
  all.served += o.served;
  all.refused += o.refused;
  if (o.what.empty()) return;
  std::string message = "found after " + std::to_string(all.operations) + " operations: " + o.what + "\nrepeat with " +
                        repeat_with + ", operation " + std::to_string(o.at) + ", commit " + commit();
  // By threads no run is like another, so that there is nothing to shrink.
  if (how.mode != sim::mode::threads && number_from("WEIR_SOAK_SHRINK", 1) != 0) {
    std::fprintf(stderr, "%s\n", message.c_str());  // memory that is used after its free may end the search
    auto const last = static_cast<std::ptrdiff_t>(std::min(o.at + 1, steps.size()));
    auto const few = shrunk(how, c.make, {steps.begin(), steps.begin() + last});
    message += "\n" + std::to_string(few.size()) +
               " steps are enough, for which it says: " + run(how, c.make, few).what +
               "\nAs a test for random_stacks.cpp:\n\n" + as_test(c.name, how, few);
  }
  FAIL(message);
}

/// A list of steps that once found something, on the stack of this name.
[[maybe_unused]] void repeat(std::string const& name, setting const& how, std::vector<step> const& steps) {
  candidate const c = find_candidate(name, how.device);
  outcome const o = run(how, c.make, steps);
  INFO(name << ", step " << o.at);
  CHECK_EQ(o.what, "");
}

/// From 50 to 549 steps: short programs see a stack begin and end, long ones see it full.
std::size_t length_of(std::uint64_t seed) { return 50 + seed * 7919 % 500; }

}  // namespace

// The address sanitizer calls this before it reports.
extern "C" void __asan_on_error();
void __asan_on_error() { std::fprintf(stderr, "%s, commit %s\n", repeat_with.c_str(), commit().c_str()); }

TEST_CASE("random programs in order stay in order on every stack, in every schedule") {
  auto const total = number_from("WEIR_SOAK_OPERATIONS", 600'000);
  std::uint64_t const first = number_from("WEIR_SOAK_SEED", 1);
  print_in_a_crash();
  sums all;
  std::uint64_t seed = first;
  if (char const* const only = std::getenv("WEIR_SOAK_STACK")) {
    for (; all.operations < total; ++seed) {
      candidate const c = find_candidate(only, device_of_seed(seed));
      for (std::size_t schedule = 0; schedule < schedules; ++schedule)
        run_program(c, setting_of(c, seed, schedule), steps_from(seed, length_of(seed)), all);
    }
  } else {
    std::array const listed{candidates(0), candidates(1)};
    constexpr std::uint64_t drawn_a_seed = 6;
    for (; all.operations < total; ++seed) {
      auto const steps = steps_from(seed, length_of(seed));
      std::size_t turn = seed;
      int const device = device_of_seed(seed);
      for (candidate const& c : listed[static_cast<std::size_t>(device)]) {
        std::size_t const schedule = schedule_of(turn++);
        if (turn % 2 != 0) run_program(c, setting_of(c, seed, schedule), steps, all);  // else it rests, for more seeds
      }
      for (std::uint64_t i = 0; i < drawn_a_seed; ++i) {
        candidate const c = drawn(seed * drawn_a_seed + i, device);
        run_program(c, setting_of(c, seed, schedule_of(turn++)), steps, all);
      }
    }
  }
  MESSAGE(all.operations << " operations in " << all.programs << " programs from " << seed - first << " seeds, commit "
                         << commit() << ": " << all.served << " blocks served, " << all.refused << " requests refused");
  CHECK(all.served > 0);
  // Many seeds, not few long ones: one for at most each 10,000 operations, but for the first, which are of any length.
  if (std::getenv("WEIR_SOAK_STACK") == nullptr) CHECK(seed - first + 3 >= total / 10'000);
}

TEST_CASE("every kind of step, in a list as a failure prints it") {
  for (char const* name : {"pool on async", "pool on pinned memory", "arena", "number 7"})
    for (sim::mode const mode :
         {sim::mode::immediate, sim::mode::lazy, sim::mode::random, sim::mode::pct, sim::mode::threads})
      repeat(name, {.mode = mode, .schedule = 4},
             {{allocate_block, 3, 4096, 1},    {allocate_in_host_order, 4, 4096, 3},
              {allocate_block, 6, 100'000, 5}, {write_block, 0, 0, 17},
              {pass_to_other_stream, 2, 0, 0}, {read_block, 0, 0, 0},
              {read_on_other_stream, 7, 0, 0}, {write_by_host, 0, 1, 99},
              {wait_for_stream, 2, 0, 0},      {query_stream, 3, 0, 0},
              {describe_stack, 0, 0, 0},       {starve_stream, 3, 0, 0},
              {fail_in_allocate, 3, 5000, 2},  {free_elsewhere, 5, 0, 1},
              {free_where_it_is, 0, 0, 1},     {end_stream, 3, 1, 2},
              {allocate_block, 3, 4096, 1},    {fail_in_free, 0, 0, 0},
              {allocate_block, 3, 4096, 1},    {free_in_host_order, 0, 0, 1},
              {trim_stack, 0, 0, 0},           {synchronize_stack, 0, 0, 0},
              {wait_for_device, 0, 0, 0},      {allocate_block, 2, 4096, 1},
              {begin_capture, 4, 0, 0},        {fork_capture, 3, 0, 1},
              {use_in_capture, 0, 4000, 12},   {use_in_capture, 0, 0, 1},
              {use_in_capture, 0, 0, 5},       {use_in_capture, 0, 0, 11},
              {mark_capture, 4, 0, 0},         {leave_capture, 3, 0, 1},
              {begin_capture, 5, 0, 0},        {break_capture, 0, 1, 0},
              {use_in_capture, 1, 0, 4},       {end_capture, 0, 1, 0},
              {allocate_block, 3, 4096, 1},    {free_where_it_is, 0, 1, 1},
              {end_capture, 0, 0, 0},          {launch_graph, 6, 0, 0},
              {launch_graph, 3, 0, 0},         {free_where_it_is, 0, 0, 1},
              {drop_graph, 0, 0, 1},           {fail_twice, 3, 5000, 1},
              {fail_twice, 3, 0, 0},           {allocate_block, 3, 4096, 1},
              {sticky_error, 40, 0, 0}});
}
