// The benches of CUB's allocator.

#include "cub.hpp"

#include "../suite/suite.hpp"
#include "peers.hpp"

namespace bench {

void add_cub() { add_peer<cub_caching>(); }
}  // namespace bench
