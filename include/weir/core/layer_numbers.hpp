#pragma once
// What one layer of a stack knows about itself, as numbers.

#include <weir/core/limit_ref.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/error.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace weir {

/// What one layer knows about itself at one moment; what it does not know is empty. Bytes, but for the counts.
struct layer_numbers {
  std::string layer = {};  ///< what it is: `pool`
  std::string name = {};   ///< whose it is, where its options say (`limit{.name = "search"}`); else empty
  unsigned depth = 0;  ///< 1 and more: of a bin, or of the second stack, of the last layer before it that is less deep
  std::optional<int> device = {};  ///< whose memory it hands out

  std::optional<std::size_t> requested = {};  ///< as callers asked
  std::optional<std::size_t> requested_peak = {};
  std::optional<std::uint64_t> requested_total = {};  ///< all that was ever asked for and served
  std::optional<std::size_t> allocated = {};          ///< what serves it
  std::optional<std::size_t> allocated_peak = {};
  std::optional<std::uint64_t> allocated_total = {};
  std::optional<std::size_t> reserved = {};  ///< held from the layer below, or from CUDA
  std::optional<std::size_t> reserved_peak = {};
  std::optional<std::size_t> parked = {};        ///< without memory until `unpark`, in place of `reserved`, if some is
  std::optional<std::size_t> pending = {};       ///< of `reserved`: freed, but not known to be done
  std::optional<std::size_t> free = {};          ///< of `reserved` or `parked`: for anyone to take
  std::optional<std::size_t> largest_free = {};  ///< the largest piece of `free` and `pending`, if it was looked for
  std::optional<std::size_t> captured = {};      ///< of `reserved`, or of `charged`: kept for graphs
  std::optional<std::size_t> charged = {};       ///< against a budget
  std::optional<std::size_t> charged_peak = {};
  std::optional<std::size_t> max_bytes = {};  ///< the most that may be charged, or held; empty: no limit
  std::optional<std::uint64_t> live = {};     ///< how many allocations
  std::optional<std::uint64_t> live_peak = {};
  std::optional<std::uint64_t> live_total = {};  ///< how many there ever were
  std::optional<std::uint64_t> refused = {};     ///< how many requests this layer refused
  std::optional<std::uint64_t> failed = {};      ///< how many it saw fail, here or below

  friend bool operator==(layer_numbers const&, layer_numbers const&) = default;
};

namespace detail {

/// How much trouble to take over a layer's numbers: what it knows, or also what it has to search for (`largest_free`).
enum class look { quick, close };

/// What a layer shows its tags to.
class tag_visitor {
 public:
  /// `of_tag.name` is the tag as it was given; empty for memory without one.
  virtual void see(layer_numbers const& of_tag) = 0;

 protected:
  ~tag_visitor() = default;
};

/// What a layer is called: what it says, else the first word of its line in a report.
template <class Layer>
std::string layer_name(Layer const& layer) {
  if constexpr (requires { std::string(Layer::layer_name); }) {
    return Layer::layer_name;
  } else {
    report own;
    if constexpr (requires { layer.describe_layer(own); })
      layer.describe_layer(own);
    else if constexpr (!requires { layer.upstream(); })
      weir::describe(layer, own);
    std::string const name = own.chain().substr(0, own.chain().find('('));
    return name.empty() ? "unnamed" : name;
  }
}

template <class Layer>
std::string given_name(Layer const& layer) {
  if constexpr (requires { std::string(layer.name()); })
    return layer.name();
  else
    return {};
}

/// Copies what `from`, a layer's `numbers()`, has of each kind; a level has `.current` and `.peak`, and may have
/// `.total`.
template <class Numbers>
void read_numbers(Numbers const& from, layer_numbers& to) {
  auto const read = [](auto const& level, auto& now, auto& peak) {
    now = static_cast<std::size_t>(level.current);
    peak = static_cast<std::size_t>(level.peak);
  };
  auto const read_total = [](auto const& level, auto& total) {
    if constexpr (requires { level.total; }) total = static_cast<std::uint64_t>(level.total);
  };
  if constexpr (requires { from.requested.peak; }) {
    read(from.requested, to.requested, to.requested_peak);
    read_total(from.requested, to.requested_total);
  }
  if constexpr (requires { from.allocated.peak; }) {
    read(from.allocated, to.allocated, to.allocated_peak);
    read_total(from.allocated, to.allocated_total);
  }
  if constexpr (requires { from.allocations.peak; }) {
    to.live_peak = static_cast<std::uint64_t>(from.allocations.peak);
    read_total(from.allocations, to.live_total);
  } else if constexpr (requires { std::uint64_t{from.allocations}; }) {
    to.live_total = from.allocations;
  }
  if constexpr (requires { from.requested_total; })
    to.requested_total = static_cast<std::uint64_t>(from.requested_total);
  if constexpr (requires { from.reserved.peak; }) read(from.reserved, to.reserved, to.reserved_peak);
  if constexpr (requires { std::size_t{from.parked}; })
    if (from.parked != 0) to.parked = from.parked;
  if constexpr (requires { from.pending; }) to.pending = from.pending;
  if constexpr (requires { from.free; }) to.free = from.free;
  if constexpr (requires { from.captured; }) to.captured = from.captured;
  if constexpr (requires { from.live(); }) to.live = static_cast<std::uint64_t>(from.live());
  if constexpr (requires { from.out_of_memory; }) to.refused = from.out_of_memory;
  if constexpr (requires { from.failures; }) to.failed = static_cast<std::uint64_t>(from.failures);
}

template <class Layer>
layer_numbers numbers_of_layer(Layer const& layer, look how = look::quick) {
  layer_numbers out{.layer = detail::layer_name(layer), .name = detail::given_name(layer)};
  if constexpr (requires { layer.numbers(); }) try {
      detail::read_numbers(layer.numbers(), out);
    } catch (cuda_error const&) {  // a source that asks CUDA, which does not answer: nothing is known
    }
  else if constexpr (requires { std::size_t{layer.reserved()}; })
    out.reserved = layer.reserved();
  if constexpr (requires { std::size_t{layer.max_bytes()}; })
    if (layer.max_bytes() != 0) out.max_bytes = layer.max_bytes();
  if constexpr (budget<Layer>) {
    out.charged = layer.used();
    out.charged_peak = layer.peak();
    out.refused = layer.refused();
    if constexpr (requires { std::size_t{layer.captured()}; }) out.captured = layer.captured();
  }
  if constexpr (requires { std::size_t{layer.largest_free()}; })
    if (how == look::close && !out.parked) out.largest_free = layer.largest_free();
  if (int const device = weir::device_of(layer); device >= 0) out.device = device;
  return out;
}

/// Shows the numbers of each tag that a layer counts by, if it does.
template <class Layer>
void visit_tags(Layer const& layer, tag_visitor& visitor) {
  if constexpr (requires { layer.numbers_by_tag(); }) {
    for (auto const& each : layer.numbers_by_tag()) {
      layer_numbers of_tag{.layer = "tag", .name = std::string(each.tag.text())};
      detail::read_numbers(each.numbers, of_tag);
      visitor.see(of_tag);
    }
  }
}

/// Lets a layer's peaks start again, if it has some.
template <class Layer>
void reset_peaks_of_layer(Layer& layer) noexcept {
  if constexpr (requires { layer.reset_peaks(); }) layer.reset_peaks();
}

/// Bytes that a layer holds from the one below; 0 where it does not say.
template <class Layer>
std::size_t reserved_by_layer(Layer const& layer) noexcept try {
  if constexpr (requires { std::size_t{layer.reserved()}; })
    return layer.reserved();
  else if constexpr (requires { std::size_t{layer.numbers().reserved.current}; })
    return layer.numbers().reserved.current;
  else
    return 0;
} catch (cuda_error const&) {
  return 0;
}

}  // namespace detail

}  // namespace weir
