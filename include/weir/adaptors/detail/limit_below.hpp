#pragma once
// The budget that a budget stands on.

#include <weir/core/layer_numbers.hpp>
#include <weir/core/layer_ref.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/limit_ref.hpp>
#include <weir/core/printable.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace weir::detail {

/// Whether all requests arrive below a layer as they came: no pool or `scrub` makes others of them, and no `fallback`
/// or `binning` has some served elsewhere.
template <class Layer>
bool passes_all_on(Layer const& layer) noexcept {
  return !detail::keeps_memory(layer) && !detail::changes_requests(layer);
}

/// The layer below a limit that keeps its requests from the first limit there, by its name; empty where there is no
/// limit below, or no such layer above it.
template <class Upstream>
std::string layer_above_limit(Upstream& upstream) {
  std::string name;
  bool found = false;
  detail::for_each_layer(upstream, [&](auto& layer) {
    found = found || detail::limit_of(layer);
    if (found || !name.empty() || detail::passes_all_on(layer)) return;
    layer_numbers const one = detail::numbers_of_layer(layer);
    name = (one.name.empty() ? "" : printable(one.name) + ": ") + one.layer;
  });
  return found ? name : std::string();
}

/// Whether a layer that keeps what it takes, such as a pool, stands between here and the source.
template <class Upstream>
bool has_pool_below(Upstream& upstream) noexcept {
  bool found = false, keeps = false;
  detail::for_each_layer(upstream, [&](auto& layer) {
    found = found || keeps;  // the last one is the source, which may keep memory too
    keeps = detail::keeps_what_it_takes(layer);
  });
  return found;
}

/// The first limit below a layer, if all requests arrive there as the layer sends them. Refers to that limit, which
/// must outlive it.
class limit_below {
 public:
  template <class Upstream>
  explicit limit_below(Upstream& upstream) {
    bool arrive = true;
    detail::for_each_layer(upstream, [&](auto& layer) {
      if (!arrive || found_) return;
      found_ = detail::limit_of(layer);
      arrive = detail::passes_all_on(layer);
    });
  }

  explicit operator bool() const noexcept { return found_.has_value(); }
  /// What tells it from others; null where there is none.
  void const* layer() const noexcept { return found_ ? found_->layer_ : nullptr; }

  /// Charges it ahead, and those below it, for `above`, a name in errors. Throws `out_of_memory` where it has no room.
  void reserve(std::size_t bytes, std::size_t granularity, char const* above) const {
    if (found_ && bytes != 0) found_->functions_->reserve(found_->layer_, bytes, granularity, above);
  }
  /// Credits it, and those below it, with what was charged for a limit above.
  void release(std::size_t bytes) const noexcept {
    if (found_ && bytes != 0) found_->functions_->release_reserve(found_->layer_, bytes);
  }
  /// From now on, until `remove`, it asks `above` to credit what captures kept.
  void add(limit_above& above) const noexcept {
    if (found_) found_->functions_->add_above(found_->layer_, above);
  }
  void remove(limit_above& above) const noexcept {
    if (found_) found_->functions_->remove_above(found_->layer_, above);
  }
  /// It, and those below it, credit these bytes of a limit above when the capture's memory is released.
  void adopt_captured(std::uint64_t capture, std::size_t bytes) const noexcept {
    if (found_ && bytes != 0) found_->functions_->adopt_captured(found_->layer_, capture, bytes);
  }
  /// A limit above was served, in a capture, with what it has no account of: those who adopted it credit it.
  void use_captured_again(std::uint64_t capture, std::size_t bytes) const noexcept {
    if (found_ && bytes != 0) found_->functions_->use_captured_again(found_->layer_, capture, bytes);
  }

 private:
  std::optional<limit_ref> found_;
};

}  // namespace weir::detail
