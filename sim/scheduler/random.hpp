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

/// Runs some of the queued work that may run; host functions only if `theirs` says so.
void let_time_pass(runtime& r, held_lock& held, host_functions theirs);
/// The same at the beginning of a call; host functions run only in the calls that allow it
/// (`calls_with_host_functions`).
void let_time_pass(runtime& r, held_lock& held, call which);

/// The calling thread asked about an event that is not reached. If it does so again and again it is waiting, and host
/// functions run as for any thread that waits.
void let_asker_wait(runtime& r, held_lock& held);

/// In pct mode: runs work by rank until all of `wanted` is reached. False if nothing that may run is left before that,
/// since a starved stream is in the way.
bool run_by_rank(runtime& r, held_lock& held, std::vector<point> const& wanted);

}  // namespace weir::sim::detail
