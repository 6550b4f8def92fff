// CUDA's own allocators through weir's bare sources, and a peer that does nothing: what the loops themselves cost.

#include "peers/peers.hpp"
#include "suite.hpp"

#include <weir/core/recipe.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/device.hpp>

namespace bench {
namespace {

template <class Source>
class bare {
 public:
  static constexpr bool streams = false, threads = false;
  static constexpr std::size_t most_live = 1000;
  void* allocate(std::size_t, std::size_t bytes) { return memory_.allocate(weir::stream_ref(), bytes); }
  void deallocate(std::size_t, void* p, std::size_t bytes) { memory_.deallocate(weir::stream_ref(), p, bytes); }

 private:
  weir::made_by<Source> memory_ = weir::make(Source{});
};
struct bare_async : bare<weir::async> {
  static constexpr char const* name = "bare async (cudaMallocAsync)";
};
struct bare_device : bare<weir::device> {
  static constexpr char const* name = "bare device (cudaMalloc)";
};

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
void offer_sources(subject_list& list) {
  offer<bare_async>(list, "async");
  offer<bare_device>(list, "device");
}

}  // namespace bench
