#pragma once
// The numbers of all layers of a stack: as a table for people, as JSON, and for Prometheus.

#include <weir/core/layer_numbers.hpp>
#include <weir/core/numbers.hpp>
#include <weir/core/resource.hpp>
#include <weir/core/shown_events.hpp>
#include <weir/core/shown_memory.hpp>
#include <weir/tools/stack_summary.hpp>
#include <weir/tools/summary_json.hpp>
#include <weir/tools/summary_prometheus.hpp>
#include <weir/tools/summary_table.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weir {

/// What a summary is of.
struct summary_options {
  std::string name = {};   ///< whose stack it is, where a program has several
  bool by_tag = false;     ///< also the numbers of each tag, of layers that count by tag (`statistics`, `tracking`)
  bool by_stream = false;  ///< also those of each stream, of layers that know their blocks; copies what they know
};

namespace detail {

/// Keeps what a layer shows it.
class tag_collector final : public tag_visitor {
 public:
  explicit tag_collector(std::vector<layer_numbers>& into) noexcept : into_(into) {}
  void see(layer_numbers const& of_tag) override { into_.push_back(of_tag); }

 private:
  std::vector<layer_numbers>& into_;
};

/// Adds up what a layer shows of its blocks, stream by stream.
class stream_collector final : public memory_visitor {
 public:
  void see(shown_block const& piece) override {
    if (piece.state == memory_state::pending) add(of(piece.stream).pending, piece.bytes);
  }
  void see(shown_holder const& holder) override {
    layer_numbers& stream = of(holder.stream);
    add(stream.requested, holder.bytes);
    add(stream.live, 1);
  }
  std::vector<layer_numbers> take() const {
    std::vector<layer_numbers> all;
    for (auto const& [handle, numbers] : streams_) all.push_back(numbers);
    return all;
  }

 private:
  template <class Number>
  static void add(std::optional<Number>& sum, std::uint64_t more) {
    sum = static_cast<Number>(sum.value_or(0) + more);
  }
  layer_numbers& of(std::uint64_t stream) {
    auto const [found, is_new] = streams_.try_emplace(stream);
    if (is_new) found->second = {.layer = "stream", .name = detail::hex_text(stream)};
    return found->second;
  }

  std::map<std::uint64_t, layer_numbers> streams_;
};

}  // namespace detail

/// What all layers of a stack know, as numbers. `top` is a stack, or any handle to one: typed, erased or parsed.
/// Costs what the layers' `numbers()` and `largest_free()` cost: for a pool a short lock, under which it looks at the
/// largest blocks of each stream; some CUDA calls for `async`, none for other layers. Takes no memory of any stack.
/// Thread-safe. May throw `std::bad_alloc`. When not to use it: where a request waits; ask one layer for its
/// `numbers()`.
template <resource Top>
stack_summary summary_of(Top const& top, summary_options const& options = {}) {
  stack_summary all{.name = options.name, .device = weir::device_of(top), .layers = {}};
  detail::for_each_layer_and_part(top, [&](auto& layer, unsigned depth) {
    layer_summary one{.numbers = detail::numbers_of_layer(layer, detail::look::close), .tags = {}};
    one.numbers.depth = depth;
    detail::tag_collector tags(one.tags);
    if (options.by_tag) detail::visit_tags(layer, tags);
    detail::stream_collector streams;
    if (options.by_stream) detail::show_memory(layer, streams);
    one.streams = streams.take();
    all.layers.push_back(std::move(one));
  });
  return all;
}

/// A table of what all layers know (`summary_of`), for people: at most 79 columns wide, ending in a newline.
///
///     std::fputs(weir::summary(memory, {.name = "search", .by_tag = true}).c_str(), stderr);
template <resource Top>
std::string summary(Top const& top, summary_options const& options = {}) {
  return summary_table(summary_of(top, options));
}
/// The same as one JSON object, in one line.
template <resource Top>
std::string summary_json(Top const& top, summary_options const& options = {}) {
  return summary_json(summary_of(top, options));
}
/// The same in the text format of Prometheus. For several stacks, collect them first: each metric must stand once.
///
///     weir::summary_prometheus({weir::summary_of(a, {.name = "a"}), weir::summary_of(b, {.name = "b"})});
template <resource Top>
std::string summary_prometheus(Top const& top, summary_options const& options = {}) {
  return summary_prometheus(std::vector<stack_summary>{summary_of(top, options)});
}

}  // namespace weir
