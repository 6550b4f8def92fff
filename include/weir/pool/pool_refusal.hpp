#pragma once
// What a pool had, and what it had tried, when it refused a request; and what that says to people.

#include <weir/core/bytes.hpp>
#include <weir/core/growable.hpp>
#include <weir/core/shown_memory.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/pool/pool_options.hpp>

#include <cstddef>
#include <new>
#include <string>

namespace weir::detail {

/// What a pool holds, as so many characters: `*` in use, `x` pending, `c` captured, `_` free, each for what most of its
/// share is. Segments stand one behind the other.
class occupancy_bar {
 public:
  static constexpr std::size_t cells = 64;
  /// Of more pieces no bar is drawn: it takes some ns for each, under the pool's lock, and a program that is short of
  /// memory can be refused often.
  static constexpr std::size_t most_pieces = 20'000;

  /// Of so many bytes in all.
  explicit occupancy_bar(std::size_t bytes = 0) noexcept : a_cell_(bytes / cells + (bytes % cells != 0)) {}

  /// The next piece; what has no memory takes no room.
  void add(std::size_t bytes, memory_state state) noexcept {
    if (state == memory_state::unmapped || a_cell_ == 0) return;
    while (bytes != 0) {
      std::size_t const left = a_cell_ - at_ % a_cell_, part = bytes < left ? bytes : left;
      shares_[static_cast<std::size_t>(state)] += part;
      at_ += part;
      bytes -= part;
      if (at_ % a_cell_ == 0) end_cell();
    }
  }
  /// `[***__x]`; empty where there was nothing.
  std::string text() const {
    occupancy_bar ended = *this;
    if (a_cell_ != 0 && at_ % a_cell_ != 0) ended.end_cell();
    return ended.count_ == 0 ? std::string() : "[" + std::string(ended.text_, ended.count_) + "]";
  }

 private:
  void end_cell() noexcept {
    constexpr char characters[] = {'*', '_', 'x', 'c'};  // by state
    std::size_t most = 0;
    for (std::size_t i = 1; i < 4; ++i)
      if (shares_[i] > shares_[most]) most = i;
    if (count_ < cells) text_[count_++] = characters[most];
    for (std::size_t& share : shares_) share = 0;
  }

  std::size_t a_cell_;
  std::size_t at_ = 0;
  std::size_t shares_[4] = {};
  std::size_t count_ = 0;
  char text_[cells] = {};
};

/// What a pool tried for a request before it refused it, and what that gave, in bytes.
struct pool_attempts {
  bool searched = false;       ///< else it was refused at once
  bool waited = false;         ///< for work on freed blocks
  std::size_t done = 0;        ///< of the blocks that it waited for
  std::size_t given_back = 0;  ///< idle memory, so that the upstream has it again
};

/// All that a report says of a refusal.
struct pool_refused {
  pool_snapshot at;
  pool_attempts tried;
  occupancy_bar bar;
};

/// Costs the requests that are served nothing: it is not even set to zero.
class pool_refusal {
 public:
  pool_refusal() noexcept {}
  void set(pool_refused const& r) noexcept { ::new (&is_) pool_refused(r); }
  /// Only once a request was refused.
  pool_refused const& is() const noexcept { return is_; }

 private:
  union {
    pool_refused is_;
  };
};

/// The line `tried` of a report; empty where nothing was.
inline std::string tried_text(pool_attempts const& tried) {
  if (!tried.searched) return {};
  std::string text = tried.waited ? "waited for freed blocks: " + format_bytes(tried.done) + " became free"
                                  : "did not wait for freed blocks";
  if (tried.given_back != 0) text += "; gave " + format_bytes(tried.given_back) + " back and asked for a segment again";
  return text + "; no fit";
}

/// The share of free and pending memory that is outside its largest piece: `, 94.7 % lies outside of it`.
inline std::string outside_text(pool_snapshot const& s) {
  std::size_t const idle = s.numbers.free + s.numbers.pending;
  if (idle <= s.largest_free) return {};
  std::size_t const tenths =
      static_cast<std::size_t>(1000.0 * static_cast<double>(idle - s.largest_free) / static_cast<double>(idle));
  return ", " + std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " % lies outside of it";
}

/// What a pool may hold of `upstream` that `max_bytes` allow, 0: all: of a growable one whole chunks.
template <class Upstream>
std::size_t most_of(Upstream const& upstream, std::size_t max_bytes) noexcept {
  if constexpr (growable<Upstream>) {
    std::size_t const chunk = upstream.chunk_bytes(), whole = max_bytes / chunk * chunk;
    return max_bytes == 0 ? 0 : greater(whole, 1);
  } else {
    return max_bytes;
  }
}

/// What to do, by the cause: the first thing that alone would have served the request. `needed`: bytes of its block
/// and of the room to align it, 0 where that cannot be counted; `max_bytes`: the pool's, 0: none. `is_declared`: some
/// capture is, so that streams which are known without a call are not asked for what they freed. `grows`: in place.
inline std::string refusal_hint(pool_snapshot const& s, std::size_t needed, std::size_t max_bytes, bool is_capturing,
                                bool is_declared = captures_declared(), bool grows = false) {
  pool_numbers const& n = s.numbers;
  if (s.is_parked) return "the pool is parked: call unpark() first";
  if (needed == 0) return "no pool serves a request of that size with that alignment: ask for less at a time";
  if (max_bytes != 0 && needed > max_bytes)
    return "the request is larger than the pool may ever be (" +
           (max_bytes < unit_bytes ? std::string("its max_bytes is less than a chunk")
                                   : "at most " + format_bytes(max_bytes)) +
           "): ask for less at a time (with_retry), or raise max_bytes";
  if (s.range_bytes != 0 && needed > s.range_bytes - lesser(s.range_bytes, n.allocated.current))
    return "there is no room for it among the pool's addresses (" + format_bytes(s.range_bytes) +
           ") beside what is live: raise range_bytes of virtual_memory, free something, or ask for less at a time";
  std::size_t const room = max_bytes - lesser(max_bytes, n.reserved.current);  // none where there is no limit
  bool const is_in_pieces = n.free >= needed || (room < needed && n.free != 0 && n.free + room >= needed);
  if (s.largest_free < needed && is_in_pieces)
    return std::string("enough is free, but not in one piece: free what lies between (weir::snapshot shows it), or ") +
           (grows ? "ask for less: what is free lies in chunks that cannot move"
                  : "let the pool stand on virtual_memory, which joins pieces");
  bool const is_pending = n.pending != 0 && n.free + n.pending >= needed;
  if (is_pending && is_declared)
    return format_bytes(n.pending) +
           " was freed on streams that are not asked for it while a capture is declared: call weir::synchronize before "
           "the capture_scope is made, or when it is gone";
  if (is_capturing)
    return "the stream is being captured: free what it needs, or take it from the pool once, before the capture begins";
  if (is_pending)
    return format_bytes(n.pending) +
           " was freed on streams whose work is not done: wait for them (weir::synchronize), or let the pool wait "
           "(synchronize = true)";
  if (n.captured != 0 && n.free + n.pending + n.captured >= needed)
    return format_bytes(n.captured) + " is kept for captured graphs: weir::release_captured when they are gone";
  if (grows && s.range_bytes == 0 && needed <= max_block_bytes)
    return "this process has no addresses left for a range: set range_bytes of virtual_memory to less, or use fewer "
           "pools";
  if (max_bytes != 0 && room < needed)
    return "what the pool may hold is in use: raise max_bytes, free something, or ask for less";
  return "no free piece fits, and the layer below gave no more: free something, ask for less, or let a layer give way "
         "(on_failure, spill, fallback)";
}

}  // namespace weir::detail
