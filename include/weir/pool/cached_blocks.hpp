#pragma once
// What a thread's cache knows of each block that it was lent.

#include <weir/pool/heap/live_block_map.hpp>
#include <weir/pool/heap/slot_class.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// A record of sixteen bytes for each block, which stays where it is, and a table that finds it by the block's address.
/// So a list of free blocks is one of numbers: taking the first needs no search. Only `promise` allocates. Not
/// thread-safe.
class cached_blocks {
 public:
  /// A block's number here, from 1; 0: none.
  using number = block_id;
  class block {
   public:
    block() = default;
    block(void const* p, unsigned size_class, std::size_t requested, unsigned alignment_log) noexcept
        : address_(reinterpret_cast<std::uintptr_t>(p)), as_(asked(requested, alignment_log, size_class)) {}

    std::uintptr_t address() const noexcept { return address_; }  ///< 0: the record is not in use
    unsigned size_class() const noexcept { return as_ & class_mask; }
    std::size_t bytes() const noexcept { return std::size_t{slot_class::size(size_class())} * unit_bytes; }
    std::size_t requested() const noexcept { return as_ >> requested_shift; }
    unsigned alignment_log() const noexcept { return as_ >> class_bits & ((1u << log_bits) - 1); }

    bool is_free() const noexcept { return requested() == free_mark; }
    /// True if it is live, of that class, and was asked for so.
    bool is_asked(std::size_t bytes, unsigned alignment_log, unsigned size_class) const noexcept {
      return as_ == asked(bytes, alignment_log, size_class);
    }
    /// For a block of that class.
    void set_asked(std::size_t bytes, unsigned alignment_log, unsigned size_class) noexcept {
      as_ = asked(bytes, alignment_log, size_class);
    }

   private:
    static constexpr unsigned class_bits = 7, log_bits = 4, requested_shift = class_bits + log_bits;
    static constexpr std::uint32_t class_mask = (1u << class_bits) - 1;
    static constexpr std::uint32_t asked(std::size_t bytes, unsigned alignment_log, unsigned size_class) noexcept {
      return static_cast<std::uint32_t>(bytes << requested_shift) | alignment_log << class_bits | size_class;
    }

    std::uintptr_t address_ = 0;
    std::uint32_t as_ = 0;  // the bytes requested, the alignment's log2, the class

   public:
    number next = 0;  ///< free: the next one of its stream and class; not in use: of those
  };
  /// What is noted as requested of a free block: more than any has.
  static constexpr std::size_t free_mark = (1u << 21) - 1;
  static_assert(sizeof(block) == 16 && slot_class::most_bytes < free_mark && slot_class::count <= 1u << 7);

  /// Room for as many more. May throw `std::bad_alloc`, and has promised nothing then.
  void promise(std::size_t count) {
    std::size_t const wanted = promised_ + count;
    while (map_.room() < wanted) map_.grow(addresses());
    std::size_t const records = 1 + map_.size() + wanted;
    if (records > records_.size()) records_.grow(records + records / 2);
    promised_ = wanted;
  }
  void forget_promise(std::size_t count) noexcept { promised_ -= count; }

  /// Has a block, at an address that none has yet. Needs a promise.
  number insert(block const& added) noexcept {
    --promised_;
    number n = first_unused_;
    if (n != 0)
      first_unused_ = records_[n].next;
    else
      n = ++used_;
    records_[n] = added;
    map_.insert(added.address(), n);
    return n;
  }
  /// Forgets a block that is there.
  void erase(number n) noexcept {
    map_.erase(records_[n].address(), n);
    if (latest_ == n) latest_ = 0;
    records_[n] = {};
    records_[n].next = first_unused_;
    first_unused_ = n;
  }

  /// The number of the block that begins at an address, or 0. What was taken last is found at once.
  [[gnu::always_inline]] number find(void const* p) noexcept {
    auto const address = reinterpret_cast<std::uintptr_t>(p);
    return records_[latest_].address() == address ? latest_ : map_.find(address, addresses());
  }
  /// The same in a few instructions and without a call; 0 also where that is not enough.
  [[gnu::always_inline]] number find_at_once(void const* p) const noexcept {
    auto const address = reinterpret_cast<std::uintptr_t>(p);
    auto const is = [=, records = records_.data()](number n) { return records[n].address() == address; };
    return is(latest_) ? latest_ : map_.find_at_once(address, is);
  }
  /// A free block that becomes live.
  [[gnu::always_inline]] block& take(number n) noexcept { return records_[latest_ = n]; }
  block& operator[](number n) noexcept { return records_[n]; }

  /// Calls `f(number)` for each, which may erase it.
  template <class F>
  void for_each(F f) {
    for (number n = 1; n <= used_; ++n)
      if (records_[n].address() != 0) f(n);
  }
  std::size_t host_bytes() const noexcept { return map_.host_bytes() + records_.bytes(); }

 private:
  struct addresses_of {
    block const* records;
    std::uintptr_t operator()(number n) const noexcept { return records[n].address(); }
  };
  addresses_of addresses() const noexcept { return {records_.data()}; }

  live_block_map map_;
  grown_array<block> records_{1};  // number 0 is none's
  number latest_ = 0;              // that was taken
  number used_ = 0;                // the highest number that ever was in use
  number first_unused_ = 0;        // a chain of those below that are not
  std::size_t promised_ = 0;
};

}  // namespace weir::detail
