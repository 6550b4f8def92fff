#pragma once
// Before a request is refused, asks the program's own caches to give something back.

#include <weir/adaptors/detail/paid_ahead.hpp>
#include <weir/adaptors/detail/passing_adaptor.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/error.hpp>
#include <weir/core/options.hpp>
#include <weir/core/printable.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/support/atomic.hpp>
#include <weir/support/function.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <vector>

namespace weir {

template <resource Upstream>
class on_failure_resource;

/// Something of the program's that can give memory back: a cache, a batch that is computed again later.
struct reclaimer {
  std::string name;  ///< for reports
  /// Gives memory back and returns how many bytes that were; 0: there was nothing. It is told what is missing: memory
  /// that it frees on the request's stream serves the request without a wait.
  ///
  /// Called on the thread whose request failed, while weir holds no lock: it may allocate, free and trim, also on the
  /// same stack. Several threads may call it at the same time. A `std::exception` that it throws counts as nothing
  /// given, and its text stands in the report; other exceptions pass through `allocate`.
  detail::function<std::size_t(memory_request const& missing)> reclaim;
};

/// Where the upstream is out of memory, calls the reclaimers in their order, asks the upstream again after each that
/// gave something, and throws once none gives any more or all had `max_rounds` turns.
///
///     auto memory = weir::make(weir::share(pool) | weir::on_failure{{{"images", [&](auto const& missing) {
///       return images.evict(missing.bytes);  // images live in `pool`, and longer than `memory`
///     }}}});
///
/// When not to use it: for data that has to come back by itself when it is used (`spill`); below a `limit` that
/// refuses requests before they arrive here.
struct on_failure {
  std::vector<reclaimer> reclaimers;  ///< in the order in which they are asked: first what is cheapest to make again
  unsigned max_rounds = 4;            ///< the most turns that each has for one request
  std::string name = {};              ///< whose caches they are, for reports: `search` makes it `search: on_failure`

  template <resource Upstream>
  using on = on_failure_resource<Upstream>;

  static constexpr char const* layer_name = "on_failure";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(option::count("max_rounds", "max_rounds", &on_failure::max_rounds).at_least(1));
    f(option::text("name", "name", &on_failure::name));
  }

  std::string problem() const {
    if (std::string what = option::first_problem(*this); !what.empty()) return what;
    if (reclaimers.empty()) return "on_failure: there are no reclaimers; give at least one";
    for (std::size_t i = 0; i < reclaimers.size(); ++i)
      if (!reclaimers[i].reclaim)
        return "on_failure: reclaimers[" + std::to_string(i) + "] has no function; give it one that returns how many " +
               "bytes it gave back";
    return {};
  }
  bool valid() const { return problem().empty(); }
};

/// What an `on_failure` layer did so far.
struct on_failure_numbers {
  std::uint64_t calls = 0;            ///< of reclaimers
  std::uint64_t reclaimed_bytes = 0;  ///< that they say they gave back
  std::uint64_t rescued = 0;          ///< requests that were served after that
  std::uint64_t refused = 0;          ///< requests that were refused all the same
};

namespace detail {

/// A layer whose reclaimers the calling thread is in: a request that comes from inside does not call them again.
class reclaiming_scope {
 public:
  explicit reclaiming_scope(void const* layer) noexcept : layer_(layer), outer_(innermost_) { innermost_ = this; }
  ~reclaiming_scope() { innermost_ = outer_; }
  reclaiming_scope(reclaiming_scope const&) = delete;
  reclaiming_scope& operator=(reclaiming_scope const&) = delete;

  static bool is_in(void const* layer) noexcept {
    for (reclaiming_scope const* scope = innermost_; scope != nullptr; scope = scope->outer_)
      if (scope->layer_ == layer) return true;
    return false;
  }

 private:
  [[gnu::visibility("default")]] inline static constinit thread_local reclaiming_scope const* innermost_ = nullptr;
  void const* layer_;
  reclaiming_scope const* outer_;
};

}  // namespace detail

/// What `on_failure` stands as on an upstream. All functions may be called from any thread; it has no lock of its own.
///
/// Reclaimers are not called for a request that comes from inside one of them (on the same thread), for one on a
/// stream that is being captured (a graph cannot wait for what they free, and what they call might break it), for what
/// a pool above takes for such a one, for one that is too large to count, and for a step by which a pool above would
/// grow and which it can do without: it asks for less next. Those are refused as the upstream refused them.
template <resource Upstream>
class on_failure_resource : public detail::passing_adaptor<on_failure_resource<Upstream>, Upstream> {
  using base = detail::passing_adaptor<on_failure_resource, Upstream>;

 public:
  static constexpr char const* layer_name = on_failure::layer_name;

  template <recipe F>
  on_failure_resource(F const& upstream, on_failure const& options)
      : base(upstream),
        reclaimers_(detail::require_valid(options).reclaimers),
        max_rounds_(options.max_rounds),
        name_(options.name),
        label_(options.name.empty() ? "on_failure" : printable(options.name) + ": on_failure") {}

  /// Throws the last `out_of_memory` of the upstream, with a line for each reclaimer, and whatever else the upstream
  /// throws. A plain `std::bad_alloc`, of a resource of the program's own or of the host's memory, is a refusal, too.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    for (attempt made(*this, {bytes, 0, stream});;) try {
        void* const p = this->ask(stream, bytes, alignment);
        if (made.has_reclaimed()) [[unlikely]]
          rescued_.add(1);
        return p;
      } catch (out_of_memory& failure) {
        if (made.reclaim(this->taken(bytes, alignment))) continue;
        count_refusal();
        failure.passed_through(made);
        throw;
      } catch (std::bad_alloc const&) {  // of a resource of the program's own, or of the host's memory
        if (made.reclaim(this->taken(bytes, alignment))) continue;
        count_refusal();
        throw;
      }
  }

  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    if (p != nullptr) share(upstream_).deallocate(stream, p, bytes, alignment);
  }
  /// See `weir::deallocate_after`.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) noexcept {
    weir::deallocate_after(upstream_, stream, p, bytes, others, alignment);
  }

  /// Four loads.
  on_failure_numbers numbers() const noexcept {
    return {calls_.load(), reclaimed_bytes_.load(), rescued_.load(), refused_.load()};
  }
  /// Whose caches they are; empty: nobody said.
  std::string const& name() const noexcept { return name_; }

  void describe_layer(report& out) const {
    on_failure_numbers const n = numbers();
    out.below(label_, "reclaimers gave " + format_bytes(n.reclaimed_bytes) + " in " + std::to_string(n.calls) +
                          " calls; " + std::to_string(n.rescued) + " requests served after that, " +
                          std::to_string(n.refused) + " refused");
  }

 private:
  using base::upstream_;
  friend base;

  void count_refusal() noexcept {
    if (!detail::can_do_with_less::is_set()) refused_.add(1);
  }

  /// A growable upstream that has too little is asked again as for a request.
  template <class Map>
  bool map_by(void*, std::size_t bytes, Map map) {
    for (attempt made(*this, {bytes, 0, host_order});;) {
      if (map()) {
        if (made.has_reclaimed()) rescued_.add(1);
        return true;
      }
      if (!made.reclaim(bytes)) return count_refusal(), false;
    }
  }

  /// What the reclaimers do for one request.
  class attempt {
   public:
    attempt(on_failure_resource& layer, memory_request const& missing) noexcept
        : layer_(layer), missing_(missing), seen_(layer.reclaimed_bytes_.load()) {}

    bool has_reclaimed() const noexcept { return reclaimed_; }

    /// Goes on from where it was until something was given, and the upstream is to be asked again; false: it is not.
    /// `taken`: what the request takes of the upstream, 0 if that cannot be counted.
    bool reclaim(std::size_t taken) {
      if (outcomes_.empty() && !begin(taken)) return false;
      while (round_ < layer_.max_rounds_) {
        while (next_ < outcomes_.size())
          if (call(next_++)) return ask_again();
        if (!gave_in_round_ && !others_give()) return false;
        bool const by_others = !gave_in_round_;
        ++round_, next_ = 0, gave_in_round_ = false;
        if (by_others) return ask_again();
      }
      return false;
    }

    void describe_layer(report& out) const {
      layer_.describe_layer(out);
      if (why_not_ != nullptr) out.note("reclaimers", why_not_);
      for (std::size_t i = 0; i < outcomes_.size(); ++i) out.note("reclaimer", outcome_of(i));
    }

   private:
    struct call_under_way {
      explicit call_under_way(on_failure_resource& counted) noexcept : layer(counted) {
        layer.calls_.add(1);
        layer.calls_under_way_.add(1);
      }
      ~call_under_way() { layer.calls_under_way_.subtract(1); }
      on_failure_resource& layer;
    };
    struct outcome {
      std::size_t bytes = 0;
      unsigned calls = 0;
      std::string error = {};
    };

    /// Once a request: false if no reclaimer is to be called for it.
    bool begin(std::size_t taken) {
      if (taken == 0) return false;
      if (detail::can_do_with_less::is_set())
        why_not_ = "not called: who asked can do with less";
      else if (detail::reclaiming_scope::is_in(&layer_))
        why_not_ = "not called: one of them made this request";
      else if (detail::is_for_capture(missing_.stream))
        why_not_ = "not called: the stream is being captured";
      if (why_not_ != nullptr) return false;
      missing_.rounded = taken;
      outcomes_.resize(layer_.reclaimers_.size());
      return true;
    }

    /// A reclaimer that finds nothing may do so because another thread was just given all of it.
    bool others_give() const noexcept {
      return layer_.calls_under_way_.load() != 0 || layer_.reclaimed_bytes_.load() != seen_;
    }
    bool ask_again() noexcept {
      seen_ = layer_.reclaimed_bytes_.load();
      return reclaimed_ = true;
    }

    /// True if this one gave something.
    bool call(std::size_t i) {
      detail::reclaiming_scope const inside(&layer_);
      detail::paid_ahead const hidden;
      detail::calls_of_its_own const noted;
      call_under_way const counted(layer_);
      outcome& own = outcomes_[i];
      ++own.calls;
      try {
        std::size_t const gave = layer_.reclaimers_[i].reclaim(missing_);
        own.bytes += gave;
        layer_.reclaimed_bytes_.add(gave);
        gave_in_round_ = gave_in_round_ || gave != 0;
        return gave != 0;
      } catch (std::exception const& error) {
        own.error = printable(error.what());
        return false;
      }
    }

    std::string outcome_of(std::size_t i) const {
      outcome const& own = outcomes_[i];
      std::string const& name = layer_.reclaimers_[i].name;
      return (name.empty() ? "number " + std::to_string(i + 1) : printable(name)) + " gave " +
             (own.bytes == 0 ? "nothing" : format_bytes(own.bytes)) + " in " + std::to_string(own.calls) + " calls" +
             (own.error.empty() ? "" : "; it threw: " + own.error);
    }

    on_failure_resource& layer_;
    memory_request missing_;
    std::uint64_t seen_;             // what all reclaimers had given when the upstream was asked last
    std::vector<outcome> outcomes_;  // one a reclaimer, once the first was needed
    std::size_t next_ = 0;
    unsigned round_ = 0;
    bool gave_in_round_ = false, reclaimed_ = false;
    char const* why_not_ = nullptr;
  };

  std::vector<reclaimer> reclaimers_;
  unsigned max_rounds_;
  std::string name_;
  std::string label_;
  detail::atomic<std::uint64_t> calls_, calls_under_way_, reclaimed_bytes_, rescued_, refused_;
};

}  // namespace weir
