#pragma once
// Free blocks by size: finds one that fits in constant time.

#include <weir/pool/heap/block_table.hpp>
#include <weir/pool/heap/size_class.hpp>

#include <bit>
#include <cstdint>

namespace weir::detail {

/// Two-level segregated lists with bitmaps over the records of a `block_table`. Good fit: the tightest of the first few
/// blocks in the request's own class, else the latest of the next class that has one. Not thread-safe.
class tlsf_index {
 public:
  void insert(block_table& blocks, block_id id) noexcept { insert(blocks, id, size_class::of(blocks[id].size)); }
  void remove(block_table& blocks, block_id id) noexcept { remove(blocks, id, size_class::of(blocks[id].size)); }

  /// The block has another size than the `before` that it was inserted with.
  void resized(block_table& blocks, block_id id, units before) noexcept {
    size_class const was = size_class::of(before), is = size_class::of(blocks[id].size);
    if (was == is) return;
    remove(blocks, id, was);
    insert(blocks, id, is);
  }

  bool empty() const noexcept { return rows_ == 0; }

  /// A block of at least `size` units, or 0. Looks at no more than four blocks.
  block_id find(block_table const& blocks, units size) const noexcept {
    if (rows_ == 0) return 0;
    size_class const own = size_class::of(size);
    if ((columns_[own.row] >> own.column & 1u) != 0)
      if (block_id const found = tightest(blocks, heads_[own.row][own.column], size); found != 0) return found;
    // Every block of a later class is larger than any of this one.
    if (std::uint32_t const later = columns_[own.row] & after(own.column); later != 0)
      return heads_[own.row][lowest(later)];
    std::uint32_t const later_rows = rows_ & after(own.row);
    if (later_rows == 0) return 0;
    unsigned const row = lowest(later_rows);
    return heads_[row][lowest(columns_[row])];
  }

  /// The first block of the size's own class that is as large and that `fits(block)` accepts, or 0.
  template <class Fits>
  block_id find_in_class(block_table const& blocks, units size, Fits fits) const noexcept {
    size_class const own = size_class::of(size);
    block_id id = heads_[own.row][own.column];
    while (id != 0 && (blocks[id].size < size || !fits(blocks[id]))) id = blocks[id].list_next;
    return id;
  }

  /// The size of the largest free block, in units; looks at the blocks of one class.
  units largest(block_table const& blocks) const noexcept {
    if (rows_ == 0) return 0;
    unsigned const row = static_cast<unsigned>(std::bit_width(rows_)) - 1;
    unsigned const column = static_cast<unsigned>(std::bit_width(columns_[row])) - 1;
    units most = 0;
    for (block_id id = heads_[row][column]; id != 0; id = blocks[id].list_next)
      if (blocks[id].size > most) most = blocks[id].size;
    return most;
  }

  /// Any block, or 0: all of them, if each is removed before the next is asked for.
  block_id any() const noexcept {
    if (rows_ == 0) return 0;
    unsigned const row = lowest(rows_);
    return heads_[row][lowest(columns_[row])];
  }
  /// Calls `f(id)` for every block until it says `true`.
  template <class F>
  bool any_of(block_table const& blocks, F f) const {
    for (std::uint32_t rows = rows_; rows != 0; rows &= rows - 1)
      for (std::uint32_t columns = columns_[lowest(rows)]; columns != 0; columns &= columns - 1)
        for (block_id id = heads_[lowest(rows)][lowest(columns)]; id != 0; id = blocks[id].list_next)
          if (f(id)) return true;
    return false;
  }

  /// The same from the class of the largest blocks down to that of `least` units.
  template <class F>
  bool any_from_largest(block_table const& blocks, units least, F f) const {
    size_class const last = size_class::of(least);
    for (unsigned row = size_class::rows; row-- > last.row;)
      for (unsigned column = size_class::per_row; column-- > (row == last.row ? last.column : 0);)
        for (block_id id = heads_[row][column]; id != 0; id = blocks[id].list_next)
          if (f(id)) return true;
    return false;
  }

  /// Checks lists and bitmaps; slow, for tests.
  bool valid(block_table const& blocks) const {
    for (unsigned row = 0; row < size_class::rows; ++row) {
      if (((rows_ >> row & 1u) != 0) != (columns_[row] != 0)) return false;
      for (unsigned column = 0; column < size_class::per_row; ++column) {
        block_id previous = 0;
        block_id id = heads_[row][column];
        if (((columns_[row] >> column & 1u) != 0) != (id != 0)) return false;
        for (; id != 0; previous = id, id = blocks[id].list_next) {
          if ((previous != 0 && blocks[id].list_previous != previous) || !blocks[id].is_free()) return false;
          if (size_class::of(blocks[id].size) != size_class{row, column}) return false;
        }
      }
    }
    return true;
  }

 private:
  static constexpr int candidates = 4;

  static std::uint32_t after(unsigned bit) noexcept { return ~std::uint32_t{1} << bit; }
  static unsigned lowest(std::uint32_t bits) noexcept { return static_cast<unsigned>(std::countr_zero(bits)); }

  void insert(block_table& blocks, block_id id, size_class c) noexcept {
    block_id& head = heads_[c.row][c.column];
    blocks[id].list_next = head;
    if (head != 0) blocks[head].list_previous = id;
    head = id;
    columns_[c.row] |= 1u << c.column;
    rows_ |= 1u << c.row;
  }

  // The first of a list is known by the head: its own link to the previous is never read, so that taking the first, the
  // most common case, does not touch the second.
  void remove(block_table& blocks, block_id id, size_class c) noexcept {
    block const& gone = blocks[id];
    block_id& head = heads_[c.row][c.column];
    if (head != id) {
      blocks[gone.list_previous].list_next = gone.list_next;
      if (gone.list_next != 0) blocks[gone.list_next].list_previous = gone.list_previous;
      return;
    }
    head = gone.list_next;
    if (head != 0) return;
    columns_[c.row] &= ~(1u << c.column);
    if (columns_[c.row] == 0) rows_ &= ~(1u << c.row);
  }

  static block_id tightest(block_table const& blocks, block_id id, units size) noexcept {
    block_id best = 0;
    for (int looked = 0; id != 0 && looked < candidates; ++looked, id = blocks[id].list_next) {
      units const has = blocks[id].size;
      if (has == size) return id;
      if (has > size && (best == 0 || has < blocks[best].size)) best = id;
    }
    return best;
  }

  std::uint32_t rows_ = 0;
  std::uint32_t columns_[size_class::rows] = {};
  block_id heads_[size_class::rows][size_class::per_row] = {};
};

}  // namespace weir::detail
