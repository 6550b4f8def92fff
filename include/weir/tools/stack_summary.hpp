#pragma once
// What a summary of a stack is made of, and the quantities that it shows.

#include <weir/core/layer_numbers.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weir {

/// What one layer knows.
struct layer_summary {
  layer_numbers numbers;            ///< with `largest_free`
  std::vector<layer_numbers> tags;  ///< of each tag, whose name is `name`, what holds most first
  /// Of each stream, whose handle is `name`: what was allocated on it (`tracking` knows), what is pending on it (pools
  /// know). By handle.
  std::vector<layer_numbers> streams = {};
};

/// What all layers of a stack know: each at one moment, but not all at the same.
struct stack_summary {
  std::string name;
  int device = -1;                    ///< the stack's (`device_of`); -1: of no device
  std::vector<layer_summary> layers;  ///< as `weir::numbers` lists them
};

/// The share of a layer's free and pending memory that is outside its largest piece, 0 to 1; empty where the layer does
/// not say, or has no such memory. Near 1 with much memory free, large requests fail although there is room for them.
/// Says nothing of `fixed_size`, where each piece is as good as any other.
inline std::optional<double> fragmentation(layer_numbers const& layer) noexcept {
  if (!layer.free || !layer.largest_free) return std::nullopt;
  std::size_t const idle = *layer.free + layer.pending.value_or(0);
  if (idle == 0) return std::nullopt;
  std::size_t const largest = *layer.largest_free < idle ? *layer.largest_free : idle;  // seen a moment later
  return static_cast<double>(idle - largest) / static_cast<double>(idle);
}

namespace detail {

/// Something that layers count: now, at most, and in all.
struct quantity {
  using getter = std::optional<std::uint64_t> (*)(layer_numbers const&);

  char const* title;  // in the table
  char const* key;    // in JSON, and part of a metric's name
  char const* help;
  bool is_bytes;
  getter now, peak, total;
};
template <auto Member>
std::optional<std::uint64_t> number_of(layer_numbers const& layer) {
  return layer.*Member;
}
inline std::optional<std::uint64_t> no_number(layer_numbers const&) { return std::nullopt; }

inline constexpr quantity quantities[] = {
    {"Requested", "requested", "as callers asked", true, number_of<&layer_numbers::requested>,
     number_of<&layer_numbers::requested_peak>, number_of<&layer_numbers::requested_total>},
    {"Allocated", "allocated", "that serve what was requested", true, number_of<&layer_numbers::allocated>,
     number_of<&layer_numbers::allocated_peak>, number_of<&layer_numbers::allocated_total>},
    {"Reserved", "reserved", "held from the layer below", true, number_of<&layer_numbers::reserved>,
     number_of<&layer_numbers::reserved_peak>, no_number},
    {"Parked", "parked", "without memory until unpark", true, number_of<&layer_numbers::parked>, no_number, no_number},
    {"Pending", "pending", "freed, but not known to be done", true, number_of<&layer_numbers::pending>, no_number,
     no_number},
    {"Free", "free", "free for anyone", true, number_of<&layer_numbers::free>, no_number, no_number},
    {"Largest free", "largest_free", "in the largest free piece", true, number_of<&layer_numbers::largest_free>,
     no_number, no_number},
    {"Captured", "captured", "kept for graphs", true, number_of<&layer_numbers::captured>, no_number, no_number},
    {"Charged", "charged", "charged to the limit", true, number_of<&layer_numbers::charged>,
     number_of<&layer_numbers::charged_peak>, no_number},
    {"Limit", "max", "that may be held or charged", true, number_of<&layer_numbers::max_bytes>, no_number, no_number},
    {"Allocations", "allocations", "allocations", false, number_of<&layer_numbers::live>,
     number_of<&layer_numbers::live_peak>, number_of<&layer_numbers::live_total>},
    {"Refused", "refused", "requests that this layer refused", false, no_number, no_number,
     number_of<&layer_numbers::refused>},
    {"Failed", "failed", "requests that failed here or below", false, no_number, no_number,
     number_of<&layer_numbers::failed>},
};

}  // namespace detail
}  // namespace weir
