#pragma once
// The simulated runtime as a test begins: fresh, and fresh again after it.

#include <weir/sim/sim.hpp>

namespace weir::test {

/// Queued work runs at once, or as a mode says.
struct fresh_world {
  fresh_world() { sim::reset(); }
  explicit fresh_world(sim::mode mode) : fresh_world() { sim::set_mode(mode); }
  ~fresh_world() { sim::reset(); }
  fresh_world(fresh_world const&) = delete;
  fresh_world& operator=(fresh_world const&) = delete;
};

/// Queued work runs when somebody waits for it, and then only what that needs.
struct lazy_world : fresh_world {
  lazy_world() : fresh_world(sim::mode::lazy) {}
};

}  // namespace weir::test
