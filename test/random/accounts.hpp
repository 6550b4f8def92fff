#pragma once
// What the layers of a stack count, held against what the program knows to be live.

#include <random/open_stack.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace random_program {

/// What the layers that see all of the program's requests have to say.
struct expected_account {
  std::uint64_t requested = 0;  // bytes of live blocks
  std::uint64_t rounded = 0;    // the same, each rounded up to 256 B: at least that is allocated
  std::uint64_t charged = 0;    // what the stack says that they take: budgets charge that
  std::uint64_t live = 0, served = 0, failed = 0;
  std::uint64_t lost = 0, lost_count = 0;  // bytes and blocks that a pool keeps for good, as nobody could say when they
                                           // are done: to the pool they are live
  bool has_captured = false;               // a budget that is full may have tried what captures keep, and given it back
};

/// Empty if all layers say the same as the program, each about what the layer above it holds; else what is wrong.
/// `has_failed`: CUDA failed at some time. Then memory that a pool gave back may be lost on its way, so that only
/// the layers up to the first pool have to be right.
inline std::string difference(open_stack::stack const& s, expected_account const& program, bool has_failed) {
  expected_account known = program;
  bool first = true, is_known = true, is_thinned = false, is_padded = false;
  std::size_t number = 0;
  for (auto const& ask : s.accounts) {
    open_stack::account const a = ask();
    ++number;
    auto const complaint = [&](char const* what, std::uint64_t said, std::uint64_t expected) {
      return "layer " + std::to_string(number) + " counts wrong: " + what + " is " + std::to_string(said) + ", not " +
             std::to_string(expected);
    };
    auto const differs = [](std::uint64_t said, std::uint64_t expected) {
      return said != open_stack::account::unsaid && said != expected;
    };
    if (a.wrong != nullptr) return "layer " + std::to_string(number) + " counts wrong: " + a.wrong;
    is_known &= !a.sees_some && (first || !has_failed);
    if (!is_known) continue;
    std::uint64_t const kept = a.keeps ? known.lost : 0, kept_count = a.keeps ? known.lost_count : 0;
    if (differs(a.requested, known.requested + kept))
      return complaint("what is requested", a.requested, known.requested + kept);
    bool const is_exact = !a.keeps && (first || (a.takes_as_asked && !is_padded));
    if (a.allocated < known.rounded) return complaint("what is allocated", a.allocated, known.rounded);
    if (is_exact && differs(a.allocated, known.charged))
      return complaint("what is charged", a.allocated, known.charged);
    if (differs(a.live, known.live + kept_count)) return complaint("what is live", a.live, known.live + kept_count);
    if (first && !(is_thinned && known.has_captured) && differs(a.served, known.served))
      return complaint("what was served", a.served, known.served);
    if (first && !is_thinned && differs(a.failed, known.failed))
      return complaint("what failed", a.failed, known.failed);
    is_thinned |= a.requested == open_stack::account::unsaid;  // a budget refuses without asking further down
    if (!a.keeps) continue;
    // From here on requests are segments.
    is_padded |= a.pads_segments;
    known = {.requested = a.held, .rounded = a.held, .charged = a.held, .live = a.segments};
    first = false;
  }
  return {};
}

}  // namespace random_program
