// The benches of the bare sources.

#include "sources.hpp"

#include "../suite/suite.hpp"
#include "peers.hpp"

namespace bench {

void add_sources() {
  add_peer<bare_async>();
  add_peer<bare_device>();
}

}  // namespace bench
