#pragma once
// Finds the slab that a pointer lies in.

#include <weir/pool/heap/slab.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>
#include <new>

namespace weir::detail {

/// A word for each page of 64 KiB, in tables of two levels: one of leaves, from the lowest address of a slab to the
/// highest, and leaves where slabs are or were. They cost a little more than eight bytes of host memory a page.
/// Constant time but for growth. Not thread-safe.
class slab_map {
 public:
  static constexpr std::uintptr_t leaf_span = std::uintptr_t{8} << 20;  ///< addresses of a leaf
  static constexpr std::uintptr_t most_span = leaf_span << 19;          ///< from the first leaf to the last: 4 TiB

  slab_map() = default;
  ~slab_map() {
    for (std::size_t i = 0; i < leaves_.size(); ++i) delete leaves_[i];
  }
  slab_map(slab_map const&) = delete;
  slab_map& operator=(slab_map const&) = delete;

  /// The slab whose pages an address lies in, or null. The last page may be only partly the slab's.
  [[gnu::always_inline]] slab* find(std::uintptr_t address) const noexcept {
    std::uintptr_t offset = 0;
    if (address >= end_ || __builtin_sub_overflow(address, begin_, &offset)) return nullptr;
    leaf const* const in = leaves_[offset / leaf_span];
    return in == nullptr ? nullptr : in->slabs[offset / slab::page_bytes % pages];
  }

  /// False, and nothing changed, if there is no host memory or slabs would be too far apart.
  bool add(slab* added) noexcept try {
    std::uintptr_t const from = down(added->begin()), last = down(added->begin() + added->bytes() - 1);
    if (!widen(from, last + leaf_span)) return false;
    for (std::uintptr_t at = from; at <= last; at += leaf_span) {
      leaf*& in = leaves_[(at - begin_) / leaf_span];
      if (in != nullptr) continue;
      in = new leaf;
      ++leaf_count_;
    }
    set(*added, added);
    return true;
  } catch (std::bad_alloc const&) {
    return false;
  }
  void remove(slab const& gone) noexcept { set(gone, nullptr); }

  /// Bytes of host memory that are in use.
  std::size_t host_bytes() const noexcept { return leaves_.bytes() + leaf_count_ * sizeof(leaf); }

 private:
  static constexpr std::size_t pages = leaf_span / slab::page_bytes;
  struct leaf {
    slab* slabs[pages] = {};
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
  void set(slab const& of, slab* to) noexcept {
    for (std::uintptr_t page = of.begin(); page < of.begin() + of.bytes(); page += slab::page_bytes)
      leaves_[(page - begin_) / leaf_span]->slabs[page / slab::page_bytes % pages] = to;
  }

  std::uintptr_t begin_ = 0, end_ = 0;  // what the leaves are of
  grown_array<leaf*> leaves_;
  std::size_t leaf_count_ = 0;
};

}  // namespace weir::detail
