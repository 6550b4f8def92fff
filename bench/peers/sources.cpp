// The benches of the bare sources, and of a peer that does nothing: what the loops themselves cost.

#include "sources.hpp"

#include "../suite/suite.hpp"
#include "peers.hpp"

namespace bench {
namespace {

struct nothing {
  static constexpr char const* name = "(empty loop)";
  static constexpr bool streams = true, threads = false;
  static constexpr std::size_t most_live = 1'000'000;
  void* allocate(std::size_t, std::size_t bytes) {
    benchmark::DoNotOptimize(bytes);
    return this;
  }
  void deallocate(std::size_t, void* p, std::size_t) { benchmark::DoNotOptimize(p); }
};

}  // namespace

void add_sources() {
  add_peer<bare_async>();
  add_peer<bare_device>();
}
void add_nothing() { add_peer<nothing>(); }

}  // namespace bench
