#pragma once
// What is known of live blocks, by where they begin: a hash table from addresses to values.

#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// A hash table with linear probing, of values that may be copied as bytes. Constant time but for growth. Only
/// `promise` and `make_room` allocate: whoever is about to ask for memory promises a place for it first. Not
/// thread-safe. When not to use it: in a pool, whose `live_block_map` costs half as much and needs records elsewhere;
/// for a few addresses in order (`address_map`).
template <class T>
class blocks_by_address {
 public:
  /// Keeps a place for one `insert`, or for `count` of them. May throw `std::bad_alloc`, and has promised nothing then.
  void promise(std::size_t count = 1) {
    while (size_ + count > limit_) grow();
    set_promised(promised_ + count);
  }
  /// There will be no `insert`.
  void forget_promise(std::size_t count = 1) noexcept { set_promised(promised_ - count); }
  /// Has `value` for `address`, which is not 0, instead of what it had, in the place that was promised.
  void insert(std::uintptr_t address, T const& value) noexcept {
    set_promised(promised_ - 1);
    put(address, value);
  }
  /// Inserts again what was erased, without a promise: false, and nothing done, where that would take a promised place,
  /// or the last.
  bool insert_again(std::uintptr_t address, T const& value) noexcept {
    if (size_ + promised_ + 1 >= places_.size()) return false;
    put(address, value);
    return true;
  }

  /// The value for just that address; null if there is none. Valid until the next change.
  T const* find(std::uintptr_t address) const noexcept {
    if (size_ == 0) return nullptr;
    place const& at = places_[place_of(address)];
    return at.address == address && address != 0 ? &at.value : nullptr;
  }
  T* find(std::uintptr_t address) noexcept {
    return const_cast<T*>(static_cast<blocks_by_address const&>(*this).find(address));
  }

  /// Whether there is a place for one more value, beside those that are promised.
  bool has_room() const noexcept { return size_ < limit_; }
  /// From now on there is. May throw `std::bad_alloc`.
  void make_room() {
    if (!has_room()) [[unlikely]]
      grow();
  }
  /// Has `value` for `address`, which is not 0, where there is room, without a promise.
  void insert_in_room(std::uintptr_t address, T const& value) noexcept { put(address, value); }
  /// The same in a few instructions if the place that is looked at first is empty; else false, and nothing done.
  [[gnu::always_inline]] bool insert_at_home(std::uintptr_t address, T const& value) noexcept {
    place& home = places_[home_of(address)];
    if (home.address != 0) [[unlikely]]
      return false;
    home.address = address;
    home.value = value;
    ++size_;
    return true;
  }

  /// Forgets an address that is there.
  void erase(std::uintptr_t address) noexcept { empty(place_of(address)); }
  /// Forgets an address, whose value `taken` becomes; false, and nothing done, if it is not there. There was room once.
  [[gnu::always_inline]] bool take(std::uintptr_t address, T& taken) noexcept {
    std::size_t at = home_of(address);
    if (places_[at].address != address) [[unlikely]] {
      at = place_of(address);
      if (places_[at].address == 0) return false;
    }
    taken = places_[at].value;
    empty(at);
    return true;
  }

  /// Forgets all, but for promises.
  void clear() noexcept {
    for (std::size_t at = 0; at < places_.size(); ++at) places_[at] = {};
    size_ = 0;
  }
  /// The same, and keeps its place for one `insert`.
  void erase_and_promise(std::uintptr_t address) noexcept {
    erase(address);
    set_promised(promised_ + 1);
  }

  std::size_t size() const noexcept { return size_; }
  std::size_t host_bytes() const noexcept { return places_.bytes(); }

  /// Calls `f(address, value)` for each, in no order.
  template <class F>
  void for_each(F f) const {
    for (std::size_t at = 0; at < places_.size(); ++at)
      if (places_[at].address != 0) f(places_[at].address, places_[at].value);
  }

 private:
  void set_promised(std::size_t count) noexcept {
    promised_ = count;
    std::size_t const most = places_.size() / 4 * 3;
    limit_ = most < count ? 0 : most - count;  // less where what was inserted again is promised a place
  }

  struct place {
    std::uintptr_t address = 0;  // 0: empty, whatever the value
    [[no_unique_address]] T value{};
  };

  std::size_t mask() const noexcept { return places_.size() - 1; }
  std::size_t next(std::size_t at) const noexcept { return (at + 1) & mask(); }
  // Fibonacci hashing: the high bits of the product depend on all bits of the address.
  std::size_t home_of(std::uintptr_t address) const noexcept { return (address * 0x9e3779b97f4a7c15u) >> shift_; }
  /// Where the address is, or would be. There is always an empty place to end at.
  [[gnu::always_inline]] std::size_t place_of(std::uintptr_t address) const noexcept {
    std::size_t at = home_of(address);
    while (places_[at].address != 0 && places_[at].address != address) at = next(at);
    return at;
  }
  void put(std::uintptr_t address, T const& value) noexcept {
    place& at = places_[place_of(address)];
    size_ += at.address == 0 ? 1 : 0;
    at = {address, value};
  }
  [[gnu::always_inline]] void empty(std::size_t hole) noexcept {
    if (places_[next(hole)].address != 0) return empty_and_move_up(hole);
    places_[hole].address = 0;
    --size_;
  }
  // Out of line: so that frees which have nothing to move have few registers to save.
  [[gnu::noinline]] void empty_and_move_up(std::size_t hole) noexcept {
    // What comes behind moves up, unless that would put it before the place that it is looked for from.
    for (std::size_t at = next(hole); places_[at].address != 0; at = next(at)) {
      std::size_t const moved = (at - home_of(places_[at].address)) & mask();
      if (moved < ((at - hole) & mask())) continue;
      places_[hole] = places_[at];
      hole = at;
    }
    places_[hole].address = 0;
    --size_;
  }
  [[gnu::noinline]] void grow() {
    grown_array<place> old(places_.size() == 0 ? 16 : 2 * places_.size());
    places_.swap(old);
    set_promised(promised_);
    shift_ = places_.size() == 16 ? 60 : shift_ - 1;
    size_ = 0;
    for (std::size_t at = 0; at < old.size(); ++at)
      if (old[at].address != 0) put(old[at].address, old[at].value);
  }

  grown_array<place> places_;  // none, or a power of two of them
  std::size_t limit_ = 0;      // of values, beside promised ones: with them three quarters of the places
  unsigned shift_ = 0;
  std::size_t size_ = 0;
  std::size_t promised_ = 0;
};

}  // namespace weir::detail
