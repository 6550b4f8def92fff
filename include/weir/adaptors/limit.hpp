#pragma once
// A budget: no more than so many bytes live at once.

#include <weir/adaptors/detail/bounded_charges.hpp>
#include <weir/adaptors/detail/captured_charges.hpp>
#include <weir/adaptors/detail/limit_below.hpp>
#include <weir/adaptors/detail/limit_options.hpp>
#include <weir/adaptors/detail/limit_text.hpp>
#include <weir/adaptors/detail/limits_above.hpp>
#include <weir/adaptors/detail/paid_ahead.hpp>
#include <weir/adaptors/detail/passing_adaptor.hpp>
#include <weir/adaptors/detail/passing_charge.hpp>
#include <weir/adaptors/detail/reserve_account.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/error.hpp>
#include <weir/core/printable.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/support/atomic.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>

namespace weir {

/// What `limit` stands as on an upstream. All functions may be called from any thread.
///
/// A request is charged before the upstream is asked and the charge is taken back if that throws; a request that does
/// not fit is never charged, so it cannot make another fail. A free is credited after the upstream has the memory back:
/// the upstream never holds more than the budget for this layer. A free that a layer below reports as misuse is not
/// credited. Memory that is freed while a stream capture keeps it for its graph stays charged until the pool below was
/// told that the graph is gone (`release_captured`); what the same capture uses again is not charged twice. What a
/// layer below keeps for good stays charged for good (`kept`): as a source does with what is freed in a capture, and
/// every layer where CUDA cannot say when work is done.
///
/// With a reserve, what this limit charges to the ones below is always its own charges and what is left of the reserve,
/// together. A request says to the next limit below how much of it the reserve pays (`paid_ahead`), and a free how much
/// of it fills the reserve up again, so that nobody else can take that in between.
///
/// On a growable upstream what is mapped is charged, in bytes, whatever the granularity; a second view of a chunk
/// (`alias`) counts as a chunk.
template <resource Upstream>
class limit_resource : public detail::passing_adaptor<limit_resource<Upstream>, Upstream> {
  using base = detail::passing_adaptor<limit_resource, Upstream>;

 public:
  static constexpr char const* layer_name = limit::layer_name;

  /// Throws `std::invalid_argument` for wrong options, for a fraction of memory that only the host reaches, and for a
  /// reserve where no limit is below that requests reach as they are; `out_of_memory` where the limits below have no
  /// room for the reserve. With a fraction, asks CUDA once how much memory the device of the upstream has (the current
  /// one where no layer names one) and may throw `cuda_error`.
  template <recipe F>
  limit_resource(F const& upstream, limit const& options)
      : base(upstream),
        granularity_(detail::require_valid(options).granularity),
        name_(options.name),
        label_(options.name.empty() ? "limit" : printable(options.name) + ": limit"),
        below_(upstream_),
        reserve_(round_up_or_zero(options.reserve_bytes, granularity_)),
        used_(options.soft_bytes, options.on_soft) {
    set_max_bytes(detail::budget_on(upstream_, options));
    if (reserve_.bytes() != 0 && !below_)
      throw std::invalid_argument(detail::no_reserve_text(options.reserve_bytes, detail::layer_above_limit(upstream_)));
    if (reserve_.bytes() != 0) used_.set_has_reserves();
    below_.reserve(reserve_.bytes(), granularity_, name_.empty() ? "a limit above" : label_.c_str());
    below_.add(as_above_);
  }
  /// All blocks went back before. What captures keep of them stays charged below until it is released.
  ~limit_resource() {
    below_.remove(as_above_);
    credit_released();
    below_.release(reserve_.left());
    if (reserve_.bytes() != 0)
      captured_.for_each([this](std::uint64_t capture, std::size_t bytes) { below_.adopt_captured(capture, bytes); });
  }

  /// Throws `out_of_memory` if the budget has too little left, and whatever the upstream throws.
  [[gnu::always_inline]] void* allocate(stream_ref stream, std::size_t bytes,
                                        std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    std::size_t const charge = charge_for(bytes, alignment);
    std::size_t held = used_.charge(charge);
    if (held == 0) [[unlikely]]
      return allocate_otherwise(stream, bytes, alignment);
    detail::last_call.clear();
    void* const p = this->pass(stream, bytes, alignment, [&] { credit(charge); });
    if (detail::last_call.what == detail::call_note::captured) [[unlikely]]
      held -= credit_reused(charge, bytes, alignment);
    raise_peak(held);
    return p;
  }

  /// More given back than is charged means that a size or a pointer is wrong: a layer below that knows its blocks says
  /// what; without one it is reported here, and the memory kept.
  [[gnu::always_inline]] void deallocate(stream_ref stream, void* p, std::size_t bytes,
                                         std::size_t alignment = default_alignment) noexcept {
    take_back(stream, p, bytes, alignment, nullptr);
  }
  /// See `weir::deallocate_after`. Credited at once, as by `deallocate`.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) noexcept {
    take_back(stream, p, bytes, alignment, &others);
  }

  /// Changes the budget. What is charged stays so, also if it is more than `bytes`: requests are then refused until it
  /// fits again. With 0 all are. It may be less than `soft_bytes`: then nobody is told before the refusal. Throws
  /// `std::invalid_argument` for less than the reserve, and for less than one granularity but more than 0.
  void set_max_bytes(std::size_t bytes) {
    bool const of_reserve = reserve_.bytes() > granularity_;
    std::size_t const least = of_reserve ? reserve_.bytes() : granularity_;
    if (bytes < least && (bytes != 0 || reserve_.bytes() != 0))
      throw std::invalid_argument(
          detail::small_budget_text(label_, bytes, least, of_reserve ? "its reserve" : "one granularity"));
    used_.set_max(bytes);
  }

  /// Bytes charged now: live requests, each rounded up, and what captures keep. Two loads, unless captures keep some or
  /// limits stand on this one, which are asked the same.
  std::size_t used() const noexcept {
    credit_released();
    return used_.load();
  }
  /// The part of `used()` that was freed, but is kept for the graphs of stream captures; of limits above too.
  std::size_t captured() const noexcept {
    credit_released();
    return captured_now();
  }
  /// The part of `used()` that was freed, and kept for good by a layer below: nobody gets it again.
  std::size_t kept() const noexcept { return kept_.load(); }
  /// Whose budget it is; empty: nobody said.
  std::string const& name() const noexcept { return name_; }
  /// The budget in bytes.
  std::size_t max_bytes() const noexcept { return used_.max(); }
  /// How many requests went above `soft_bytes` from there or below.
  std::uint64_t soft_crossed() const noexcept { return used_.crossed(); }
  /// What is left of `reserve_bytes`: charged to the limits below, and not in use.
  std::size_t reserve_left() const noexcept { return reserve_.left(); }
  /// The most bytes that were charged at one time by requests that were served.
  std::size_t peak() const noexcept { return used_.peak(); }
  /// Lets the peak start again from what is charged now.
  void reset_peaks() noexcept { used_.reset_peak(); }
  /// How many requests this layer refused. Those that failed further down do not count.
  std::uint64_t refused() const noexcept { return refused_.load(); }

  void describe_layer(report& out) const {
    detail::limit_state const s = look();
    out.below(label_ + "(" + format_bytes(s.most) + ")", detail::text_of(s));
  }

  // ---- for limits above, which find this one by themselves

  /// Charges `bytes` for the reserve of `above`, to this limit and to those below it. Throws `out_of_memory` where
  /// there is no room, `std::invalid_argument` where the limit above counts in another granularity.
  void reserve(std::size_t bytes, std::size_t granularity, char const* above) {
    if (granularity != granularity_)
      throw std::invalid_argument(detail::granularity_text(label_, granularity_, granularity));
    used_.set_has_reserves();
    std::size_t held = 0;
    if (!charge_own(bytes, held)) refuse_for_good({bytes, bytes, host_order}, detail::reserve_hint(look(), above));
    std::size_t const paid = reserve_.begin_request(bytes);
    try {
      below_.reserve(bytes - paid, granularity, above);
    } catch (...) {
      credit(bytes);
      below_.release(reserve_.undo_request(paid));
      throw;
    }
    below_.release(reserve_.end_request(bytes, paid));
    raise_peak(held);
  }
  /// Takes back what was charged by `reserve`, or for a request of the limit that called it.
  void release_reserve(std::size_t bytes) noexcept { give_back(bytes); }
  /// Asks a limit above, too, before it refuses or says what is charged.
  void add_above(detail::limit_above& above) noexcept { above_.add(above); }
  void remove_above(detail::limit_above& above) noexcept { above_.remove(above); }
  /// Takes over what a limit above, which is about to end, was charged for memory that a capture keeps.
  void adopt_captured(std::uint64_t capture, std::size_t bytes) noexcept {
    captured_.keep(capture, bytes);
    if (reserve_.bytes() == 0) below_.adopt_captured(capture, bytes);
  }
  /// A limit above was charged for what it used again of that.
  void use_captured_again(std::uint64_t capture, std::size_t bytes) noexcept {
    std::size_t const again = captured_.take(capture, bytes);
    if (reserve_.bytes() != 0) {
      give_back(again);
      below_.use_captured_again(capture, bytes - again);
    } else {
      credit(again);
      below_.use_captured_again(capture, bytes);  // which has an account of its own
    }
  }

 private:
  using base::upstream_;
  friend base;
  friend detail::adaptor_base<limit_resource, Upstream>;

  /// What a request costs; 0 if that cannot be counted. The same for its free.
  std::size_t charge_for(std::size_t bytes, std::size_t alignment) const noexcept {
    return round_up_or_zero(weir::taken(upstream_, bytes, alignment), granularity_);
  }

  /// Takes a charge back; false, and nothing below zero, if there was less.
  [[gnu::noinline]] bool credit(std::size_t charge) const noexcept { return used_.credit(charge); }
  /// The same here and below, but for what fills the reserve up again.
  void give_back(std::size_t bytes) const noexcept {
    std::size_t const back = reserve_.begin_free(bytes);
    credit(bytes);
    below_.release(bytes - back);
    below_.release(reserve_.end_free(back));
  }

  [[gnu::always_inline]] void take_back(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment,
                                        stream_list const* others) noexcept {
    if (p == nullptr) return;
    std::size_t const charge = charge_for(bytes, alignment);
    // While the caller's block is live its charge is in `used_`, whatever other threads do.
    if (bytes == 0 || charge == 0 || !used_.is_plain(charge)) [[unlikely]]
      return take_back_otherwise(stream, p, bytes, alignment, others);
    std::uintptr_t const volatile address = reinterpret_cast<std::uintptr_t>(p);  // volatile: taken before p is gone
    detail::last_call.clear();
    this->give(stream, p, bytes, alignment, others);
    if (detail::last_call.what != detail::call_note::plain) [[unlikely]]
      return stay_charged(charge, true);
    if (!used_.credit(charge)) [[unlikely]]
      this->report_excess(address, bytes, alignment);
  }

  // ---- a growable upstream: what is mapped is charged

  /// As a request is, in whole chunks and nothing else. False, and nothing charged, where the budget has too little.
  template <class Map>
  bool map_by(void* p, std::size_t bytes, Map map) {
    detail::own_charge const own(this, p, bytes, bytes);
    std::size_t held = used_.load();
    if (own.bytes != 0 && !charge_own(own.bytes, held)) return refused_.add(1), false;
    detail::passing_request const passing(own, below_, reserve_);
    auto const undo = [&] {
      credit(own.bytes);
      passing.failed();
    };
    try {
      if (!map()) return undo(), false;
    } catch (...) {
      undo();
      throw;
    }
    passing.served();
    raise_peak(held);
    return true;
  }
  template <class Unmap>
  bool unmap_by(void* p, std::size_t bytes, Unmap unmap) noexcept {
    detail::own_charge const own(this, p, bytes, bytes);
    detail::passing_free const passing(own, below_, reserve_);
    if (!unmap()) return passing.failed(), false;
    if (!credit(own.bytes)) this->report_excess(reinterpret_cast<std::uintptr_t>(p), bytes, this->chunk_bytes());
    passing.done();
    return true;
  }

  [[gnu::always_inline]] void raise_peak(std::size_t held) noexcept { used_.raise_peak(held); }

  // ---- captures

  std::size_t captured_now() const noexcept { return captured_.total() + above_.captured(); }
  /// How much of it is charged to the limit below, which has no account of it: what a reserve covers is not.
  std::size_t captured_below() const noexcept {
    if (reserve_.bytes() == 0) return above_.captured();
    std::size_t const here = captured_now(), beyond = reserve_.beyond();
    return here < beyond ? here : beyond;
  }
  /// Credits what captures kept whose memory was released since, for limits above too.
  void credit_released() const noexcept {
    above_.credit_released();
    if (captured_.total() != 0) [[unlikely]]
      credit_own_released();
  }
  void credit_own_released() const noexcept {
    auto const is_held = [&](std::uint64_t capture) { return weir::holds_captured(upstream_, capture); };
    captured_.release(is_held, [&](std::size_t released) {
      if (reserve_.bytes() != 0)
        give_back(released);
      else
        credit(released);
    });
  }

  /// A request in a capture was served, as `last_call` says: what it uses again is charged already. Returns how much.
  [[gnu::noinline, gnu::cold]] std::size_t credit_reused(std::size_t charge, std::size_t bytes,
                                                         std::size_t alignment) noexcept {
    detail::call_note const call = detail::last_call;
    bool const are_many = captured_.reserve();
    bool const all = call.reused >= weir::taken(upstream_, bytes, alignment);
    std::size_t const reused = all ? charge : call.reused & ~(granularity_ - 1);
    std::size_t const again = captured_.take(call.capture, reused);
    credit(again);
    if (reserve_.bytes() != 0) below_.use_captured_again(call.capture, reused - again);
    if (are_many) credit_own_released();
    return again;
  }

  /// A request for which the charge is not all: there is a soft limit or a reserve, or the budget is full.
  [[gnu::noinline, gnu::cold]] void* allocate_otherwise(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    std::size_t const charge = charge_for(bytes, alignment);
    detail::own_charge const own(this, nullptr, bytes, charge);
    std::size_t held = used_.load();
    if (charge == 0 || (own.bytes != 0 && !charge_own(own.bytes, held))) {
      if (!own.is_told) return reuse_captured_or_refuse(stream, bytes, alignment, charge);
      refuse_for_good({bytes, charge, stream});
    }
    detail::passing_request const passing(own, below_, reserve_);
    detail::last_call.clear();
    void* const p = this->pass(stream, bytes, alignment, [&] {
      credit(own.bytes);
      passing.failed();
    });
    bool const reused = detail::last_call.what == detail::call_note::captured && !own.is_told;
    std::size_t const again = reused ? credit_reused(own.bytes, bytes, alignment) : 0;
    passing.served(again);
    raise_peak(held - again);
    return p;
  }
  bool charge_own(std::size_t own, std::size_t& held) {
    held = used_.charge_and_tell(own);
    if (held != 0) return true;
    credit_released();
    held = used_.charge_and_tell(own);  // in any case: another thread may have credited it just now
    return held != 0;
  }

  /// A free for which a credit is not all: there is a soft limit or a reserve, more is charged than may be, or less
  /// than is given back.
  [[gnu::noinline, gnu::cold]] void take_back_otherwise(stream_ref stream, void* p, std::size_t bytes,
                                                        std::size_t alignment, stream_list const* others) noexcept {
    std::size_t const charge = charge_for(bytes, alignment);
    detail::own_charge const own(this, p, bytes, charge);
    if (bytes == 0 || charge == 0 || !used_.covers(own.bytes))
      return this->deallocate_excess(stream, p, bytes, alignment, others);
    std::uintptr_t const volatile address = reinterpret_cast<std::uintptr_t>(p);  // volatile: taken before p is gone
    detail::passing_free const passing(own, below_, reserve_);
    detail::last_call.clear();
    this->give(stream, p, bytes, alignment, others);
    if (detail::last_call.what != detail::call_note::plain) {
      passing.failed();
      return stay_charged(own.bytes, !own.is_told);
    }
    if (!credit(own.bytes)) this->report_excess(address, bytes, alignment);
    passing.done();
  }

  /// The budget is full. A request in a capture may still have what that capture keeps and is charged for.
  [[gnu::noinline, gnu::cold]] void* reuse_captured_or_refuse(stream_ref stream, std::size_t bytes,
                                                              std::size_t alignment, std::size_t charge) {
    std::uint64_t const capture = captured_.total() == 0 || charge == 0 ? 0 : detail::capture_in(stream);
    if (capture != 0 && captured_.take_all(capture, charge)) {
      void* const p = reuse_captured(stream, bytes, alignment, charge);
      if (p != nullptr) return p;
      captured_.keep(capture, charge);
    }
    refuse_for_good({bytes, charge, stream});
  }
  [[noreturn]] void refuse_for_good(memory_request const& request) {
    detail::limit_state s = look();
    s.has_pool_below = detail::has_pool_below(upstream_);
    refuse_for_good(request, detail::refusal_hint(s, request.rounded));
  }
  [[noreturn, gnu::noinline, gnu::cold]] void refuse_for_good(memory_request const& request, std::string const& hint) {
    refused_.add(1);
    report own;
    describe_layer(own);
    base::refuse(request, label_, own, hint);
  }
  /// What captures keep is looked at first: what is kept between the two looks is charged in both, so that what others
  /// hold is too much at worst. Only what is released meanwhile makes it less.
  detail::limit_state look() const {
    std::size_t const in_graphs = captured();
    return {.label = label_,
            .most = max_bytes(),
            .held = used_.load(),
            .in_graphs = in_graphs,
            .kept = kept(),
            .peak = peak(),
            .refused = refused(),
            .soft = used_.mark(),
            .crossed = soft_crossed(),
            .reserve = reserve_.bytes(),
            .reserve_left = reserve_.left()};
  }
  /// Null if that cannot be had without taking more.
  void* reuse_captured(stream_ref stream, std::size_t bytes, std::size_t alignment, std::size_t charge) noexcept try {
    detail::captured_memory_only const no_more;
    void const* const told = reserve_.bytes() != 0 ? below_.layer() : nullptr;
    detail::paid_ahead const all_of_it(told, nullptr, bytes, charge);
    detail::last_call = {};
    void* const p = upstream_.allocate(stream, bytes, alignment);
    if (p == nullptr || detail::last_call.reused >= weir::taken(upstream_, bytes, alignment)) return p;
    detail::paid_ahead const all_again(told, p, bytes, charge);
    upstream_.deallocate(stream, p, bytes, alignment);
    return nullptr;
  } catch (...) {
    return nullptr;
  }

  /// A free was no plain one, as `last_call` says: what it was charged with stays so, and is counted where that was no
  /// misuse. What captures keep only by the limit that has the account of it (`keeps_captured`).
  [[gnu::noinline, gnu::cold]] void stay_charged(std::size_t charge, bool keeps_captured) noexcept {
    detail::call_note const call = detail::last_call;
    if (call.what == detail::call_note::kept) kept_.add(charge);
    if (call.what == detail::call_note::captured && keeps_captured) captured_.keep(call.capture, charge);
  }

  std::string counted() const { return "and " + std::to_string(used()) + " B are charged"; }

  std::size_t granularity_;
  std::string name_;
  std::string label_;
  detail::limit_below below_;
  mutable detail::reserve_account reserve_;
  mutable detail::bounded_charges used_;  // changed by questions too, which credit
  detail::atomic<std::uint64_t> refused_;
  mutable detail::captured_charges captured_;
  detail::atomic<std::size_t> kept_;
  detail::limits_above above_;
  detail::limit_above as_above_{
      this, [](void const* layer) noexcept { return static_cast<limit_resource const*>(layer)->credit_released(); },
      [](void const* layer) noexcept { return static_cast<limit_resource const*>(layer)->captured_below(); }};
};

}  // namespace weir
