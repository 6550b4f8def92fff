// Programs in correct stream order on whole stacks: the steps of `random/program.hpp`, taken from bytes. Whatever
// the check of order, the contents or the sanitizers complain about is the stack's fault.
#include "target.hpp"

#include <random/program.hpp>
#include <support/parsed.hpp>

#include <weir/testing/checked.hpp>

#include <iterator>

namespace {

using namespace random_program;
using namespace weir::literals;
using weir::parse;

struct candidate {
  char const* text;  ///< the stack; it stands between two checks
  std::size_t most_bytes = 3_MiB;
  bool streams_end = true;
};

constexpr candidate candidates[] = {
    {"async"},
    {"device"},
    {"pinned"},
    {"device | pool"},
    {"async | pool(pending=wait)"},
    {"async | pool(initial=4MiB, growth=256KiB, release_threshold=0)"},
    {"device | pool(max=12MiB, growth=1MiB, synchronize=false)"},
    {"device | pool(max_split=1MiB)"},
    {"async | pool(streams=outlives_pool)", 3_MiB, false},
    {"async | pool(growth=8MiB) | pool(growth=1MiB, release_threshold=1MiB)"},
    {"device | pool | limit(10MiB) | statistics"},
    {"device | arena"},
    {"async | arena(20MiB, growth=1MiB, per=stream)"},
    {"async | fixed_size(64KiB, blocks_per_chunk=16)", 64_KiB},
    {"device | fixed_size(300, blocks_per_chunk=8, max=8KiB)", 300},
    {"device | pool | binning(min_exponent=8, max_exponent=16)"},
};

/// `parse` hides the layers, so that a stack as written can neither be trimmed nor waited for. These can.
using maker = std::function<stack()>;
template <class Options>
maker open_stack_of(Options const& options) {
  return [options] {
    return make_stack(weir::device{} | weir::checked{"the pool's upstream"} | options | weir::checked{"the top"});
  };
}
std::vector<maker> const& open_stacks() {
  static std::vector<maker> const all{
      open_stack_of(weir::pool{}),
      open_stack_of(
          weir::pool{.growth_bytes = 256_KiB, .release_threshold = 2_MiB, .pending = weir::when_pending::wait}),
      open_stack_of(weir::arena{.growth_bytes = 1_MiB, .per = weir::arena::owner::stream, .max_arenas = 3}),
      open_stack_of(weir::binning::powers_of_two(8, 16)),
  };
  return all;
}

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  fuzz::input in(data, size);
  std::size_t const number = in.byte() % (std::size(candidates) + open_stacks().size());
  unsigned const form = in.byte();
  constexpr sim::mode modes[] = {sim::mode::immediate, sim::mode::lazy, sim::mode::random, sim::mode::pct};
  setting how{.mode = modes[form % 4],
              .schedule = in.byte(),
              .capacity = 8_MiB << form / 4 % 3,
              .starving = form >= 192 && form % 4 == 2};
  maker make;
  if (number < std::size(candidates)) {
    candidate const& c = candidates[number];
    how.streams_end = c.streams_end;
    how.most_bytes = c.most_bytes;
    make = [text = c.text] { return make_stack(parse(text) | weir::checked{"the top"}); };
  } else {
    make = open_stacks()[number - std::size(candidates)];
  }
  std::vector<step> steps;
  while (!in.empty() && steps.size() < 300) {
    std::uint32_t const what = in.byte() % kinds, x = in.byte(), y = in.take<std::uint16_t>();
    // Sizes of every scale, in few bytes: y is spread over what `allocate` takes it modulo.
    steps.push_back({what, x, y * 61u, in.take<std::uint16_t>()});
  }
  outcome const came_out = run(how, make, steps);
  if (!came_out.what.empty()) fuzz::fail(came_out.what + " (step " + std::to_string(came_out.at) + ")");
  return 0;
}
