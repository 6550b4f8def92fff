#include "model/call.hpp"

namespace weir::sim::detail {

std::atomic<std::uint64_t> call_counters[call_count];
std::atomic<cudaError_t> sticky_code{cudaSuccess};

}  // namespace weir::sim::detail
