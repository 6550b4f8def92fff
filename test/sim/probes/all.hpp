#pragma once
// All probes, by subject. A new subject is a header with a table and a line here.

#include "capture.hpp"
#include "devices.hpp"
#include "driver.hpp"
#include "errors.hpp"
#include "events.hpp"
#include "kernels.hpp"
#include "memory.hpp"
#include "pools.hpp"
#include "streams.hpp"
#include "virtual_memory.hpp"

#include <span>

namespace probes {

inline constexpr std::span<probe const> subjects[] = {
    error_probes,  event_probes,   stream_probes,         memory_probes, pool_probes,
    kernel_probes, capture_probes, virtual_memory_probes, driver_probes, device_probes,
};

/// Calls `visit(probe)` for each.
template <class Visit>
void for_each(Visit visit) {
  for (auto const& subject : subjects)
    for (probe const& p : subject) visit(p);
}

}  // namespace probes
