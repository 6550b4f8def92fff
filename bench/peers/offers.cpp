// What the replay can run on, but for texts, and RMM, which offer themselves.

#include "cub.hpp"
#include "peers.hpp"
#include "sources.hpp"
#include "thrust.hpp"
#include "weir.hpp"

namespace bench {

void offer_weir(subject_list& list) {
  persistent_streams::all();  // made now, so that no stack counts the calls
  offer<weir_pool>(list, "weir-pool");
  offer<weir_pool_growable>(list, "weir-pool-growable");
  offer<weir_pool_waiting>(list, "weir-pool-waiting");
  offer<weir_pool_plain_streams>(list, "weir-pool-plain-streams");
  offer<weir_arena>(list, "weir-arena");
  offer<weir_binning>(list, "weir-pool-binning");
  offer<weir_both>(list, "weir-pool-limit-statistics");
}

void offer_others(subject_list& list) {
  offer<cub_caching>(list, "cub-caching");
  offer<thrust_pool>(list, "thrust-pool");
  offer<bare_async>(list, "async");
  offer<bare_device>(list, "device");
}

}  // namespace bench
