// The benches of weir's stacks.

#include "peers/weir.hpp"

#include "peers/peers.hpp"
#include "suite.hpp"

namespace bench {

void add_weir() {
  add_peer<weir_pool>();
  add_peer<weir_pool_plain_streams>();
  add_peer<weir_arena>();
  add_peer<weir_binning>();
  add_pairs<weir_fixed_size>();
  add_pairs<weir_limit>();
  add_pairs<weir_statistics>();
  add_pairs<weir_both>();
  add_pairs<weir_logging>();
  add_pairs<weir_five_layers>();
}

}  // namespace bench
