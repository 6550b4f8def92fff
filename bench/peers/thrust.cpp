// The benches of Thrust's pool.

#include "thrust.hpp"

#include "../suite/suite.hpp"
#include "peers.hpp"

namespace bench {

void add_thrust() { add_peer<thrust_pool>(); }
}  // namespace bench
