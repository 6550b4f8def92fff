// What the replay can run on, but for RMM, which offers itself.

#include "cub.hpp"
#include "peers.hpp"
#include "sources.hpp"
#include "thrust.hpp"
#include "weir.hpp"

#include <weir/tools/parse.hpp>

#include <cstddef>
#include <memory>
#include <string>

namespace bench {
namespace {

/// Memory of any kind: nothing here touches it.
using any_memory = weir::basic_any_resource<false, false>;

class text_subject final : public subject {
 public:
  explicit text_subject(std::string const& text) : memory_(weir::parse<any_memory>(text)) {}
  void* allocate(std::size_t stream, std::size_t bytes) override { return memory_.allocate(streams_[stream], bytes); }
  void deallocate(std::size_t stream, void* p, std::size_t bytes) override {
    memory_.deallocate(streams_[stream], p, bytes);
  }

 private:
  persistent_streams streams_;
  any_memory memory_;
};

}  // namespace

void offer_text(subject_list& list, std::string const& text) {
  text_subject const made(text);  // what is wrong with it shows now
  list.push_back({text, [text] { return std::make_unique<text_subject>(text); }});
}

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
