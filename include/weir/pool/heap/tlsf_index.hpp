#pragma once
// Free blocks by size: finds one that fits in constant time.

#include <weir/pool/heap/block_table.hpp>
#include <weir/pool/heap/size_class.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// Two-level segregated lists with bitmaps over the records of a `block_table`. Good fit: the tightest of the first few
/// blocks in the request's own class, else the latest of the next class that has one. The heads of the lists lie behind
/// it, zeros at first: those of each row up to the largest block's, since few pools have large ones. Not thread-safe.
class tlsf_index {
 public:
  /// Bytes behind it where no block is larger than this, or than any of its row.
  static constexpr std::size_t bytes_behind(units largest) noexcept {
    return (std::size_t{size_class::of(largest).row()} + 1) * size_class::per_row * sizeof(block_id);
  }

  void insert(block_table& blocks, block_id id) noexcept { insert(blocks, id, size_class::of(blocks[id].size)); }
  void remove(block_table& blocks, block_id id) noexcept { remove(blocks, id, size_class::of(blocks[id].size)); }

  /// The block has another size than the `before` that it was inserted with.
  [[gnu::always_inline]] void resized(block_table& blocks, block_id id, units before) noexcept {
    size_class const was = size_class::of(before), is = size_class::of(blocks[id].size);
    if (was == is) return;
    remove(blocks, id, was);
    insert(blocks, id, is);
  }

  bool empty() const noexcept { return rows_ == 0; }

  /// A block of at least `size` units, or 0. Looks at no more than four blocks.
  block_id find(block_table const& blocks, units size) const noexcept {
    return find(blocks, size, size_class::of(size));
  }
  /// The same for who knows the size's class.
  [[gnu::always_inline]] block_id find(block_table const& blocks, units size, size_class own) const noexcept {
    if (rows_ == 0) return 0;
    if ((columns_[own.row()] >> own.column() & 1u) != 0)
      if (block_id const found = tightest(blocks, heads()[own.number], size); found != 0) return found;
    // Every block of a later class is larger than any of this one.
    if (std::uint32_t const later = columns_[own.row()] & after(own.column()); later != 0)
      return head(own.row(), lowest(later));
    std::uint32_t const later_rows = rows_ & after(own.row());
    if (later_rows == 0) return 0;
    unsigned const row = lowest(later_rows);
    return head(row, lowest(columns_[row]));
  }

  /// The first block of the size's own class that is as large and that `fits(block)` accepts, or 0.
  template <class Fits>
  block_id find_in_class(block_table const& blocks, units size, Fits fits) const noexcept {
    size_class const own = size_class::of(size);
    block_id id = (columns_[own.row()] >> own.column() & 1u) != 0 ? heads()[own.number] : 0;
    while (id != 0 && (blocks[id].size < size || !fits(blocks[id]))) id = blocks[id].list_next;
    return id;
  }

  /// The first block from the size's own class on that is as large and that `fits(block)` accepts; 0 if none of the
  /// first `looks` does.
  template <class Fits>
  block_id find_first(block_table const& blocks, units size, unsigned looks, Fits fits) const noexcept {
    size_class const own = size_class::of(size);
    for (std::uint32_t rows = rows_ & (~std::uint32_t{0} << own.row()); rows != 0; rows &= rows - 1) {
      unsigned const row = lowest(rows);
      std::uint32_t columns = columns_[row];
      if (row == own.row()) columns &= ~std::uint32_t{0} << own.column();
      for (; columns != 0; columns &= columns - 1)
        for (block_id id = head(row, lowest(columns)); id != 0; id = blocks[id].list_next, --looks) {
          if (looks == 0) return 0;
          if (blocks[id].size >= size && fits(blocks[id])) return id;
        }
    }
    return 0;
  }

  /// The size of the largest free block, in units; looks at the blocks of one class.
  units largest(block_table const& blocks) const noexcept {
    if (rows_ == 0) return 0;
    unsigned const row = highest(rows_);
    units most = 0;
    for (block_id id = head(row, highest(columns_[row])); id != 0; id = blocks[id].list_next)
      if (blocks[id].size > most) most = blocks[id].size;
    return most;
  }

  /// Removes one of the smallest blocks and returns it; 0 if there is none.
  block_id remove_any(block_table const& blocks) noexcept {
    if (rows_ == 0) return 0;
    size_class const c = size_class::at(lowest(rows_), lowest(columns_[lowest(rows_)]));
    block_id const id = heads()[c.number];
    remove_first(blocks, id, c);
    return id;
  }
  /// Calls `f(id)` for every block until it says `true`.
  template <class F>
  bool any_of(block_table const& blocks, F f) const {
    for (std::uint32_t rows = rows_; rows != 0; rows &= rows - 1)
      for (std::uint32_t columns = columns_[lowest(rows)]; columns != 0; columns &= columns - 1)
        for (block_id id = head(lowest(rows), lowest(columns)); id != 0; id = blocks[id].list_next)
          if (f(id)) return true;
    return false;
  }

  /// The same from the class of `most` units down to that of `least`.
  template <class F>
  bool any_from_largest(block_table const& blocks, units least, units most, F f) const {
    size_class const last = size_class::of(least), first = size_class::of(most);
    for (unsigned row = first.row() + 1; row-- > last.row();) {
      std::uint32_t columns = columns_[row];
      if (row == first.row()) columns &= ~after(first.column());
      if (row == last.row()) columns &= ~std::uint32_t{0} << last.column();
      for (; columns != 0; columns &= ~(1u << highest(columns)))
        for (block_id id = head(row, highest(columns)); id != 0; id = blocks[id].list_next)
          if (f(id)) return true;
    }
    return false;
  }

  /// Checks lists and bitmaps, where no block may be larger than `most`; slow, for tests.
  bool valid(block_table const& blocks, units most = ~units{0}) const {
    for (unsigned row = 0; row < size_class::rows; ++row) {
      if (((rows_ >> row & 1u) != 0) != (columns_[row] != 0)) return false;
      for (unsigned column = 0; column < size_class::per_row; ++column) {
        block_id previous = 0;
        block_id id = row <= size_class::of(most).row() ? head(row, column) : 0;
        if (((columns_[row] >> column & 1u) != 0) != (id != 0)) return false;
        for (; id != 0; previous = id, id = blocks[id].list_next) {
          if ((previous != 0 && blocks[id].list_previous != previous) || !blocks[id].is_free()) return false;
          if (size_class::of(blocks[id].size) != size_class::at(row, column)) return false;
        }
      }
    }
    return true;
  }

 private:
  static constexpr int candidates = 4;

  block_id* heads() noexcept { return reinterpret_cast<block_id*>(this + 1); }
  block_id const* heads() const noexcept { return reinterpret_cast<block_id const*>(this + 1); }
  block_id head(unsigned row, unsigned column) const noexcept { return heads()[size_class::at(row, column).number]; }
  static std::uint32_t after(unsigned bit) noexcept { return ~std::uint32_t{1} << bit; }
  static unsigned lowest(std::uint32_t bits) noexcept { return static_cast<unsigned>(std::countr_zero(bits)); }
  static unsigned highest(std::uint32_t bits) noexcept { return static_cast<unsigned>(std::bit_width(bits)) - 1; }

  void insert(block_table& blocks, block_id id, size_class c) noexcept {
    block_id& head = heads()[c.number];
    blocks[id].list_next = head;
    if (head != 0) blocks[head].list_previous = id;
    head = id;
    columns_[c.row()] |= 1u << c.column();
    rows_ |= 1u << c.row();
  }

  // The first of a list is known by the head: its own link to the previous is never read, so that taking the first, the
  // most common case, does not touch the second.
  void remove(block_table& blocks, block_id id, size_class c) noexcept {
    block const& gone = blocks[id];
    block_id& head = heads()[c.number];
    if (head != id) {
      blocks[gone.list_previous].list_next = gone.list_next;
      if (gone.list_next != 0) blocks[gone.list_next].list_previous = gone.list_previous;
      return;
    }
    remove_first(blocks, id, c);
  }
  void remove_first(block_table const& blocks, block_id id, size_class c) noexcept {
    heads()[c.number] = blocks[id].list_next;
    if (heads()[c.number] != 0) return;
    columns_[c.row()] &= ~(1u << c.column());
    if (columns_[c.row()] == 0) rows_ &= ~(1u << c.row());
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
};

}  // namespace weir::detail
