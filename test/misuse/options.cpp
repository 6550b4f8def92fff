// Options that make no sense: every layer refuses them when it is made, names the option and its value, and leaves
// nothing behind.
#include <weir/sim/sim.hpp>
#include <weir/testing/checked.hpp>
#include <weir/weir.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

using namespace weir;

namespace {

/// What `make` says of a recipe that it refuses; empty if it makes it.
template <class F>
std::string refusal(F const& recipe) {
  sim::reset();
  std::string said;
  try {
    auto memory = make(recipe);
  } catch (std::invalid_argument const& refused) {
    said = refused.what();
  }
  CHECK(sim::live_allocations() == 0);
  return said;
}

/// Refused with all of these words.
template <class F, class... Words>
bool refused(F const& recipe, Words... words) {
  std::string const said = refusal(recipe);
  CAPTURE(said);
  bool const all = said.find("weir: ") == 0 && ((said.find(words) != std::string::npos) && ...);
  CHECK(all);
  return all;
}

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinite = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("sources") {
  CHECK(refused(device{.device = -2}, "device is -2"));
  CHECK(refused(device{.device = 99}, "no device 99"));
  CHECK(refused(pinned{.device = -7}, "pinned", "-7"));
  CHECK(refused(managed{.device = 2000000000}, "managed", "2000000000"));
  CHECK(refused(async{.device = -2}, "async", "-2"));
  CHECK(refused(async{.max_bytes = 100, .initial_bytes = 101}, "initial_bytes is 101", "100"));
  CHECK(refused(async{.release_threshold = 0, .initial_bytes = 1}, "initial_bytes is 1", "release_threshold"));
  CHECK(refused(async{.max_bytes = 1, .use_default_pool = true}, "use_default_pool"));
}

TEST_CASE("pool") {
  CHECK(refused(device{} | pool{.initial_bytes = SIZE_MAX}, "initial_bytes"));
  CHECK(refused(device{} | pool{.initial_bytes = 2_MiB, .max_bytes = 1_MiB}, "initial_bytes", "max_bytes"));
  CHECK(refused(device{} | pool{.max_bytes = 1}, "max_bytes"));
  CHECK(refused(device{} | pool{.max_split_bytes = 1}, "max_split_bytes"));
  CHECK(refused(device{} | pool{.streams = stream_lifetime(9)}, "pool", "streams is 9", "may_end"));
  CHECK(refused(device{} | pool{.pending = when_pending(-1)}, "pool", "pending is -1", "grow"));
}

TEST_CASE("arena") {
  CHECK(refused(device{} | arena{.max_bytes = 255}, "max_bytes is 255"));
  CHECK(refused(device{} | arena{.growth_bytes = SIZE_MAX}, "growth_bytes"));
  CHECK(refused(device{} | arena{.max_arenas = 0}, "max_arenas is 0"));
  CHECK(refused(device{} | arena{.max_arenas = 65}, "max_arenas is 65"));
  CHECK(refused(device{} | arena{.max_arenas = SIZE_MAX}, "max_arenas"));
  CHECK(refused(device{} | arena{.per = arena::owner(2)}, "per is 2", "thread"));
  CHECK(refused(device{} | arena{.pending = when_pending(2)}, "arena", "pending is 2"));
}

TEST_CASE("fixed_size") {
  CHECK(refused(device{} | fixed_size{}, "block_bytes is 0"));
  CHECK(refused(device{} | fixed_size{.block_bytes = SIZE_MAX}, "block_bytes is 18446744073709551615"));
  CHECK(refused(device{} | fixed_size{.block_bytes = 4096, .max_bytes = 4095}, "max_bytes is 4095"));
  CHECK(refused(device{} | fixed_size{.block_bytes = 1, .streams = stream_lifetime(2)}, "fixed_size", "streams is 2"));
  CHECK(refusal(device{} | fixed_size{.block_bytes = 1, .blocks_per_chunk = SIZE_MAX}).empty());  // cut to what can be
}

TEST_CASE("binning") {
  CHECK(refused(device{} | binning{}, "there are 0 bins"));
  CHECK(refused(device{} | binning{.bins = {bin(0)}}, "bins[0]", "0 B"));
  CHECK(refused(device{} | binning{.bins = {bin(512), bin(256)}}, "bins[1]", "256 B"));
  CHECK(refused(device{} | binning{.bins = {bin(512), bin(512)}}, "bins[1]", "larger"));
  CHECK(refused(device{} | binning{.bins = {bin(SIZE_MAX)}}, "bins[0]", "block_bytes"));
  CHECK(refused(device{} | binning{.bins = std::vector<bin>(65, bin(256))}, "65 bins"));
  CHECK(refused(device{} | binning{.bins = {bin(256, pool{.max_bytes = 1})}}, "bins[0]", "max_bytes"));
  CHECK(refused(device{} | binning{.bins = {bin(1_MiB, fixed_size{.block_bytes = 4096})}}, "bins[0] is for 1048576 B",
                "block_bytes is 4096"));
  CHECK(
      refusal(device{} | binning{.bins = {bin(1000, fixed_size{.block_bytes = 900})}}).empty());  // a block has 1024 B
  CHECK_THROWS_AS(binning::powers_of_two(9, 8), std::invalid_argument);
  CHECK_THROWS_AS(binning::powers_of_two(0, 64), std::invalid_argument);
}

TEST_CASE("limit") {
  CHECK(refused(device{} | limit{}, "limit", "no budget is given"));
  CHECK(refused(device{} | limit{.max_bytes = 1_MiB, .fraction = 0.5}, "exactly one"));
  for (double const fraction : {-0.1, 1.1, not_a_number, infinite, -infinite})
    CHECK(refused(device{} | limit{.fraction = fraction}, "fraction"));
  CHECK(refused(device{} | limit{.fraction = 1e-300}, "fraction"));
  CHECK(refused(device{} | limit{.max_bytes = 1_MiB, .granularity = 0}, "granularity is 0"));
  CHECK(refused(device{} | limit{.max_bytes = 1_MiB, .granularity = 3}, "granularity is 3"));
  CHECK(refused(device{} | limit{.max_bytes = 255}, "less than one granularity"));
}

TEST_CASE("logging") {
  CHECK(refused(device{} | logging{.path = std::string("/dev/null\0x", 11)}, "zero byte"));
  CHECK(refused(device{} | logging{.path = "/dev/null", .mode = 01000}, "mode is 01000"));
  CHECK(refused(device{} | logging{.path = "/dev/null", .buffer_bytes = SIZE_MAX}, "buffer_bytes is 1844674407"));
}

TEST_CASE("checked") { CHECK(refused(device{} | checked{.name = nullptr}, "name is null")); }

namespace {

/// Somebody else's adaptor, whose resource does not look at its options.
template <resource Upstream>
class plain_resource {
 public:
  template <recipe F, class Options>
  plain_resource(F const& upstream, Options const&) : upstream_(upstream()) {}
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    return upstream_.allocate(stream, bytes, alignment);
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    upstream_.deallocate(stream, p, bytes, alignment);
  }

 private:
  Upstream upstream_;
};
struct picky {
  int level = 0;
  template <resource Upstream>
  using on = plain_resource<Upstream>;
  std::string problem() const { return level > 3 ? "picky: level is " + std::to_string(level) : std::string(); }
};

}  // namespace

TEST_CASE("an adaptor of somebody else's: make asks it too") {
  CHECK(refused(device{} | pool{.initial_bytes = 8_MiB} | picky{.level = 4}, "picky: level is 4"));
  CHECK(sim::calls("cudaMalloc") == 0);  // before anything is made
  CHECK(refusal(device{} | pool{} | picky{.level = 3}).empty());
}

TEST_CASE("a bad layer high in a stack leaves nothing of those below it") {
  CHECK(refused(device{} | pool{.initial_bytes = 8_MiB} | limit{.max_bytes = 1_GiB} | arena{.max_arenas = 0},
                "max_arenas"));
}
