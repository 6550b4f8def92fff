#pragma once
// Finds the slab that a pointer lies in.

#include <weir/pool/heap/slab.hpp>
#include <weir/pool/heap/slab_leaf.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>
#include <new>

namespace weir::detail {

/// Leaves of 4 MiB in a table from the lowest address of a slab to the highest. They cost host memory where slabs are
/// or were: 32 bytes or less a slab of half a MiB and more, at most ten a page of 64 KiB. Constant time but for growth.
/// Not thread-safe.
class slab_map {
 public:
  using word = slab_leaf::word;
  static constexpr std::uintptr_t leaf_span = slab_leaf::span;
  static constexpr std::uintptr_t most_span = leaf_span << 20;  ///< from the first leaf to the last: 4 TiB

  slab_map() = default;
  ~slab_map() {
    for (std::size_t i = 0; i < leaves_.size(); ++i) slab_leaf::drop(leaves_[i]);
  }
  slab_map(slab_map const&) = delete;
  slab_map& operator=(slab_map const&) = delete;

  /// False if no slab lies there or beyond.
  [[gnu::always_inline]] bool may_have(std::uintptr_t address) const noexcept { return address < end_; }
  /// What is known of the slab in whose pages an address lies. The last of them may be only partly the slab's.
  [[gnu::always_inline]] word find(std::uintptr_t address) const noexcept {
    std::uintptr_t offset = 0;
    if (address >= end_ || __builtin_sub_overflow(address, begin_, &offset)) return {};
    slab_leaf const* const in = leaves_[offset / leaf_span];
    return in == nullptr ? word() : in->of(page_in_leaf(offset));
  }

  /// False, and no slab added, if there is no host memory, or none below 2^48, or slabs would be too far apart.
  bool add(slab* added) noexcept try {
    if (!word::can_be_of(added) || !widen(down(added->begin()), down(last(*added)) + leaf_span)) return false;
    for_each_leaf(*added, [&](slab_leaf*& in, std::uintptr_t, std::uintptr_t) { make_room(in); });
    for_each_leaf(*added, [&](slab_leaf*& in, std::uintptr_t from, std::uintptr_t to) {
      in->add({added, down(from)}, page_in_leaf(from), page_in_leaf(to));
    });
    return true;
  } catch (std::bad_alloc const&) {
    return false;
  }
  void remove(slab const& gone) noexcept {
    for_each_leaf(gone, [](slab_leaf*& in, std::uintptr_t from, std::uintptr_t to) {
      in->remove(page_in_leaf(from), page_in_leaf(to));
    });
  }

  /// Bytes of host memory that are in use.
  std::size_t host_bytes() const noexcept { return leaves_.bytes() + leaf_bytes_; }

 private:
  static std::uintptr_t down(std::uintptr_t address) noexcept { return address / leaf_span * leaf_span; }
  static std::uintptr_t last(slab const& of) noexcept { return of.begin() + of.bytes() - 1; }
  /// Of an address, or how far that is behind the begin of some leaf.
  [[gnu::always_inline]] static std::size_t page_in_leaf(std::uintptr_t address) noexcept {
    return address / slab::page_bytes % slab_leaf::pages;
  }

  /// Has room for leaves from `begin` up to `end`; false if the table would be too long.
  bool widen(std::uintptr_t begin, std::uintptr_t end) {
    if (end_ != 0 && begin_ < begin) begin = begin_;
    if (end_ > end) end = end_;
    if (end - begin > most_span) return false;
    if (end - begin == end_ - begin_) return true;
    grown_array<slab_leaf*> wider((end - begin) / leaf_span);
    for (std::size_t i = 0; i < leaves_.size(); ++i) wider[(begin_ - begin) / leaf_span + i] = leaves_[i];
    leaves_.swap(wider);
    begin_ = begin;
    end_ = end;
    return true;
  }
  /// For one slab more.
  void make_room(slab_leaf*& in) {
    if (in != nullptr && !in->is_full()) return;
    slab_leaf* const old = in;
    in = slab_leaf::make(old);
    leaf_bytes_ += in->host_bytes() - (old == nullptr ? 0 : old->host_bytes());
    slab_leaf::drop(old);  // last: a child that is forked meanwhile gives back what it finds here
  }
  /// Calls `f(leaf, first address, last address)` for the leaf or two that a slab lies in.
  template <class F>
  void for_each_leaf(slab const& of, F f) {
    for (std::uintptr_t from = of.begin(); from <= last(of); from = down(from) + leaf_span) {
      std::uintptr_t const end = down(from) + leaf_span - 1;
      f(leaves_[(from - begin_) / leaf_span], from, end < last(of) ? end : last(of));
    }
  }

  std::uintptr_t begin_ = 0, end_ = 0;  // what the leaves are of
  grown_array<slab_leaf*> leaves_;
  std::size_t leaf_bytes_ = 0;
};

}  // namespace weir::detail
