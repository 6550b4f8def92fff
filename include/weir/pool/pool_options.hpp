#pragma once
// What can be set on a pool, and the numbers it gives.

#include <weir/core/bytes.hpp>
#include <weir/core/options.hpp>
#include <weir/core/resource.hpp>
#include <weir/pool/heap/size_class.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>

namespace weir {
namespace detail {

/// `WEIR_NO_CACHING=1` in the environment makes every pool pass requests straight through, for sanitizers and leak
/// hunts. Read in privileged programs too: it names no file and only makes the program slower.
inline bool caching_disabled() noexcept {
  char const* const value = std::getenv("WEIR_NO_CACHING");
  return value != nullptr && value[0] == '1' && value[1] == '\0';
}

}  // namespace detail

template <resource Upstream>
class pool_resource;

/// What a pool may assume of the streams it is given.
enum class stream_lifetime {
  may_end,        ///< a stream may be destroyed at any time; its frees cost an event each
  outlives_pool,  ///< no stream given to the pool is destroyed before it: no CUDA call on the way. A promise, not
                  ///< checked
};

/// What a pool does first when only memory that other streams' work may still use would fit.
enum class when_pending {
  grow,  ///< takes more from the upstream; waits only when that fails. Streams stay independent
  wait,  ///< makes the asking stream wait for the freeing one. Holds less memory
};

namespace detail {

/// The options that all pools share.
template <class Options, class F>
constexpr void for_each_pooling_option(F& f) {
  f(option::one_of("streams", "streams", &Options::streams, "may_end", stream_lifetime::may_end, "outlives_pool",
                   stream_lifetime::outlives_pool));
  f(option::one_of("pending", "pending", &Options::pending, "grow", when_pending::grow, "wait", when_pending::wait));
  f(option::flag("synchronize", "synchronize", &Options::synchronize));
  f(option::flag("declared_captures", "declared_captures", &Options::declared_captures));
}

}  // namespace detail

/// Keeps memory from its upstream in segments, cuts it into blocks and reuses those in stream order, in constant time.
/// Sizes are bytes; write the members' names, since `pool{64_MiB}` bounds nothing (it is `initial_bytes`). One pool
/// serves one device: that device has to be current when its default streams are used.
/// When not to use it: for a handful of large allocations that live as long as the program; take the source itself.
struct pool {
  /// Taken from the upstream at `make`.
  std::size_t initial_bytes = 0;
  /// The most the pool holds at any time; 0: no limit but the upstream's.
  std::size_t max_bytes = 0;
  /// The least to grow by; 0: a 20th of what the pool holds, between 2 MiB and 1 GiB, for a request below half of
  /// that, and what it asks for otherwise. While most of what is live is small, half of what the pool holds if that is
  /// more, up to 16 MiB. Near `max_waste` that step is less, but no less than 96 MiB for a request of at most 32 MiB.
  std::size_t growth_bytes = 0;
  /// Blocks of this size and more are never split, and only serve requests nearly as large; 0: all may be split.
  std::size_t max_split_bytes = 0;
  /// With more than this held, every segment that is known to be idle is given back before a call of the pool returns.
  /// A free that leaves no live block in a segment asks CUDA whether its work is done; until it is, the frees that
  /// follow ask again. The default keeps all until `trim`.
  std::size_t release_threshold = ~std::size_t{0};
  /// How much more than the most that was live may be held, as a part of it, before idle memory is used up instead of
  /// taking more; 16 MiB is always allowed, and `initial_bytes`. On a growable upstream (`virtual_memory`) idle memory
  /// moves to where it is needed, and as much as was moved may be taken besides, up to two fifths of this; on others
  /// idle segments, which do not fit the request, are given back before one that does is taken: more calls of the
  /// upstream, less held. Neither moves what is live or pending, so more may be held.
  double max_waste = 0.02;
  /// On a growable upstream: what the stream of a request freed moves too, though its work is not done, before more
  /// than `max_waste` is held and before the host waits. It is seen at both addresses until then. Costs an event a
  /// move.
  bool move_pending = false;
  /// For a pool that shares a growable upstream with others: what it can always have, rounded up to chunks (its own
  /// `max_bytes` has to have room for that, and the upstream's for the sum); while it holds no more than `low_bytes` it
  /// is asked last to give idle memory back for others; above `high_bytes` it gives idle memory back by itself, as with
  /// `release_threshold`. 0: nothing, at once, never.
  std::size_t min_bytes = 0;
  std::size_t low_bytes = 0;
  std::size_t high_bytes = 0;
  /// Whose pool it is, for reports of those that share its memory. A literal, or another text that lives as long.
  char const* name = "";
  stream_lifetime streams = stream_lifetime::may_end;
  when_pending pending = when_pending::grow;
  /// Before giving up, let the host wait for the work that still uses freed memory.
  bool synchronize = true;
  /// Every capture that streams which may end take part in is declared (`capture_scope`) before it begins, and no other
  /// thread uses a stream at that moment: one CUDA call on such a stream less, of two. A promise, not checked: a
  /// capture that was not declared may be broken, and memory of its graph given to others.
  bool declared_captures = false;
  /// Threads that share the pool have caches of their own, for blocks of at most 1 MiB, from the start; else from when
  /// they have often waited for each other. With one a thread seldom needs the lock that all share. What caches have is
  /// asked back before the pool grows or refuses. None on growable memory, for streams that may end, and with
  /// `max_split_bytes` or `release_threshold`.
  bool thread_caches = false;

  template <resource Upstream>
  using on = pool_resource<Upstream>;

  static constexpr char const* layer_name = "pool";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(option::bytes("initial", "initial_bytes", &pool::initial_bytes)
          .at_most(detail::max_block_bytes, "what a segment can be"));
    f(option::bytes("max", "max_bytes", &pool::max_bytes).first().or_zero("no limit").at_least(detail::unit_bytes));
    f(option::bytes("growth", "growth_bytes", &pool::growth_bytes));
    f(option::bytes("max_split", "max_split_bytes", &pool::max_split_bytes).or_zero("split all").at_least(1_MiB));
    f(option::bytes("release_threshold", "release_threshold", &pool::release_threshold));
    f(option::part("max_waste", "max_waste", &pool::max_waste, "16 MiB"));
    f(option::flag("move_pending", "move_pending", &pool::move_pending));
    f(option::bytes("min", "min_bytes", &pool::min_bytes).at_most(detail::max_block_bytes, "what a pool can be"));
    f(option::bytes("low", "low_bytes", &pool::low_bytes).at_most(detail::max_block_bytes, "what a pool can be"));
    f(option::bytes("high", "high_bytes", &pool::high_bytes));
    detail::for_each_pooling_option<pool>(f);
    f(option::flag("thread_caches", "thread_caches", &pool::thread_caches));
  }

  /// What is wrong with these options; empty if nothing is.
  template <class = void>  // so that only those pay for compiling it who use it
  std::string problem() const {
    auto const initial_exceeds = [this](char const* what, std::size_t bytes) {
      return "pool: initial_bytes (" + format_bytes(initial_bytes) + ") is more than " + what + " (" +
             format_bytes(bytes) + ")";
    };
    if (std::string what = option::first_problem(*this); !what.empty()) return what;
    if (max_bytes != 0 && initial_bytes > max_bytes) return initial_exceeds("max_bytes", max_bytes);
    if (std::string what = wrong_order("min_bytes", min_bytes, "max_bytes", max_bytes); !what.empty()) return what;
    if (std::string what = wrong_order("low_bytes", low_bytes, "high_bytes", high_bytes); !what.empty()) return what;
    if (max_split_bytes != 0 && initial_bytes >= max_split_bytes)
      return initial_exceeds("max_split_bytes allows to be used for small requests", max_split_bytes);
    return {};
  }
  template <class = void>
  bool valid() const {
    return problem().empty();
  }

 private:
  template <class = void>
  static std::string wrong_order(char const* less, std::size_t a, char const* more, std::size_t b) {
    if (b == 0 || a <= b) return {};
    return std::string("pool: ") + less + " (" + format_bytes(a) + ") is more than " + more + " (" + format_bytes(b) +
           ")";
  }
};

/// Bytes of one kind, now and at most.
struct pool_level {
  std::size_t current = 0;
  std::size_t peak = 0;

  void add(std::size_t bytes) noexcept {
    current += bytes;
    if (current > peak) peak = current;
  }
  void reset_peak() noexcept { peak = current; }
  /// So many of the bytes count elsewhere, as if they always had.
  void move_from(std::size_t bytes) noexcept {
    current -= bytes;
    peak -= bytes;
  }
  void move_to(std::size_t bytes) noexcept {
    current += bytes;
    peak += bytes;
  }
};

/// What a pool knows about itself without looking: cheap. Bytes; reserved + parked = allocated + pending + free +
/// captured. All zero once the process exits, and for a parent's pool in a forked child.
struct pool_numbers {
  pool_level requested;           ///< as callers asked
  pool_level allocated;           ///< the blocks that serve it
  pool_level reserved;            ///< held from the upstream
  std::size_t pending = 0;        ///< freed, but not known to be done
  std::size_t free = 0;           ///< for anyone to take
  std::size_t parked = 0;         ///< without memory since `park`: what `unpark` takes again; not in `reserved`
  std::size_t captured = 0;       ///< kept for graphs, until `release_captured`
  std::uint64_t allocations = 0;  ///< since the pool was made
  std::uint64_t deallocations = 0;
  std::uint64_t requested_total = 0;
  std::uint64_t growths = 0;           ///< segments taken from the upstream
  std::uint64_t releases = 0;          ///< segments given back
  std::uint64_t moved = 0;             ///< bytes of idle memory that were moved to other addresses (growable upstreams)
  std::uint64_t waits = 0;             ///< times one stream was made to wait for another
  std::uint64_t synchronizations = 0;  ///< times the host waited
  std::uint64_t out_of_memory = 0;     ///< requests refused

  /// How many allocations are live.
  std::uint64_t live() const noexcept { return allocations - deallocations; }

  [[gnu::always_inline]] void count_allocation(std::size_t bytes, std::size_t block_bytes) noexcept {
    allocated.add(block_bytes);
    requested.add(bytes);
    ++allocations;
    requested_total += bytes;
  }
  void count_deallocation(std::size_t bytes, std::size_t block_bytes) noexcept {
    allocated.current -= block_bytes;
    requested.current -= bytes;
    ++deallocations;
  }

  /// For the sum over several pools; peaks are summed too, so that they are an upper bound.
  pool_numbers& operator+=(pool_numbers const& other) noexcept {
    auto const sum = [](pool_level& a, pool_level const& b) {
      a.current += b.current;
      a.peak += b.peak;
    };
    sum(requested, other.requested);
    sum(allocated, other.allocated);
    sum(reserved, other.reserved);
    pending += other.pending;
    free += other.free;
    captured += other.captured;
    parked += other.parked;
    allocations += other.allocations;
    deallocations += other.deallocations;
    requested_total += other.requested_total;
    growths += other.growths;
    releases += other.releases;
    moved += other.moved;
    waits += other.waits;
    synchronizations += other.synchronizations;
    out_of_memory += other.out_of_memory;
    return *this;
  }
};

/// What a pool finds by looking at its blocks: slow, and other threads wait meanwhile.
struct pool_snapshot {
  pool_numbers numbers;
  std::size_t segments = 0;
  std::size_t blocks = 0;
  std::size_t largest_free = 0;  ///< bytes, in one piece, whoever freed it
  std::size_t lanes = 0;         ///< streams the pool keeps state for
  std::size_t host_bytes = 0;    ///< bookkeeping, in host memory
  std::size_t under_way = 0;     ///< bytes that threads take from the upstream or give back just now; they count
                                 ///< against `max_bytes`, not as reserved
  std::size_t range_bytes = 0;   ///< addresses that it reserved, on a growable upstream; 0: none
  bool is_parked = false;        ///< and refuses all requests
};

namespace detail {

/// How far a request may go before it gives up.
enum class pool_effort {
  reuse,  ///< what the pool has, at most with a wait between streams
  grow,   ///< and more from the upstream
  all,    ///< and the host's waiting, and giving idle segments back to grow anew
};

/// What of a pool's budget is neither held nor free, for its line in a report.
inline std::string under_way_text(pool_snapshot const& s) {
  return s.under_way == 0 ? std::string() : " (and " + format_bytes(s.under_way) + " on their way)";
}

/// What of a pool is kept for graphs, for its line in a report.
inline std::string captured_text(pool_numbers const& n) {
  return n.captured == 0 ? std::string() : " + " + format_bytes(n.captured) + " captured";
}

/// What of a pool has no memory for now, for its line in a report.
inline std::string parked_text(pool_snapshot const& s) {
  return s.is_parked ? "; " + format_bytes(s.numbers.parked) + " of it parked: call unpark() first" : std::string();
}

/// The size from which blocks are kept whole, in units.
inline units max_split_units(pool const& options) noexcept {
  std::size_t const bytes = options.max_split_bytes;
  return bytes == 0 || bytes > max_block_bytes ? ~units{0} : static_cast<units>(bytes / unit_bytes);
}

inline constexpr std::size_t growth_granularity = std::size_t{2} << 20;

/// How much to grow by for a request of `least` bytes when so much is held. Small requests share a segment; one that is
/// not small gets a segment of its size, since the rest of a larger one would mostly be left over. `has_small`: most of
/// what is live is small and kept at hand when it is freed, so that the more room there is the more is found there.
inline std::size_t growth_step(pool const& options, std::size_t least, std::size_t reserved, bool has_small) noexcept {
  if (options.growth_bytes != 0) return greater(least, lesser(options.growth_bytes, max_block_bytes));
  std::size_t const room = has_small ? lesser(reserved / 2, 8 * growth_granularity) : 0;
  std::size_t const step = lesser(greater(greater(reserved / 20, room), growth_granularity), growth_granularity * 512);
  return least < step / 2 ? step : least;
}

/// The same, rounded to what a device can map. A segment that is to be cut has to be smaller than those of `max_split`
/// units that are kept whole.
inline std::size_t growth_for(pool const& options, std::size_t least, units max_split, std::size_t reserved,
                              bool has_small) noexcept {
  std::size_t const most_cut = std::size_t{max_split - 1} * unit_bytes;
  if (least > most_cut) return round_up_or_zero(least, growth_granularity);
  return lesser(round_up_or_zero(growth_step(options, least, reserved, has_small), growth_granularity), most_cut);
}

/// Requests up to a third of this share no less, where the pool holds enough to afford it: in smaller segments fewer
/// sizes fit together.
inline constexpr std::size_t least_shared_step = std::size_t{96} << 20;

/// The most that may be held before idle memory is used up, when at most `live` bytes were live; `least`: bytes above
/// that which always may.
inline std::size_t most_held(pool const& options, std::size_t live, std::size_t least) noexcept {
  double const slack = options.max_waste * static_cast<double>(live);
  if (!(slack < static_cast<double>(max_block_bytes))) return ~std::size_t{0};
  return live + greater(least, static_cast<std::size_t>(slack));
}

}  // namespace detail
}  // namespace weir
