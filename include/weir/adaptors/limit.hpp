#pragma once
// A budget: no more than so many bytes live at once.

#include <weir/adaptors/detail/adaptor_base.hpp>
#include <weir/adaptors/detail/captured_charges.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/error.hpp>
#include <weir/core/options.hpp>
#include <weir/core/printable.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/device.hpp>
#include <weir/support/atomic.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>

namespace weir {

template <resource Upstream>
class limit_resource;

/// Refuses what would take its live bytes above a budget, exactly, whatever threads do. Give `max_bytes` or `fraction`.
/// A request is charged with what it takes of the upstream (`weir::taken`): a whole block of `fixed_size`, the padding
/// for a large alignment over a source.
/// When not to use it: to bound what a pool *below* it reserves from CUDA, use the pool's own `max_bytes`.
struct limit {
  std::size_t max_bytes = 0;      ///< the budget in bytes; 0: not given
  double fraction = 0;            ///< the budget as a part of the total memory of the stack's device, above 0 up to 1
  std::size_t granularity = 256;  ///< each charge is rounded up to a multiple of this (a power of two), in bytes
  std::string name = {};          ///< whose budget it is, for reports and errors: `search` makes it `search: limit`

  template <resource Upstream>
  using on = limit_resource<Upstream>;

  static constexpr char const* layer_name = "limit";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(option::part("fraction", "fraction", &limit::fraction, "not given").first());
    f(option::bytes("max", "max_bytes", &limit::max_bytes).first());
    f(option::bytes("granularity", "granularity", &limit::granularity).power_of_two());
    f(option::text("name", "name", &limit::name));
  }

  /// Empty if these options are valid, else what is wrong with them.
  template <class = void>  // so that only those pay for compiling it who use it
  std::string problem() const {
    if (std::string what = option::first_problem(*this); !what.empty()) return what;
    std::string const given =
        "limit: max_bytes is " + std::to_string(max_bytes) + " and fraction is " + std::to_string(fraction);
    if ((max_bytes == 0) == (fraction == 0)) return given + "; give exactly one of them a value above 0";
    if (max_bytes == 0 || max_bytes >= granularity) return {};
    std::string less = given + "; that is less than one granularity of " + std::to_string(granularity);
    if (max_bytes > 100) return less;
    return less + "; for a part of the device write limit(" + std::to_string(max_bytes) +
           "%) in a text, and in C++ set fraction";
  }
  template <class = void>
  bool valid() const {
    return problem().empty();
  }
};

/// What `limit` stands as on an upstream. All functions may be called from any thread.
///
/// A request is charged before the upstream is asked and the charge is taken back if that throws; a request that does
/// not fit is never charged, so it cannot make another fail. A free is credited after the upstream has the memory back:
/// the upstream never holds more than the budget for this layer. A free that a layer below reports as misuse is not
/// credited. Memory that is freed while a stream capture keeps it for its graph stays charged until the pool below was
/// told that the graph is gone (`release_captured`); what the same capture uses again is not charged twice.
template <resource Upstream>
class limit_resource : public detail::adaptor_base<limit_resource<Upstream>, Upstream> {
  using base = detail::adaptor_base<limit_resource, Upstream>;

 public:
  static constexpr char const* layer_name = limit::layer_name;

  /// Throws `std::invalid_argument` for wrong options; with `fraction`, asks CUDA once how much memory the device
  /// of the upstream has (the current one where no layer names one) and may throw `cuda_error`.
  template <recipe F>
  limit_resource(F const& upstream, limit const& options)
      : base(upstream),
        granularity_(detail::require_valid(options).granularity),
        max_(budget(options, upstream_)),
        name_(options.name),
        label_(options.name.empty() ? "limit" : printable(options.name) + ": limit") {}

  /// Throws `out_of_memory` if the budget has too little left, and whatever the upstream throws.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    std::size_t const charge = charge_for(bytes, alignment);
    std::size_t held = reserve(charge);
    if (held == 0 && credit_released() != 0) [[unlikely]]
      held = reserve(charge);
    if (held == 0) [[unlikely]]
      return reuse_captured_or_refuse(stream, bytes, alignment, charge);
    detail::last_call.clear();
    void* const p = this->pass(stream, bytes, alignment, [&] { credit(charge); });
    if (detail::last_call.what == detail::call_note::captured) [[unlikely]]
      held -= credit_reused(charge, bytes, alignment);
    raise_peak(held);
    return p;
  }

  /// More given back than is charged means that a size or a pointer is wrong: a layer below that knows its blocks says
  /// what; without one it is reported here, and the memory kept.
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    take_back(p, bytes, alignment, [=](Upstream& below) { below.deallocate(stream, p, bytes, alignment); });
  }
  /// See `weir::deallocate_after`. Credited at once, as by `deallocate`.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) noexcept {
    take_back(p, bytes, alignment,
              [=](Upstream& below) { weir::deallocate_after(below, stream, p, bytes, others, alignment); });
  }

  /// Bytes charged now: live requests, each rounded up, and what captures keep. A load, unless captures keep some.
  std::size_t used() const noexcept {
    credit_released();
    return used_.load();
  }
  /// The part of `used()` that was freed, but is kept for the graphs of stream captures.
  std::size_t captured() const noexcept {
    credit_released();
    return captured_.total();
  }
  /// Whose budget it is; empty: nobody said.
  std::string const& name() const noexcept { return name_; }
  /// The budget in bytes.
  std::size_t max_bytes() const noexcept { return max_; }
  /// The most bytes that were charged at one time by requests that were served.
  std::size_t peak() const noexcept { return peak_.load(); }
  /// How many requests this layer refused. Those that failed further down do not count.
  std::uint64_t refused() const noexcept { return refused_.load(); }

  void describe_layer(report& out) const {
    std::size_t const now = used(), kept = captured_.total();
    out.below(label_ + "(" + format_bytes(max_) + ")",
              format_bytes(max_) + ", " + format_bytes(now) + " charged" +
                  (kept == 0 ? "" : " (" + format_bytes(kept) + " of it captured)") + ", " + format_bytes(max_ - now) +
                  " left; peak " + format_bytes(peak()) + ", " + std::to_string(refused()) + " refused");
  }

 private:
  using base::upstream_;
  friend base;

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

  /// What a request costs; 0 if that cannot be counted. The same for its free.
  std::size_t charge_for(std::size_t bytes, std::size_t alignment) const noexcept {
    return round_up_or_zero(weir::taken(upstream_, bytes, alignment), granularity_);
  }

  /// Charges if it fits: what is charged then, else 0. Acquires what `credit` releases, so that whoever is let in by a
  /// free reaches the upstream after that free did.
  std::size_t reserve(std::size_t charge) noexcept {
    if (charge == 0) return 0;  // rounding up wrapped
    std::size_t held = used_.load();
    do {
      if (charge > max_ - held) return 0;  // `held <= max_` always, so nothing wraps
    } while (!used_.replace_acquire(held, held + charge));
    return held + charge;
  }

  /// Takes a charge back; false, and nothing below zero, if there was less. A subtraction that is undone afterwards
  /// would let another thread see a wrong number meanwhile.
  bool credit(std::size_t charge) const noexcept {
    std::size_t held = used_.load();
    while (!used_.replace_release(held, held > charge ? held - charge : 0)) {
    }
    return held >= charge;
  }

  /// `give(upstream)` frees the block there.
  template <class Give>
  [[gnu::always_inline]] void take_back(void* p, std::size_t bytes, std::size_t alignment, Give give) noexcept {
    if (p == nullptr) return;
    std::size_t const charge = charge_for(bytes, alignment);
    // While the caller's block is live its charge is in `used_`, whatever other threads do.
    if (bytes == 0 || charge == 0 || used_.load() < charge) [[unlikely]]
      return this->deallocate_excess(p, bytes, give);
    std::uintptr_t const volatile address = reinterpret_cast<std::uintptr_t>(p);  // volatile: taken before p is gone
    detail::last_call.clear();
    give(upstream_);
    if (detail::last_call.what != detail::call_note::plain) [[unlikely]]
      return keep_if_captured(charge);
    if (!credit(charge)) [[unlikely]]
      this->report_excess(address, bytes);
  }

  void raise_peak(std::size_t held) noexcept {
    std::size_t seen = peak_.load();
    while (held > seen && !peak_.replace(seen, held)) {
    }
  }

  // ---- captures

  /// Credits what captures kept whose memory was released since; returns how much.
  std::size_t credit_released() const noexcept {
    if (captured_.total() == 0) [[likely]]
      return 0;
    std::size_t const released =
        captured_.release([&](std::uint64_t capture) { return weir::holds_captured(upstream_, capture); });
    credit(released);
    return released;
  }

  /// A request in a capture was served, as `last_call` says: what it uses again is charged already. Returns how much.
  [[gnu::noinline, gnu::cold]] std::size_t credit_reused(std::size_t charge, std::size_t bytes,
                                                         std::size_t alignment) noexcept {
    detail::call_note const call = detail::last_call;
    captured_.reserve();
    bool const all = call.reused >= weir::taken(upstream_, bytes, alignment);
    std::size_t const again = captured_.take(call.capture, all ? charge : call.reused & ~(granularity_ - 1));
    credit(again);
    return again;
  }

  /// The budget is full. A request in a capture may still have what that capture keeps and is charged for.
  [[gnu::noinline, gnu::cold]] void* reuse_captured_or_refuse(stream_ref stream, std::size_t bytes,
                                                              std::size_t alignment, std::size_t charge) {
    std::uint64_t const capture = captured_.total() == 0 || charge == 0 ? 0 : detail::capture_in(stream);
    if (capture != 0 && captured_.take_all(capture, charge)) {
      void* const p = reuse_captured(stream, bytes, alignment);
      if (p != nullptr) return p;
      captured_.keep(capture, charge);
    }
    refused_.add(1);
    report own;
    describe_layer(own);
    base::refuse({bytes, charge, stream}, label_, own);
  }
  /// Null if that cannot be had without taking more.
  void* reuse_captured(stream_ref stream, std::size_t bytes, std::size_t alignment) noexcept try {
    detail::captured_memory_only const no_more;
    detail::last_call = {};
    void* const p = upstream_.allocate(stream, bytes, alignment);
    if (p == nullptr || detail::last_call.reused >= weir::taken(upstream_, bytes, alignment)) return p;
    upstream_.deallocate(stream, p, bytes, alignment);
    return nullptr;
  } catch (...) {
    return nullptr;
  }

  /// A free was no plain one, as `last_call` says: misuse is not credited, and what a capture keeps stays charged.
  [[gnu::noinline, gnu::cold]] void keep_if_captured(std::size_t charge) noexcept {
    if (detail::last_call.what == detail::call_note::captured) captured_.keep(detail::last_call.capture, charge);
  }

  std::string counted() const { return "and " + std::to_string(used()) + " B are charged"; }

  std::size_t granularity_;
  std::size_t max_;
  std::string name_;
  std::string label_;
  // On a line of its own: every request of every thread writes it. Changed by questions too, which credit.
  alignas(64) mutable detail::atomic<std::size_t> used_;
  detail::atomic<std::size_t> peak_;
  detail::atomic<std::uint64_t> refused_;
  mutable detail::captured_charges captured_;
};

}  // namespace weir
