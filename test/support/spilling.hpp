#pragma once
// Stacks that spill, on the simulated runtime, which checks the order of both memories.

#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/spill.hpp>
#include <weir/adaptors/spillable.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/pinned.hpp>
#include <weir/testing/checked.hpp>

#include <array>
#include <cstddef>

namespace weir::test {

inline constexpr std::array every_sim_mode{sim::mode::immediate, sim::mode::lazy, sim::mode::random, sim::mode::pct,
                                           sim::mode::threads};

/// Where contents go.
inline auto host_stack(std::size_t max_bytes = 0) { return pinned{} | pool{.max_bytes = max_bytes} | checked{"host"}; }

/// A pool of `bytes` that spills to `host`. `checked` stands below `spill`, so that it sees what that does too.
template <class Host>
auto spilling_stack(Host& host, std::size_t bytes) {
  return device{} | pool{.initial_bytes = bytes, .max_bytes = bytes} | checked{"device"} | spill{.to = share(host)};
}

/// Queues a write of all elements, by a pin that ends at once.
template <class T>
void fill_pinned(spillable<T>& x, stream_ref stream, unsigned char value) {
  auto const p = x.pin(stream);
  REQUIRE(cudaMemsetAsync(p.data(), value, p.size() * sizeof(T), stream.get()) == cudaSuccess);
}

}  // namespace weir::test
