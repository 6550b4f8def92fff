// The benches of Thrust's pool.

#include "peers/thrust.hpp"

#include "peers/peers.hpp"
#include "suite.hpp"

namespace bench {

void add_thrust() { add_peer<thrust_pool>(); }
}  // namespace bench
