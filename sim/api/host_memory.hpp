#pragma once
// The program's own memory that it made pinned, internal.

#include "model/runtime.hpp"

namespace weir::sim::detail {

/// The ranges that were registered while `device` was current are the program's own again.
void forget_registrations(runtime& r, int device);

}  // namespace weir::sim::detail
