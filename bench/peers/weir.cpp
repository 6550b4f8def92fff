// The benches of weir's stacks.

#include "weir.hpp"

#include "../suite/suite.hpp"
#include "peers.hpp"

#include <weir/bridges/stl.hpp>
#include <weir/sources/managed.hpp>

namespace bench {
namespace {

auto reachable() { return weir::managed{} | weir::pool{}; }

/// Its vectors are as a user's would be, on memory that the host can reach.
class weir_allocator {
 public:
  static constexpr char const* name = "weir pool, by weir::allocator";
  auto allocator() { return weir::allocator_for<untouched>(memory_); }

 private:
  weir::made_by<decltype(reachable())> memory_ = weir::make(reachable());
};

}  // namespace

void add_weir() {
  add_peer<weir_pool>();
  add_peer<weir_pool_plain_streams>();
  add_peer<weir_arena>();
  add_peer<weir_binning>();
  add_pairs<weir_fixed_size>();
  add_pairs<weir_limit>();
  add_pairs<weir_statistics>();
  add_pairs<weir_counted_by_tag>();
  add_pairs<weir_trace>();
  add_pairs<weir_seen>();
  add_pairs<weir_tracking>();
  add_pairs<weir_tracking_with_stacks>();
  add_pairs<weir_both>();
  add_pairs<weir_logging>();
  add_pairs<weir_five_layers>();
  add_vectors<weir_allocator>();
}

}  // namespace bench
