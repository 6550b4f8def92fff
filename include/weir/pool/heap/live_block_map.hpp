#pragma once
// Finds the block that a pointer belongs to: a hash table from addresses to block numbers.

#include <weir/pool/heap/size_class.hpp>
#include <weir/support/grown_array.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// A block's number; 0 is none.
using block_id = std::uint32_t;

/// Buckets of six entries in half a cache line: a byte of each address's hash, and the block's number. A lookup
/// compares six bytes at once and then, nearly always, reads the one record that is looked for; nothing in it depends
/// on chance that the processor would have to guess. What a full bucket turns away goes to the next, and the bucket
/// counts it. The idea is that of F14 (Bronson, Shi; Facebook, 2019). Constant time but for growth. Not thread-safe.
class live_block_map {
 public:
  live_block_map() : buckets_(4) {}

  std::size_t size() const noexcept { return size_; }
  std::size_t host_bytes() const noexcept { return buckets_.bytes(); }

  /// True if it has to `grow` before it can have one more.
  bool is_full() const noexcept { return size_ == limit_; }
  /// How many more it can have before.
  std::size_t room() const noexcept { return limit_ - size_; }
  /// Doubles; `address_of(id)` gives the address that a number was inserted with. May throw `std::bad_alloc`.
  template <class AddressOf>
  void grow(AddressOf address_of) {
    grown_array<bucket> old(buckets_.size() * 2);
    buckets_.swap(old);
    --shift_;
    limit_ = buckets_.size() * filled;
    size_ = 0;
    found_ = {};
    for (std::size_t at = 0; at < old.size(); ++at)
      for (unsigned i = 0; i < entries; ++i)
        if ((old[at].tags >> 8 * i & 0xff) != 0) insert(address_of(old[at].ids[i]), old[at].ids[i]);
  }

  /// Needs room reserved. No two live blocks have one address.
  [[gnu::always_inline]] void insert(std::uintptr_t address, block_id id) noexcept {
    std::uint64_t const hash = hash_of(address);
    std::size_t at = home(hash);
    std::uint64_t free = zero_bytes(buckets_[at].tags);
    if (free == 0) [[unlikely]]
      free = go_past_full(at);
    unsigned const bit = static_cast<unsigned>(std::countr_zero(free)) & ~7u;
    buckets_[at].tags |= tag_of(hash) << bit;
    buckets_[at].ids[bit / 8] = id;
    ++size_;
  }

  /// The number that was inserted with `address`, or 0.
  template <class AddressOf>
  block_id look_up(std::uintptr_t address, AddressOf address_of) const noexcept {
    return place_of(address, has_address(address, address_of)).id;
  }
  /// The same, and remembers where that was for the `erase` that mostly follows.
  template <class AddressOf>
  [[gnu::always_inline]] block_id find(std::uintptr_t address, AddressOf address_of) noexcept {
    return find_if(address, has_address(address, address_of));
  }
  /// The same for the one of which `is(id)` says so.
  template <class Is>
  [[gnu::always_inline]] block_id find_if(std::uintptr_t address, Is is) noexcept {
    std::uint64_t const hash = hash_of(address);
    std::size_t const at = home(hash);
    bucket const& b = buckets_[at];
    if (std::uint64_t const same = zero_bytes(b.tags ^ tag_of(hash) * low_bits); same != 0) [[likely]] {
      unsigned const bit = static_cast<unsigned>(std::countr_zero(same)) & ~7u;
      block_id const id = b.ids[bit / 8];
      if (is(id)) [[likely]] {
        found_ = {at, at, bit, id};
        return id;
      }
    }
    return find_elsewhere(address, is);
  }
  /// The same in a few instructions, where that is the first place that is looked at; else 0. Remembers nothing.
  template <class Is>
  [[gnu::always_inline]] block_id find_at_once(std::uintptr_t address, Is is) const noexcept {
    std::uint64_t const hash = hash_of(address);
    bucket const& b = buckets_[home(hash)];
    std::uint64_t const same = zero_bytes(b.tags ^ tag_of(hash) * low_bits);
    block_id const id = same == 0 ? 0 : b.ids[static_cast<unsigned>(std::countr_zero(same)) / 8];
    return id != 0 && is(id) ? id : 0;
  }

  /// Forgets a number that is there.
  [[gnu::always_inline]] void erase(std::uintptr_t address, block_id id) noexcept {
    if (found_.id != id) [[unlikely]]
      find_number(address, id);
    if (found_.at != found_.home) [[unlikely]]
      come_back_past(found_.home, found_.at);
    buckets_[found_.at].tags &= ~(std::uint64_t{0xff} << found_.bit);
    buckets_[found_.at].ids[found_.bit / 8] = 0;
    found_.id = 0;
    --size_;
  }

 private:
  static constexpr unsigned entries = 6;
  struct alignas(32) bucket {
    std::uint64_t tags = 0;  // six bytes, 0 where there is no entry; then how many entries went past this bucket
    block_id ids[entries] = {};
  };
  static_assert(sizeof(bucket) == 32);
  struct place {
    std::size_t at;
    std::size_t home;  // where it would be if that had not been full
    unsigned bit;      // of the tag's byte
    block_id id;       // 0: nowhere
  };

  static constexpr std::uint64_t low_bits = 0x0101'0101'0101, high_bits = 0x8080'8080'8080;
  static constexpr std::uint64_t one_overflow = std::uint64_t{1} << 48, most_overflow = 0xffff;
  static constexpr std::size_t filled = 3;  // entries a bucket, on average at most

  // Fibonacci hashing: the high bits of the product depend on all bits of the address.
  static std::uint64_t hash_of(std::uintptr_t address) noexcept { return address / unit_bytes * 0x9e3779b97f4a7c15u; }
  static std::uint64_t tag_of(std::uint64_t hash) noexcept { return (hash >> 20 & 0xff) | 1; }
  std::size_t home(std::uint64_t hash) const noexcept { return hash >> shift_; }
  std::size_t next(std::size_t at) const noexcept { return (at + 1) & (buckets_.size() - 1); }
  std::uint64_t overflow(std::size_t at) const noexcept { return buckets_[at].tags >> 48; }

  /// Counts the entry that goes past full buckets, from `at` on; `at` is then the first with room, whose free places it
  /// returns.
  std::uint64_t go_past_full(std::size_t& at) noexcept {
    std::uint64_t free = 0;
    while (free == 0) {
      if (overflow(at) != most_overflow) buckets_[at].tags += one_overflow;
      free = zero_bytes(buckets_[at = next(at)].tags);
    }
    return free;
  }
  /// The same for the entry that goes.
  [[gnu::noinline, gnu::cold]] void come_back_past(std::size_t at, std::size_t end) noexcept {
    for (; at != end; at = next(at))
      if (overflow(at) != most_overflow) buckets_[at].tags -= one_overflow;  // else it is not known how many
  }

  // The high bit of each of the six bytes that is 0; perhaps that of a 1 above it too. The lowest is always right.
  static std::uint64_t zero_bytes(std::uint64_t tags) noexcept { return (tags - low_bits) & ~tags & high_bits; }

  [[gnu::noinline]] void find_number(std::uintptr_t address, block_id id) noexcept {
    found_ = place_of(address, [id](block_id each) { return each == id; });
  }
  /// Not the first of its bucket with the tag.
  template <class Is>
  [[gnu::noinline]] block_id find_elsewhere(std::uintptr_t address, Is is) noexcept {
    place const found = place_of(address, is);
    if (found.id != 0) found_ = found;
    return found.id;
  }
  template <class AddressOf>
  static auto has_address(std::uintptr_t address, AddressOf address_of) noexcept {
    return [=](block_id id) { return address_of(id) == address; };
  }
  template <class Is>
  place place_of(std::uintptr_t address, Is is) const noexcept {
    std::uint64_t const hash = hash_of(address);
    std::uint64_t const wanted = tag_of(hash) * low_bits;
    std::size_t const first = home(hash);
    for (std::size_t at = first;; at = next(at)) {
      bucket const& b = buckets_[at];
      for (std::uint64_t same = zero_bytes(b.tags ^ wanted); same != 0; same &= same - 1) {
        unsigned const bit = static_cast<unsigned>(std::countr_zero(same)) & ~7u;
        if (is(b.ids[bit / 8])) [[likely]]
          return {at, first, bit, b.ids[bit / 8]};
      }
      if (b.tags >> 48 == 0) [[likely]]
        return {};
    }
  }

  grown_array<bucket> buckets_;  // a power of two of them
  unsigned shift_ = 62;
  place found_{};
  std::size_t size_ = 0;
  std::size_t limit_ = 4 * filled;
};

}  // namespace weir::detail
