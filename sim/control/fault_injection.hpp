#pragma once
// Fault injection, internal: the calls that are to fail, and what calls cost.

#include "model/call.hpp"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weir::sim::detail {

/// Whether any call may have to fail or costs time. While none does, this is all that a call looks at.
extern std::atomic<bool> faults_are_set;
/// Counts the call and its cost. Returns success, or the code that the call must return.
cudaError_t inject_fault(call which);

/// What the calls since `reset_counters` cost together.
extern std::atomic<std::uint64_t> simulated_nanoseconds;
/// Forgets what calls cost.
void forget_latencies();

/// The number of the call of that name. Throws `std::invalid_argument` if there is none; `who` is the function asked.
std::size_t index_of(char const* who, char const* name);

}  // namespace weir::sim::detail
