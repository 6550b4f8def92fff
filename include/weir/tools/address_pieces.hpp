#pragma once
// Addresses that have something in common, as pieces.

#include <weir/version.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace weir::detail {

/// A set of addresses, as pieces that neither overlap nor touch. Not thread-safe.
class address_pieces {
 public:
  void add(std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    auto first = pieces_.upper_bound(begin);
    if (first != pieces_.begin() && std::prev(first)->second >= begin) --first;
    auto last = first;
    for (; last != pieces_.end() && last->first <= end; ++last) {
      begin = std::min(begin, last->first);
      end = std::max(end, last->second);
    }
    pieces_.erase(first, last);
    pieces_[begin] = end;
  }
  /// All of these are in it.
  void remove(std::uint64_t begin, std::uint64_t end) {
    auto const around = std::prev(pieces_.upper_bound(begin));
    auto const [piece_begin, piece_end] = *around;
    pieces_.erase(around);
    if (piece_begin < begin) pieces_[piece_begin] = begin;
    if (end < piece_end) pieces_[end] = piece_end;
  }
  bool contains(std::uint64_t begin, std::uint64_t end) const {
    auto const after = pieces_.upper_bound(begin);
    return after != pieces_.begin() && end <= std::prev(after)->second;
  }
  bool overlaps(std::uint64_t begin, std::uint64_t end) const {
    auto const after = pieces_.lower_bound(end);
    return after != pieces_.begin() && begin < std::prev(after)->second;
  }
  auto begin() const { return pieces_.begin(); }
  auto end() const { return pieces_.end(); }

 private:
  std::map<std::uint64_t, std::uint64_t> pieces_;  // by begin
};

}  // namespace weir::detail
