#pragma once
// Sorts requests by size into bins, each served by a resource of its own; what is larger goes straight to the upstream.

#include <weir/adaptors/detail/adaptor_base.hpp>
#include <weir/adaptors/detail/bin.hpp>
#include <weir/core/any_ref.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/error.hpp>
#include <weir/core/layer_ref.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/cuda/device.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace weir {

template <resource Upstream>
class binning_resource;

/// Routes each request to the bin for its size, in constant time, and what exceeds the largest bin to the upstream.
/// Bins hold nothing until they are used. When not to use it: for a few sizes that `pool` serves as well; memory that
/// one bin holds is no use to another until something runs out.
struct binning {
  /// From small to large, 1 to 64 of them.
  std::vector<bin> bins;

  template <resource Upstream>
  using on = binning_resource<Upstream>;

  static constexpr std::size_t most_bins = 64;

  /// A `fixed_size` bin for each power of two from 2^`least` to 2^`most` bytes.
  template <class Bin = bin>  // a template, so that only those pay for compiling it who use it
  static binning powers_of_two(unsigned least, unsigned most) {
    if (least > most || most > 39)
      throw std::invalid_argument("weir: binning: powers of two from 2^" + std::to_string(least) + " to 2^" +
                                  std::to_string(most) + " were asked for; they must rise, and end at 2^39 at most");
    binning made;
    for (unsigned exponent = least; exponent <= most; ++exponent) made.bins.push_back(Bin(std::size_t{1} << exponent));
    return made;
  }

  /// What is wrong with these options; empty if nothing is.
  template <class = void>  // so that only those pay for compiling it who use it
  std::string problem() const {
    if (bins.empty() || bins.size() > most_bins)
      return "binning: there are " + std::to_string(bins.size()) + " bins; there must be 1 to " +
             std::to_string(most_bins);
    for (std::size_t i = 0; i < bins.size(); ++i) {
      std::string const which =
          "binning: bins[" + std::to_string(i) + "] is for " + std::to_string(bins[i].bytes()) + " B";
      if (bins[i].bytes() == 0) return which + "; it must be for at least 1 B";
      if (i != 0 && bins[i].bytes() <= bins[i - 1].bytes())
        return which + "; it must be larger than the one before, " + std::to_string(bins[i - 1].bytes()) + " B";
      if (std::string const wrong = bins[i].maker_->problem(); !wrong.empty()) return which + ": " + wrong;
    }
    return {};
  }
  template <class = void>
  bool valid() const {
    return problem().empty();
  }
};

/// Made by `upstream | binning{...}`. Thread-safe as its bins and its upstream are; it has no lock of its own.
template <resource Upstream>
class binning_resource : public detail::adaptor_base<binning_resource<Upstream>, Upstream> {
  using base = detail::adaptor_base<binning_resource, Upstream>;

 public:
  static constexpr bool host_ordered = true;
  static constexpr char const* layer_name = "binning";

  /// Makes the bins' resources, and throws what they throw; `std::invalid_argument` for a bin of another device than
  /// the upstream's, or whose memory is out of reach of whoever reaches the upstream's.
  template <recipe F>
  binning_resource(F const& upstream, binning const& options)
      : base(upstream), count_(detail::require_valid(options).bins.size()) {
    basic_any_ref<base::device_accessible, base::host_accessible> const shared(upstream_);
    int const device = device_of(upstream_);
    detail::device_switch const on_device(device);  // for bins that are elsewhere, and name no device
    for (std::size_t i = 0; i < count_; ++i) {
      bins_[i] = options.bins[i].maker_->make_on(shared);
      bytes_[i] = options.bins[i].bytes();
      require_device(device, i);
    }
    bytes_[count_] = ~std::size_t{0};
    std::size_t first = 0;
    for (std::size_t c = 0; c < classes; ++c) {
      while (bytes_[first] <= least_of(c)) ++first;
      first_of_class_[c] = static_cast<std::uint8_t>(first);
    }
  }

  /// Throws what the bin or the upstream throws. Before memory counts as exhausted, all bins give back what is idle,
  /// and, should that not do, what is idle after the host has waited for their work.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    for (int tried = 0;;) try {
        std::size_t const i = bin_of(bytes);
        if (i == count_) return this->ask(stream, bytes, alignment);
        if (void* const p = bins_[i]->allocate(stream, bytes, alignment); p != nullptr) [[likely]]
          return p;
        this->refuse_null({bytes, taken(bytes, alignment), stream, weir::device_of(upstream_)});
      } catch (out_of_memory& failure) {
        if (make_room(tried)) continue;
        failure.passed_through(*this);
        throw;
      } catch (std::bad_alloc const&) {
        if (!make_room(tried)) throw;
      }
  }

  /// The size says which bin it came from: a wrong one is reported by the bin or the upstream it leads to.
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr) return;
    std::size_t const i = bin_of(bytes);
    if (i == count_) return share(upstream_).deallocate(stream, p, bytes, alignment);
    bins_[i]->deallocate(stream, p, bytes, alignment);
  }
  /// See `weir::deallocate_after`.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr) return;
    std::size_t const i = bin_of(bytes);
    if (i == count_) return weir::deallocate_after(upstream_, stream, p, bytes, others, alignment);
    bins_[i]->deallocate_after(stream, p, bytes, others, alignment);
  }

  /// See `weir::find_block`. What bins do not know is the upstream's.
  live_block find_block(void const* p) noexcept {
    live_block found;
    for (std::size_t i = 0; i < count_ && !found.inside; ++i)
      found = detail::find_block(*bins_[i], p, above_upstream());
    return found;
  }

  /// Gives back what is idle in bins that can (`pool`, `fixed_size` ...), large bins first, until they hold at most
  /// `keep` bytes, then lets the layers below do the same (`weir::trim`); returns how many bytes the bins gave back.
  /// A bin that is a handle to another stack is left alone: what that holds is not this stack's. Does not wait; call
  /// `synchronize` first to give back all that can be.
  std::size_t trim(std::size_t keep = 0) noexcept {
    std::size_t const released = trim_layer(keep);
    weir::trim(upstream_, keep);
    return released;
  }
  /// The same without the layers below, which keep what they get.
  std::size_t trim_layer(std::size_t keep = 0) noexcept {
    std::size_t released = 0, held = reserved();
    for (std::size_t i = count_; i-- > 0;) {
      if (keep != 0 && held <= keep) break;
      std::size_t const own = reserved_by(*bins_[i]), excess = held - detail::lesser(held, keep);
      std::size_t const gone = detail::trim_layers(*bins_[i], own - detail::lesser(own, excess), own_layers);
      released += gone;
      held -= detail::lesser(held, gone);
    }
    return released;
  }
  /// Lets the host wait for the work on freed blocks, in bins that can.
  void synchronize() noexcept {
    for (std::size_t i = 0; i < count_; ++i) detail::synchronize_layers(*bins_[i], own_layers);
  }

  /// As `pool_resource::release_captured`, in bins that can, handles too; the upstream is asked by itself.
  std::size_t release_captured(std::uint64_t capture = 0) noexcept {
    std::size_t released = 0;
    for (std::size_t i = 0; i < count_; ++i)
      released += detail::release_captured_layers(*bins_[i], capture, above_upstream());
    return released;
  }

  /// What the bin for this size takes, or the upstream.
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept {
    std::size_t const i = bin_of(bytes);
    return i == count_ ? weir::taken(upstream_, bytes, alignment) : bins_[i]->taken(bytes, alignment);
  }
  bool holds_captured(std::uint64_t capture) const noexcept {
    for (std::size_t i = 0; i < count_; ++i)
      if (bins_[i]->holds_captured(capture)) return true;
    return weir::holds_captured(upstream_, capture);
  }

  /// Bytes that the bins hold, as far as they say (`pool`, `fixed_size` ... do).
  std::size_t reserved() const noexcept {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < count_; ++i) sum += reserved_by(*bins_[i]);
    return sum;
  }
  /// Shows the bins' layers, from the first bin to the last, each from the top down to the upstream that all share.
  void visit_parts(layer_visitor& visitor) const {
    for (std::size_t i = 0; i < count_; ++i) {
      visitor.begin_part();
      bins_[i]->visit_layers(visitor);
    }
  }
  std::size_t bin_count() const noexcept { return count_; }
  /// The largest request that a bin serves; `i` below `bin_count()`.
  std::size_t bin_bytes(std::size_t i) const noexcept { return bytes_[i]; }
  /// Which bin serves a request; `bin_count()` stands for the upstream.
  std::size_t bin_of(std::size_t bytes) const noexcept {
    std::size_t i = first_of_class_[class_of(bytes)];
    while (bytes > bytes_[i]) ++i;  // at most a step, unless bins lie within an eighth of each other
    return i;
  }

  void describe_layer(report& out) const {
    out.below("binning(" + std::to_string(count_) + " bins)", std::to_string(count_) + " bins for up to " +
                                                                  format_bytes(bytes_[count_ - 1]) + " hold " +
                                                                  format_bytes(reserved()));
  }

 private:
  using base::upstream_;

  void require_device(int device, std::size_t i) const {
    int const other = bins_[i]->device();
    if (device >= 0 && other >= 0 && device != other)
      throw std::invalid_argument("weir: binning: the upstream is for device " + std::to_string(device) +
                                  ", the bin for " + std::to_string(bytes_[i]) + " B for device " +
                                  std::to_string(other) +
                                  "; make both for one device, by the option `device` of their sources");
  }

  static constexpr auto own_layers = layer_visitor::extent::own;
  /// All that a bin stands on but for the upstream that all share.
  layer_visitor::extent above_upstream() noexcept {
    basic_any_ref<base::device_accessible, base::host_accessible> const shared(upstream_);
    return layer_visitor::extent::above(shared.referred());
  }
  static std::size_t reserved_by(detail::bin_resource& bin) noexcept {
    return detail::reserved_by_layers(bin, own_layers);
  }

  // Sizes above 8 B fall into 8 classes for each power of two, so that one byte finds the first bin to look at.
  static constexpr std::size_t classes = std::size_t{62} * 8;
  static std::size_t class_of(std::size_t bytes) noexcept {
    std::size_t const below = bytes - (bytes != 0);
    if (below < 8) return below;
    auto const shift = static_cast<unsigned>(std::bit_width(below)) - 4;
    return shift * std::size_t{8} + (below >> shift);
  }
  /// The largest size that falls below class `c`.
  static std::size_t least_of(std::size_t c) noexcept { return c < 8 ? c : (8 + c % 8) << (c / 8 - 1); }

  /// True if another try may succeed: something was given back. First without a wait, once more after one.
  bool make_room(int& tried) noexcept {
    if (detail::captured_memory_only::is_set()) return false;  // what bins give back is no capture's
    if (tried == 0) {
      tried = 1;
      if (trim_layer() != 0) return true;
    }
    if (tried != 1) return false;
    tried = 2;
    synchronize();
    return trim_layer() != 0;
  }

  std::size_t count_;
  std::array<std::size_t, binning::most_bins + 1> bytes_{};
  std::array<std::uint8_t, classes> first_of_class_{};
  std::array<detail::shared_owner<detail::bin_resource>, binning::most_bins> bins_;
};

}  // namespace weir
