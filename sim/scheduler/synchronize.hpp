#pragma once
// The host waits for a stream or a device and knows of it afterwards, internal: the check of order and the thread
// sanitizer are told.

#include "model/runtime.hpp"

namespace weir::sim::detail {

void synchronize(runtime& r, held_lock& held, timeline const& t);
void synchronize_device(runtime& r, held_lock& held, int device);

}  // namespace weir::sim::detail
