#pragma once
// The driver's functions by name, internal, for the driver's library.

#include <string_view>

namespace weir::sim::detail {

/// The newest form of a function up to that version of CUDA, for one of the two default streams; null if there is none.
/// Counts as no call.
void* driver_function_of(std::string_view name, unsigned version, bool per_thread);

}  // namespace weir::sim::detail
