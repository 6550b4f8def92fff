#pragma once
// Fault injection, internal: the calls that are to fail, and what calls cost.

#include "model/call.hpp"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weir::sim::detail {

/// Whether a call may have to fail or costs time; while none does, a call pays for one look at this.
extern std::atomic<bool> faults_are_set;
/// What is to become of this call: success, or the code that it must return. Counts it, and its cost.
cudaError_t inject_fault(call which);

/// What the calls since `reset_counters` cost together.
extern std::atomic<std::uint64_t> simulated_nanoseconds;
/// Forgets what calls cost.
void forget_latencies();

/// The number of the call of that name; throws `std::invalid_argument` that says who asked if there is none.
std::size_t index_of(char const* who, char const* name);

}  // namespace weir::sim::detail
