#pragma once
// A budget: no more than so many bytes live at once.

#include <weir/core/bytes.hpp>
#include <weir/core/error.hpp>
#include <weir/core/escape.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/device.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace weir {

template <resource Upstream>
class limit_resource;

/// Refuses what would take its live bytes above a budget, exactly, whatever threads do. Give `max_bytes` or `fraction`.
/// When not to use it: to bound what a pool *below* it reserves from CUDA, use the pool's own `max_bytes`.
struct limit {
  std::size_t max_bytes = 0;  ///< the budget in bytes; 0: not given
  double fraction = 0;        ///< the budget as a part of the total memory of the stack's device, above 0 up to 1
  std::size_t granularity =
      256;                ///< each request is charged rounded up to a multiple of this (a power of two), in bytes
  std::string name = {};  ///< whose budget it is, for reports and errors: `search` makes it `search: limit`

  template <resource Upstream>
  using on = limit_resource<Upstream>;

  /// Empty if these options are valid, else what is wrong with them.
  std::string problem() const {
    std::string const given =
        "max_bytes is " + std::to_string(max_bytes) + " and fraction is " + std::to_string(fraction);
    if (!(fraction >= 0 && fraction <= 1)) return "limit: " + given + "; fraction must be above 0 and at most 1";
    if ((max_bytes == 0) == (fraction == 0)) return "limit: " + given + "; give exactly one of them a value above 0";
    if (granularity == 0 || (granularity & (granularity - 1)) != 0)
      return "limit: granularity is " + std::to_string(granularity) + "; it must be a power of two";
    if (max_bytes != 0 && max_bytes < granularity)
      return "limit: " + given + "; that is less than one granularity of " + std::to_string(granularity);
    return {};
  }
  bool valid() const { return problem().empty(); }
};

/// What `limit` stands as on an upstream. All functions may be called from any thread; the numbers cost a load each.
///
/// A request is charged before the upstream is asked and the charge is taken back if that throws; a request that does
/// not fit is never charged, so it cannot make another fail. A free is credited after the upstream has the memory back:
/// the upstream never holds more than the budget for this layer.
template <resource Upstream>
class limit_resource {
 public:
  static constexpr bool device_accessible = weir::device_accessible<Upstream>;
  static constexpr bool host_accessible = weir::host_accessible<Upstream>;
  static constexpr bool host_ordered = weir::host_ordered<Upstream>;
  static constexpr char const* layer_name = "limit";

  /// Throws `std::invalid_argument` for wrong options; with `fraction`, asks CUDA once how much memory the device
  /// of the upstream has (the current one where no layer names one) and may throw `cuda_error`.
  template <recipe F>
  limit_resource(F const& upstream, limit const& options)
      : upstream_(upstream()),
        granularity_(detail::require_valid(options).granularity),
        max_(budget(options, upstream_)),
        name_(options.name),
        label_(options.name.empty() ? "limit" : printable(options.name) + ": limit") {}

  limit_resource(limit_resource const&) = delete;  // weir: neither copied nor moved; pass weir::share(memory)
  limit_resource& operator=(limit_resource const&) = delete;

  /// Throws `out_of_memory` if the budget has too little left, and whatever the upstream throws.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    std::size_t const charge = round_up_or_zero(bytes, granularity_);
    std::size_t const held = reserve(charge);
    if (held == 0) [[unlikely]] {
      refused_.fetch_add(1, std::memory_order_relaxed);
      throw out_of_memory({bytes, charge, stream}, "limit", report_of(*this));
    }
    void* const p = allocate_charged(stream, bytes, alignment, charge);
    raise_peak(held);
    return p;
  }

  /// More given back than is charged means that a size or a pointer is wrong: reported as misuse, memory kept.
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr) return;
    std::size_t const charge = round_up_or_zero(bytes, granularity_);
    // While the caller's block is live its charge is in `used_`, whatever other threads do.
    if (charge == 0 || used_.load(std::memory_order_relaxed) < charge) [[unlikely]] {
      report_excess(bytes);
      return;
    }
    upstream_.deallocate(stream, p, bytes, alignment);
    if (!credit(charge)) [[unlikely]]
      report_excess(bytes);
  }

  /// Bytes charged now: live requests, each rounded up.
  std::size_t used() const noexcept { return used_.load(std::memory_order_relaxed); }
  /// Whose budget it is; empty: nobody said.
  std::string const& name() const noexcept { return name_; }
  /// The budget in bytes.
  std::size_t max_bytes() const noexcept { return max_; }
  /// The most bytes that were charged at one time by requests that were served.
  std::size_t peak() const noexcept { return peak_.load(std::memory_order_relaxed); }
  /// How many requests this layer refused. Those that failed further down do not count.
  std::uint64_t refused() const noexcept { return refused_.load(std::memory_order_relaxed); }

  Upstream& upstream() noexcept { return upstream_; }
  Upstream const& upstream() const noexcept { return upstream_; }

  void describe(report& out) const {
    describe_layer(out);
    weir::describe(upstream_, out);
  }
  void describe_layer(report& out) const {
    std::size_t const now = used();
    out.below(label_ + "(" + format_bytes(max_) + ")",
              format_bytes(max_) + ", " + format_bytes(now) + " charged, " + format_bytes(max_ - now) + " left; peak " +
                  format_bytes(peak()) + ", " + std::to_string(refused()) + " refused");
  }

 private:
  static std::size_t budget(limit const& options, Upstream& upstream) {
    if (options.max_bytes != 0) return options.max_bytes;
    int const device = detail::device_for(upstream);
    auto const total = static_cast<double>(memory_info(device).total_bytes);
    auto const bytes = static_cast<std::size_t>(total * options.fraction);
    if (bytes < options.granularity)
      throw std::invalid_argument("weir: limit: fraction is " + std::to_string(options.fraction) + ", which is " +
                                  std::to_string(bytes) + " B of device " + std::to_string(device) +
                                  " and less than one granularity");
    return bytes;
  }

  // Out of line of `allocate`, so that the common path carries no landing pads.
  void* allocate_charged(stream_ref stream, std::size_t bytes, std::size_t alignment, std::size_t charge) try {
    return upstream_.allocate(stream, bytes, alignment);
  } catch (out_of_memory& failure) {
    credit(charge);
    failure.passed_through(*this);
    throw;
  } catch (...) {
    credit(charge);
    throw;
  }

  /// Charges if it fits: what is charged then, else 0. Acquires what `credit` releases, so that whoever is let in by a
  /// free reaches the upstream after that free did.
  std::size_t reserve(std::size_t charge) noexcept {
    if (charge == 0) return 0;  // rounding up wrapped
    std::size_t held = used_.load(std::memory_order_relaxed);
    do {
      if (charge > max_ - held) return 0;  // `held <= max_` always, so nothing wraps
    } while (!used_.compare_exchange_weak(held, held + charge, std::memory_order_acquire, std::memory_order_relaxed));
    return held + charge;
  }

  /// Takes a charge back; false, and nothing below zero, if there was less. A subtraction that is undone afterwards
  /// would let another thread see a wrong number meanwhile.
  bool credit(std::size_t charge) noexcept {
    std::size_t held = used_.load(std::memory_order_relaxed);
    while (!used_.compare_exchange_weak(held, held > charge ? held - charge : 0, std::memory_order_release,
                                        std::memory_order_relaxed)) {
    }
    return held >= charge;
  }

  void raise_peak(std::size_t held) noexcept {
    std::size_t seen = peak_.load(std::memory_order_relaxed);
    while (held > seen && !peak_.compare_exchange_weak(seen, held, std::memory_order_relaxed)) {
    }
  }

  void report_excess(std::size_t bytes) const noexcept {
    detail::report_misuse("weir: " + label_ + ": " + std::to_string(bytes) + " B were given back and " +
                          std::to_string(used()) +
                          " B are charged; a size or a pointer is wrong, or it was freed twice");
  }

  Upstream upstream_;
  std::size_t granularity_;
  std::size_t max_;
  std::string name_;
  std::string label_;
  alignas(64) std::atomic<std::size_t> used_{0};  // on a line of its own: every request of every thread writes it
  std::atomic<std::size_t> peak_{0};
  std::atomic<std::uint64_t> refused_{0};
};

}  // namespace weir
