#pragma once
// The random schedulers, internal: which queued work runs while the host is busy with something else, in random and pct
// mode.

#include "model/call.hpp"
#include "model/runtime.hpp"

#include <vector>

namespace weir::sim::detail {

inline bool time_passes(mode how) { return how == mode::random || how == mode::pct; }

/// Whether host functions may run while time passes.
enum class host_functions { wait, may_run };

/// Some of the queued work that may run does.
void let_time_pass(runtime& r, held_lock& held, host_functions theirs);
/// The same in a call; of host functions only what may run in such a call.
void let_time_pass(runtime& r, held_lock& held, call which);

/// The calling thread asked about an event that is still to come. If it does little else for a while it waits, though
/// in its own way, and host functions run as for any who waits.
void let_asker_wait(runtime& r, held_lock& held);

/// In pct mode: runs what comes first by rank until all of `wanted` is reached. False if nothing that may run is left
/// before that: a starved stream is in the way.
bool run_by_rank(runtime& r, held_lock& held, std::vector<point> const& wanted);

}  // namespace weir::sim::detail
