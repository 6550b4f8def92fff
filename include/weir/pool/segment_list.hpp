#pragma once
// The segments that a pool holds.

#include <weir/pool/heap/block_table.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>

namespace weir::detail {

/// What came from the upstream in one piece.
struct segment {
  void* address = nullptr;
  std::size_t bytes = 0;
  block_id first = 0;  ///< begins where the segment does, for as long as that is held
};

/// Segments in no order. Constant time but for growth. Not thread-safe.
class segment_list {
 public:
  /// Room for one more; may throw `std::bad_alloc`.
  void reserve() {
    if (size_ == held_.size()) held_.grow(2 * size_ + 4);
  }
  /// Needs room reserved.
  void add(segment const& s) noexcept { held_[size_++] = s; }
  /// Returns it; the last one takes its place.
  segment remove(std::size_t i) noexcept {
    segment const gone = held_[i];
    held_[i] = held_[--size_];
    return gone;
  }

  std::size_t size() const noexcept { return size_; }
  std::size_t host_bytes() const noexcept { return held_.bytes(); }
  segment const& operator[](std::size_t i) const noexcept { return held_[i]; }
  segment const* begin() const noexcept { return held_.data(); }
  segment const* end() const noexcept { return held_.data() + size_; }

 private:
  grown_array<segment> held_;
  std::size_t size_ = 0;
};

}  // namespace weir::detail
