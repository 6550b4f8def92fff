#pragma once
// How many free lists a pool keeps for streams that it has not seen yet.

#include <weir/pool/order/stream_key.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace weir::detail {

/// A free list cannot be made where memory is freed, since that takes host memory: it has to be there before. How many
/// are needed is learnt from the streams that come, found none, or come again. Knows nothing of the lists themselves.
/// Guarded by its pool's lock.
class spare_lists {
 public:
  static constexpr std::size_t least = 4;  ///< for one allocation

  /// How many lists are to be there for streams not seen before.
  std::size_t wanted() const noexcept { return wanted_; }

  /// The host waits for what a stream freed, for which there was no list: from now on one more is kept spare, so that a
  /// program that frees on many new streams at a time waits once, and not each time. `none_left`: that was the reason.
  void missed(stream_key key, bool none_left) noexcept {
    std::uint64_t const place = static_cast<std::uint64_t>(key) * 0x9e3779b97f4a7c15u >> 54;
    std::uint64_t const bit = std::uint64_t{1} << place % 64;
    bool const is_known = (std::exchange(missed_[place / 64], missed_[place / 64] | bit) & bit) != 0;
    if (!is_known && none_left && wanted_ != most) ++wanted_;
  }
  /// There is room for all that missed one.
  void made_room() noexcept {
    for (std::uint64_t& some : missed_) some = 0;
  }

  /// A stream has a list from now on, or has none any more.
  void met(stream_key key) noexcept {
    ++met_;
    for (stream_key const& forgotten : forgotten_) {
      if (forgotten != key) continue;
      ++met_again_;
      return;
    }
  }
  void forgot(stream_key key) noexcept { forgotten_[next_forgotten_++ % places] = key; }
  /// True if most of the streams met since this was asked before had been forgotten shortly before.
  bool most_come_again() noexcept { return 2 * std::exchange(met_again_, 0u) > std::exchange(met_, 0u); }

 private:
  static constexpr std::size_t most = 256, places = 64;

  std::size_t wanted_ = least;
  std::uint64_t missed_[16] = {};      // a bit for each stream that found no list, by its key's hash
  stream_key forgotten_[places] = {};  // the last ones
  std::size_t next_forgotten_ = 0;
  unsigned met_ = 0, met_again_ = 0;
};

}  // namespace weir::detail
