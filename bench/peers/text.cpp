// What the replay can run on: a stack that is written as text.

#include "peers.hpp"
#include "streams.hpp"

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

}  // namespace bench
