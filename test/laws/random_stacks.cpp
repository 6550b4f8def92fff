// Random programs on stacks, in every schedule: no breach of order, no contents lost, nothing leaked.
//
//   WEIR_SOAK_OPERATIONS  how many operations in all (default 600,000)
//   WEIR_SOAK_SEED        where to begin (default 1); a failure prints what repeats it
//   WEIR_SOAK_STACK       only stacks whose name has this in it
//   WEIR_SOAK_SHRINK      0: do not look for the fewest steps that fail
#include "random_program.hpp"

#include <weir/adaptors/arena.hpp>
#include <weir/adaptors/binning.hpp>
#include <weir/adaptors/checked.hpp>
#include <weir/adaptors/fixed_size.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/sources.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>

using namespace weir;
using namespace random_program;

namespace {

struct candidate {
  char const* name;
  std::function<stack()> make;
  bool streams_end = true;
  std::size_t most_bytes = 3_MiB;
};

template <class F>
candidate of(char const* name, F const& recipe, bool streams_end = true, std::size_t most_bytes = 3_MiB) {
  return {name, [recipe] { return make_stack(recipe); }, streams_end, most_bytes};
}

checked const above{"the top"};
checked const below{"the pool's upstream"};

std::vector<candidate> candidates() {
  return {
      of("async", async{} | above),
      of("device", device{} | above),
      of("pinned", pinned{} | above),
      of("pool on device", device{} | below | pool{} | above),
      of("pool on async", async{} | below | pool{} | above),
      of("pool that waits", async{} | below | pool{.initial_bytes = 4_MiB, .pending = when_pending::wait} | above),
      of("pool with a bound",
         device{} | below | pool{.max_bytes = 12_MiB, .growth_bytes = 1_MiB, .synchronize = false} | above),
      of("pool that gives back early", device{} | below | pool{.release_threshold = 2_MiB} | above),
      of("pool that gives back at once",
         async{} | below | pool{.growth_bytes = 256_KiB, .release_threshold = 0} | above),
      of("pool that keeps large blocks whole", device{} | below | pool{.max_split_bytes = 1_MiB} | above),
      of("pool whose streams last", device{} | below | pool{.streams = stream_lifetime::outlives_pool} | above, false),
      of("pool whose streams last, that waits",
         async{} | below | pool{.streams = stream_lifetime::outlives_pool, .pending = when_pending::wait} | above,
         false),
      of("pool on a pool", async{} | below | pool{.growth_bytes = 8_MiB} | checked{"between"} |
                               pool{.growth_bytes = 1_MiB, .release_threshold = 1_MiB} | above),
      of("pool on pinned memory", pinned{} | below | pool{} | above),
      of("pool on host memory", host{} | below | pool{} | above),
      of("limited pool", device{} | below | pool{} | limit{.max_bytes = 10_MiB} | statistics{} | above),
      of("arena", device{} | below | arena{} | above),
      of("arena for each stream",
         async{} | below |
             arena{.max_bytes = 20_MiB, .growth_bytes = 1_MiB, .per = arena::owner::stream, .max_arenas = 3} | above),
      of("fixed size", async{} | below | fixed_size{.block_bytes = 64_KiB, .blocks_per_chunk = 16} | above, true,
         64_KiB),
      of("fixed size with a bound",
         device{} | below | fixed_size{.block_bytes = 300, .blocks_per_chunk = 8, .max_bytes = 8_KiB} | above, true,
         300),
      of("bins", device{} | below | pool{} | checked{"the bins' upstream"} | binning::powers_of_two(8, 16) | above),
  };
}

std::uint64_t number_from(char const* variable, std::uint64_t otherwise) {
  char const* const text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

char const* name_of(sim::mode m) {
  return m == sim::mode::immediate ? "immediate" : m == sim::mode::lazy ? "lazy" : "random";
}

std::string repeat_with;  // what a crash prints

}  // namespace

// The address sanitizer calls this before it reports.
extern "C" void __asan_on_error();
void __asan_on_error() { std::fprintf(stderr, "%s\n", repeat_with.c_str()); }

TEST_CASE("random programs in order stay in order on every stack, in every schedule") {
  constexpr std::size_t length = 500;
  auto const total = number_from("WEIR_SOAK_OPERATIONS", 600'000);
  char const* const only = std::getenv("WEIR_SOAK_STACK");
  auto all = candidates();
  if (only != nullptr)
    std::erase_if(all, [&](candidate const& c) { return std::string(c.name).find(only) == std::string::npos; });
  REQUIRE_FALSE(all.empty());

  std::uint64_t seed = number_from("WEIR_SOAK_SEED", 1);
  std::size_t served = 0, refused = 0;
  for (std::uint64_t done = 0; done < total; ++seed) {
    auto const steps = steps_from(seed, length);
    for (candidate const& c : all) {
      for (sim::mode const mode : {sim::mode::immediate, sim::mode::lazy, sim::mode::random}) {
        setting const how{.mode = mode,
                          .schedule = seed,
                          .capacity = 8_MiB << seed % 3,
                          .streams_end = c.streams_end,
                          .most_bytes = c.most_bytes};
        repeat_with = std::string("WEIR_SOAK_STACK='") + c.name + "' WEIR_SOAK_SEED=" + std::to_string(seed) +
                      ", mode " + name_of(mode);
        outcome const o = run(how, c.make, steps);
        done += length;
        served += o.served;
        refused += o.refused;
        if (o.what.empty()) continue;
        std::string message = "found after " + std::to_string(done) + " operations: " + o.what + "\nrepeat with " +
                              repeat_with + ", operation " + std::to_string(o.at);
        if (number_from("WEIR_SOAK_SHRINK", 1) != 0) {
          auto const last = static_cast<std::ptrdiff_t>(std::min(o.at + 1, length));
          auto const few = shrunk(how, c.make, {steps.begin(), steps.begin() + last});
          message += "\n" + std::to_string(few.size()) + " steps are enough: " + text_of(few) +
                     "\nfor which it says: " + run(how, c.make, few).what;
        }
        FAIL(message);
      }
    }
  }
  MESSAGE(served << " blocks served, " << refused << " requests refused");
  CHECK(served > 0);
}
