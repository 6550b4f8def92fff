#pragma once
// The program's own memory that it made pinned, internal.

#include "model/runtime.hpp"

namespace weir::sim::detail {

/// Ends the registration of all ranges that were registered while `device` was current.
void forget_registrations(runtime& r, int device);

}  // namespace weir::sim::detail
