// The benches of CUB's allocator.

#include "peers/cub.hpp"

#include "peers/peers.hpp"
#include "suite.hpp"

namespace bench {

void add_cub() { add_peer<cub_caching>(); }
}  // namespace bench
