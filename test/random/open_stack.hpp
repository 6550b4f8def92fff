#pragma once
// A stack for tests that are the same for all stacks: its type is forgotten, but what its layers can do is at hand.

#include <weir/core/any_resource.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/live_block.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/sim/sim.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace open_stack {

/// What a layer says of itself.
struct account {
  static constexpr std::uint64_t unsaid = ~std::uint64_t{0};

  std::uint64_t requested = unsaid, allocated = unsaid;           // bytes, of live blocks
  std::uint64_t live = unsaid, served = unsaid, failed = unsaid;  // how many
  bool sees_some = false;                                         // some requests pass it by, or it makes two of one
  bool takes_as_asked = true;                                     // whole units are what it takes of what is below
  bool keeps = false;           // serves out of memory of its own, of which it holds ...
  std::uint64_t held = 0;       // bytes
  std::uint64_t segments = 0;   // in so many pieces
  bool pads_segments = false;   // asks for them with an alignment for which a source needs more
  char const* wrong = nullptr;  // which of its numbers contradict each other

  friend bool operator==(account const&, account const&) = default;
};

/// What a budget counts, a `statistics`, and a pool of any kind.
template <class Layer>
requires requires(Layer const& layer) { layer.used(); }
account account_of(Layer const& layer) {
  bool const is_kept = layer.used() <= layer.peak() && layer.peak() <= layer.max_bytes();
  return {.allocated = layer.used() - layer.captured() - layer.kept(),
          .wrong = is_kept ? nullptr : "more than the budget is in use"};
}
template <class Layer>
requires requires(Layer const& layer) { layer.numbers().failures; }
account account_of(Layer const& layer) {
  auto const now = layer.numbers();
  auto const unsigned_of = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  bool const is_peak = now.requested.current <= now.requested.peak && now.allocations.current <= now.allocations.peak;
  return {.requested = unsigned_of(now.requested.current),
          .allocated = unsigned_of(now.allocated.current),
          .live = unsigned_of(now.allocations.current),
          .served = unsigned_of(now.allocations.total),
          .failed = unsigned_of(now.failures),
          .wrong = is_peak ? nullptr : "a peak is lower than what is live"};
}
template <class Layer>
concept pads_segments = requires {
  Layer::segment_alignment;
};
/// Segments, or chunks of a growable upstream.
template <class Layer, class Numbers>
std::uint64_t pieces_held(Layer const& layer, Numbers const& now) {
  if constexpr (requires { layer.upstream().chunk_bytes(); })
    return now.reserved.current / layer.upstream().chunk_bytes();
  else
    return now.growths - now.releases;
}
template <class Layer>
requires requires(Layer const& layer) { layer.numbers().pending; }
account account_of(Layer const& layer) {
  auto const now = layer.numbers();
  auto const is_peak = [](auto const& level) { return level.current <= level.peak; };
  char const* wrong = nullptr;
  if (!is_peak(now.requested) || !is_peak(now.reserved)) wrong = "a peak is lower than what is live";
  if (now.requested.current > now.allocated.current) wrong = "blocks are smaller than requests";
  // Each by itself, too: what is pending may be what is left, and then it wraps.
  if (now.pending > now.reserved.current) wrong = "more is pending than is reserved";
  if (now.reserved.current != now.allocated.current + now.pending + now.free + now.captured)
    wrong = "what is reserved is not the sum of its parts";
  return {.requested = now.requested.current,
          .allocated = now.allocated.current,
          .live = now.allocations - now.deallocations,
          .served = now.allocations,
          .keeps = true,
          .held = now.reserved.current,
          .segments = pieces_held(layer, now),
          .pads_segments = pads_segments<Layer>,
          .wrong = wrong};
}
template <class Layer>
requires requires(Layer const& layer) { layer.bin_count(); }
account account_of(Layer const&) { return {.sees_some = true}; }
template <class Layer>
requires requires(Layer& layer) { layer.second(); }
account account_of(Layer const& layer) {
  auto const now = layer.numbers();
  bool const is_none = (now.second_live == 0) == (now.second_live_bytes == 0);
  return {.sees_some = true, .wrong = is_none ? nullptr : "blocks and bytes of the second stack differ"};
}
/// What raises alignments: what is below is asked for other things than the program asks for.
template <class Layer>
requires requires(Layer const& layer) { layer.from_bytes(); }
account account_of(Layer const&) { return {.sees_some = true}; }
/// What asks for whole units.
template <class Layer>
requires requires(Layer const& layer) { layer.kept_bytes(); }
account account_of(Layer const&) { return {.sees_some = true}; }

/// A stack, made anew for each program. Functions that the stack lacks are empty.
struct stack {
  std::function<void*(weir::stream_ref, std::size_t, std::size_t)> allocate;
  std::function<void(weir::stream_ref, void*, std::size_t, std::size_t)> deallocate;
  std::function<void(weir::stream_ref, void*, std::size_t, weir::stream_list, std::size_t)> deallocate_after;
  std::function<weir::live_block(void const*)> find_block;
  std::function<std::size_t(std::size_t bytes, std::size_t alignment)> taken;
  std::function<void(std::size_t keep)> trim;
  std::function<void()> synchronize;
  std::function<void()> sleep;  // parks and unparks
  std::function<void(std::uint64_t capture)> release_captured;
  std::function<std::string()> describe;
  int device = -1;                                 ///< as the stack says
  std::vector<std::function<account()>> accounts;  ///< of the layers that count, from the top down
  bool pooled = false;                             ///< one layer serves all requests out of memory that it keeps
  std::shared_ptr<void> owner;
};

/// Calls so far that give something back to CUDA: where one of them fails, that is lost, and no fault of the stack's.
inline std::uint64_t calls_that_give_back() {
  std::uint64_t sum = 0;
  for (char const* name :
       {"cudaFree", "cudaFreeAsync", "cudaFreeHost", "cudaMemPoolDestroy", "cudaStreamDestroy", "cudaEventDestroy"})
    sum += weir::sim::calls(name);
  return sum;
}

/// Adds what one layer can do. `from_below`: it stands above those that were added before, not below.
template <class Layer>
void add_layer(stack& s, Layer& layer, bool from_below = false) {
  auto const then = [](auto& list, auto f) {
    list = [before = std::move(list), f](auto&&... argument) {
      if (before) before(argument...);
      f(argument...);
    };
  };
  if constexpr (requires { layer.trim(std::size_t{}); })
    then(s.trim, [&layer](std::size_t keep) { layer.trim(keep); });
  else if constexpr (requires { layer.trim_layer(std::size_t{}); })
    then(s.trim, [&layer](std::size_t keep) { layer.trim_layer(keep); });
  if constexpr (requires { layer.sleep(); }) then(s.sleep, [&layer] { layer.sleep(); });
  if constexpr (requires { layer.synchronize(); }) then(s.synchronize, [&layer] { layer.synchronize(); });
  if constexpr (requires { layer.release_captured(std::uint64_t{}); }) {
    // Bins and a fallback leave the rest to their upstream, what scrubs keeps nothing else, and a check nothing at all.
    if constexpr (
        !requires { layer.bin_count(); } && !requires { layer.second(); } && !requires { layer.kept_bytes(); } &&
        !requires { layer.scope_below(); })
      s.pooled = true;
    then(s.release_captured, [&layer](std::uint64_t capture) { layer.release_captured(capture); });
  }
  if constexpr (requires { account_of(layer); }) {
    bool as_asked = true;
    // The second is no size class of a pool's, which takes more then.
    for (std::size_t const bytes : {256u, 4352u, 65536u, 1u << 20, 3u << 20})
      as_asked &= weir::taken(layer, bytes) == bytes;
    s.accounts.insert(from_below ? s.accounts.begin() : s.accounts.end(), [&layer, as_asked] {
      account now = account_of(layer);
      now.takes_as_asked = as_asked;
      return now;
    });
  }
}

template <class Top>
void add_layers(stack& s, Top& top) {
  add_layer(s, top);
  if constexpr (requires { top.upstream(); }) add_layers(s, top.upstream());
}

template <weir::recipe F>
stack make_stack(F const& recipe) {
  struct holder {
    weir::made_by<F> top;
    explicit holder(F const& f) : top(f()) {}
  };
  auto const held = std::make_shared<holder>(recipe);
  stack s;
  s.allocate = [&top = held->top](weir::stream_ref st, std::size_t n, std::size_t a) { return top.allocate(st, n, a); };
  s.deallocate = [&top = held->top](weir::stream_ref st, void* p, std::size_t n, std::size_t a) {
    top.deallocate(st, p, n, a);
  };
  s.deallocate_after = [&top = held->top](weir::stream_ref st, void* p, std::size_t n, weir::stream_list others,
                                          std::size_t a) { weir::deallocate_after(top, st, p, n, others, a); };
  s.find_block = [&top = held->top](void const* p) { return weir::find_block(top, p); };
  s.taken = [&top = held->top](std::size_t n, std::size_t a) { return weir::taken(top, n, a); };
  s.describe = [&top = held->top] {
    weir::report const r = weir::report_of(top);
    return r.chain() + r.lines();
  };
  add_layers(s, held->top);
  s.device = weir::device_of(held->top);
  s.owner = held;
  return s;
}

// ---- the same, where each layer's type is forgotten too

using anything = weir::basic_any_resource<false, false>;

/// Lets a stack's owner reach the functions of a layer whose type is forgotten.
template <weir::resource Upstream>
class exposed_resource;
struct exposed {
  stack* into;
  template <weir::resource Upstream>
  using on = exposed_resource<Upstream>;
};
template <weir::resource Upstream>
class exposed_resource {
 public:
  template <weir::recipe F>
  exposed_resource(F const& upstream, exposed const& options) : upstream_(upstream()) {
    add_layer(*options.into, upstream_, true);
  }
  void* allocate(weir::stream_ref s, std::size_t n, std::size_t a) { return upstream_.allocate(s, n, a); }
  void deallocate(weir::stream_ref s, void* p, std::size_t n, std::size_t a) noexcept {
    upstream_.deallocate(s, p, n, a);
  }
  void deallocate_after(weir::stream_ref s, void* p, std::size_t n, weir::stream_list others, std::size_t a) noexcept {
    weir::deallocate_after(upstream_, s, p, n, others, a);
  }
  static constexpr bool host_ordered = weir::host_ordered<Upstream>;
  void describe(weir::report& out) const { weir::describe(upstream_, out); }
  Upstream const& upstream() const noexcept { return upstream_; }

 private:
  Upstream upstream_;
};

}  // namespace open_stack
