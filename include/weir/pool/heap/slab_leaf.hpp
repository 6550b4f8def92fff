#pragma once
// The slabs in a stretch of addresses.

#include <weir/pool/heap/slab.hpp>

#include <cstddef>
#include <cstdint>
#include <new>

namespace weir::detail {

/// The slabs in 4 MiB of addresses: a byte for each page of 64 KiB, which is the number of the slab that it is of, and
/// a word for each number. Large slabs are few, so that a leaf of such is two cache lines: of 32 GB in live blocks the
/// leaves fit into the second cache. Not thread-safe.
class slab_leaf {
 public:
  static constexpr std::uintptr_t span = std::uintptr_t{4} << 20;
  static constexpr std::size_t pages = span / slab::page_bytes;

  /// What is known of a slab without a look at it: where it begins, and the class of its slots. So a slot's record and
  /// its slab's can be on their way from memory at the same time.
  class word {
   public:
    word() = default;
    /// In the leaf that begins at `leaf`: the slab may begin in the one before.
    word(slab* of, std::uintptr_t leaf) noexcept
        : value_(reinterpret_cast<std::uintptr_t>(of) | of->size_class() |
                 (of->begin() + slab::most_bytes - leaf) / slab::page_bytes << begin_at) {}

    explicit operator bool() const noexcept { return value_ != 0; }
    slab* in() const noexcept { return reinterpret_cast<slab*>(value_ & ~(class_mask | begin_mask)); }
    /// As `slab::slot_at`, of an address in the leaf.
    [[gnu::always_inline]] slab::slot slot_at(std::uintptr_t address) const noexcept {
      std::uintptr_t const begin = (value_ & begin_mask) >> begin_at;
      return slab::slot_at(address % span + slab::most_bytes - begin * slab::page_bytes, value_ & class_mask);
    }

    /// True if there are bits for that in the slab's own address, as there are where host memory is below 2^48.
    static bool can_be_of(slab const* s) noexcept {
      return (reinterpret_cast<std::uintptr_t>(s) & (class_mask | begin_mask)) == 0;
    }

   private:
    static constexpr unsigned begin_at = 48;
    static constexpr std::uintptr_t class_mask = static_cast<std::size_t>(slab::alignment) - 1,
                                    begin_mask = std::uintptr_t{0x7f} << begin_at;
    static_assert(slab::classes - 1 <= class_mask);
    static_assert((span + slab::most_bytes) / slab::page_bytes - 1 <= begin_mask >> begin_at);

    std::uintptr_t value_ = 0;
  };

  /// The same as `old` with room for more slabs than that has; without any if there is no `old`. May throw
  /// `std::bad_alloc`.
  static slab_leaf* make(slab_leaf const* old) {
    std::size_t const lines = old == nullptr ? 1 : 2 * old->lines_ < most_lines ? 2 * old->lines_ : most_lines;
    return new (::operator new((1 + lines) * line_bytes, slab::alignment)) slab_leaf(lines, old);
  }
  static void drop(slab_leaf* gone) noexcept { ::operator delete(gone, slab::alignment); }
  slab_leaf(slab_leaf const&) = delete;
  slab_leaf& operator=(slab_leaf const&) = delete;

  /// The word of the slab that a page is of.
  [[gnu::always_inline]] word of(std::size_t page) const noexcept { return words()[numbers_[page]]; }

  bool is_full() const noexcept { return free_number() == 0; }
  /// The pages from `first` to `last` are a slab's. For a leaf that is not full.
  void add(word added, std::size_t first, std::size_t last) noexcept {
    std::uint8_t const number = free_number();
    words()[number] = added;
    set_numbers(first, last, number);
  }
  /// The same pages are of none again.
  void remove(std::size_t first, std::size_t last) noexcept {
    words()[numbers_[first]] = {};
    set_numbers(first, last, 0);
  }

  std::size_t host_bytes() const noexcept { return (1 + lines_) * line_bytes; }

 private:
  static constexpr std::size_t line_bytes = static_cast<std::size_t>(slab::alignment), words_a_line = 8;
  static constexpr std::uint8_t first_number = 2;  // that a slab may have
  static constexpr std::size_t most_lines = (first_number + pages + words_a_line - 1) / words_a_line;

  slab_leaf(std::size_t lines, slab_leaf const* old) noexcept : lines_(lines) {
    for (std::size_t n = first_number; n < count(); ++n) ::new (words() + n) word;
    if (old == nullptr) return;
    for (std::size_t page = 0; page < pages; ++page) numbers_[page] = old->numbers_[page];
    for (std::size_t n = first_number; n < old->count(); ++n) words()[n] = old->words()[n];
  }

  std::size_t count() const noexcept { return lines_ * words_a_line; }
  /// 0 if there is none.
  std::uint8_t free_number() const noexcept {
    for (std::uint8_t n = first_number; n < count(); ++n)
      if (!words()[n]) return n;
    return 0;
  }
  void set_numbers(std::size_t first, std::size_t last, std::uint8_t number) noexcept {
    for (std::size_t page = first; page <= last; ++page) numbers_[page] = number;
  }
  word* words() noexcept { return reinterpret_cast<word*>(reinterpret_cast<std::byte*>(this) + sizeof numbers_); }
  word const* words() const noexcept {
    return reinterpret_cast<word const*>(reinterpret_cast<std::byte const*>(this) + sizeof numbers_);
  }

  std::uint8_t numbers_[pages] = {};  // 0 for those of no slab
  // From here on lines of words, by number: that of 0 says that there is no slab, in the place of 1 is their length.
  word none_;
  std::size_t lines_;
};

}  // namespace weir::detail
