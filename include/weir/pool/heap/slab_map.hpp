#pragma once
// Finds the slab that a pointer lies in.

#include <weir/pool/heap/slab.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>
#include <new>

namespace weir::detail {

/// A word for each page of 64 KiB, in tables of two levels: one of leaves, from the lowest address of a slab to the
/// highest, and leaves where slabs are or were. They cost a little more than eight bytes of host memory a page. The
/// word says of the slab what tells its slots apart, so that a slot's record and its slab's can be on their way from
/// memory at the same time. Constant time but for growth. Not thread-safe.
class slab_map {
 public:
  static constexpr std::uintptr_t leaf_span = std::uintptr_t{4} << 20;  ///< addresses of a leaf
  static constexpr std::uintptr_t most_span = leaf_span << 20;          ///< from the first leaf to the last: 4 TiB

  slab_map() = default;
  ~slab_map() {
    for (std::size_t i = 0; i < leaves_.size(); ++i) delete leaves_[i];
  }
  slab_map(slab_map const&) = delete;
  slab_map& operator=(slab_map const&) = delete;

  /// What is known of a page: the slab that it is of, its place among that one's pages, and the class of the slots.
  class page {
   public:
    page() = default;
    page(slab* of, std::uintptr_t place) noexcept
        : word_(reinterpret_cast<std::uintptr_t>(of) | of->size_class() | place << place_at) {}

    explicit operator bool() const noexcept { return word_ != 0; }
    slab* in() const noexcept { return reinterpret_cast<slab*>(word_ & ~(class_mask | place_mask)); }
    /// As `slab::slot_at`, of an address in this page.
    [[gnu::always_inline]] slab::slot slot_at(std::uintptr_t address) const noexcept {
      std::uintptr_t const before = (word_ & place_mask) >> place_at;
      return slab::slot_at(before * slab::page_bytes + address % slab::page_bytes, word_ & class_mask);
    }

    /// True if there are bits for that in the slab's own address, as there are where host memory is below 2^48.
    static bool can_be_of(slab const* s) noexcept {
      return (reinterpret_cast<std::uintptr_t>(s) & (class_mask | place_mask)) == 0;
    }

   private:
    static constexpr unsigned place_at = 48;
    static constexpr std::uintptr_t class_mask = static_cast<std::size_t>(slab::alignment) - 1,
                                    place_mask = std::uintptr_t{slab::most_bytes / slab::page_bytes - 1} << place_at;
    static_assert(slab::classes - 1 <= class_mask);

    std::uintptr_t word_ = 0;
  };

  /// False if no slab lies there or beyond.
  [[gnu::always_inline]] bool may_have(std::uintptr_t address) const noexcept { return address < end_; }
  /// The page that an address lies in. The last page of a slab may be only partly the slab's.
  [[gnu::always_inline]] page find(std::uintptr_t address) const noexcept {
    std::uintptr_t offset = 0;
    if (address >= end_ || __builtin_sub_overflow(address, begin_, &offset)) return {};
    leaf const* const in = leaves_[offset / leaf_span];
    return in == nullptr ? page() : in->pages[offset / slab::page_bytes % pages_a_leaf];
  }

  /// False, and nothing changed, if there is no host memory, or none below 2^48, or slabs would be too far apart.
  bool add(slab* added) noexcept try {
    if (!page::can_be_of(added)) return false;
    std::uintptr_t const from = down(added->begin()), last = down(added->begin() + added->bytes() - 1);
    if (!widen(from, last + leaf_span)) return false;
    for (std::uintptr_t at = from; at <= last; at += leaf_span) {
      leaf*& in = leaves_[(at - begin_) / leaf_span];
      if (in != nullptr) continue;
      in = new leaf;
      ++leaf_count_;
    }
    for_each_page(*added, [&](page& each, std::uintptr_t place) { each = {added, place}; });
    return true;
  } catch (std::bad_alloc const&) {
    return false;
  }
  void remove(slab const& gone) noexcept {
    for_each_page(gone, [](page& each, std::uintptr_t) { each = {}; });
  }

  /// Bytes of host memory that are in use.
  std::size_t host_bytes() const noexcept { return leaves_.bytes() + leaf_count_ * sizeof(leaf); }

 private:
  static constexpr std::size_t pages_a_leaf = leaf_span / slab::page_bytes;
  struct leaf {
    page pages[pages_a_leaf];
  };

  static std::uintptr_t down(std::uintptr_t address) noexcept { return address / leaf_span * leaf_span; }

  /// Has room for leaves from `begin` up to `end`; false if the table would be too long.
  bool widen(std::uintptr_t begin, std::uintptr_t end) {
    if (end_ != 0 && begin_ < begin) begin = begin_;
    if (end_ > end) end = end_;
    if (end - begin > most_span) return false;
    if (end - begin == end_ - begin_) return true;
    grown_array<leaf*> wider((end - begin) / leaf_span);
    for (std::size_t i = 0; i < leaves_.size(); ++i) wider[(begin_ - begin) / leaf_span + i] = leaves_[i];
    leaves_.swap(wider);
    begin_ = begin;
    end_ = end;
    return true;
  }
  template <class F>
  void for_each_page(slab const& of, F f) noexcept {
    std::uintptr_t place = 0;
    for (std::uintptr_t at = of.begin(); at < of.begin() + of.bytes(); at += slab::page_bytes)
      f(leaves_[(at - begin_) / leaf_span]->pages[at / slab::page_bytes % pages_a_leaf], place++);
  }

  std::uintptr_t begin_ = 0, end_ = 0;  // what the leaves are of
  grown_array<leaf*> leaves_;
  std::size_t leaf_count_ = 0;
};

}  // namespace weir::detail
