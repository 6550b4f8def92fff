#pragma once
// A block of a pool's heap that is cut into slots of one size: what is known of each.

#include <weir/pool/heap/block_table.hpp>
#include <weir/pool/heap/sequence.hpp>
#include <weir/pool/heap/slot_class.hpp>

#include <cstddef>
#include <cstdint>
#include <new>

namespace weir::detail {

/// Equal slots for one stream, with four bytes of host memory each, so that to take or to give one touches two cache
/// lines and merges nothing. A slot is live, free for the owner's stream, or *away*: freed elsewhere, and the owner's
/// again when that work is done. Knows nothing of streams; not thread-safe.
/// The idea of slabs is Bonwick's (USENIX 1994), that of a chain of free slots in each mimalloc's (Leijen, 2019).
class slab {
 public:
  using slot = std::uint32_t;
  static constexpr units most_slot_units = 256;
  static constexpr slot none = 0xffff;
  static constexpr std::size_t most_bytes = std::size_t{2} << 20;
  static constexpr std::uint32_t most_slots = most_bytes / unit_bytes;
  static_assert(most_slots < none);
  static constexpr std::size_t page_bytes = std::size_t{64} << 10;  ///< slabs begin at whole pages
  static constexpr unsigned classes = slot_class::of(most_slot_units) + 1;

  /// What is kept of a live slot: that it is, and what was asked for, so that a wrong free is noticed. An alignment
  /// beyond those of slots is one and the same, `not_asked`.
  static constexpr std::uint32_t record_of(units size, std::size_t bytes, unsigned alignment_log) noexcept {
    return record_in(size * unit_bytes, bytes, alignment_log);
  }
  /// The same by the bytes of a slot.
  static constexpr std::uint32_t record_in(std::size_t slot_bytes, std::size_t bytes, unsigned alignment_log) noexcept {
    return live_bit | (alignment_log & most_alignment_log) << slack_bits |
           static_cast<std::uint32_t>(slot_bytes - bytes);
  }
  static constexpr unsigned not_asked = 31;

  /// For the heap's block at `begin`, of `slots` of the class, which nobody has used yet; null if there is no host
  /// memory.
  static slab* make(std::uintptr_t begin, unsigned size_class, std::uint32_t slot_count) noexcept {
    void* const room = ::operator new(bytes_for(slot_count), alignment, std::nothrow);
    return room == nullptr ? nullptr : new (room) slab(begin, size_class, slot_count);
  }
  static void drop(slab* gone) noexcept { ::operator delete(gone, alignment); }
  static constexpr std::align_val_t alignment{64};
  slab(slab const&) = delete;
  slab& operator=(slab const&) = delete;

  /// Makes a free slot live and returns its address. There has to be one.
  [[gnu::always_inline]] std::uintptr_t take(std::uint32_t record) noexcept {
    slot taken = first_free_;
    if (taken != none) [[likely]]
      first_free_ = static_cast<std::uint16_t>(records()[taken]);
    else
      taken = used_++;
    records()[taken] = record;
    ++live_;
    std::uintptr_t const address = begin_ + std::uintptr_t{taken} * size_ * unit_bytes;
    if (address == 0) __builtin_unreachable();  // then nobody has to ask
    return address;
  }
  bool has_free() const noexcept { return first_free_ != none || used_ != slots_; }

  /// The slot that begins at an address, or `none`.
  slot at(std::uintptr_t address) const noexcept {
    slot const found = slot_at(address - begin_, size_class_);
    return was_used(found) ? found : none;
  }
  /// The slot that begins so many bytes behind the begin of a slab of this class, or `none`: what is known of slots
  /// without a look at their slab.
  [[gnu::always_inline]] static slot slot_at(std::uintptr_t offset, unsigned size_class) noexcept {
    size const of = sizes_of_classes.of[size_class];
    auto const found = static_cast<slot>((offset / unit_bytes * of.reciprocal) >> 31);
    return offset == std::uintptr_t{found} * of.slot * unit_bytes ? found : none;
  }
  /// True if the slot is this slab's and was live at some time.
  [[gnu::always_inline]] bool was_used(slot s) const noexcept { return s < used_; }
  bool is_live(slot s) const noexcept { return (records()[s] & live_bit) != 0; }
  std::uint32_t record(slot s) const noexcept { return records()[s]; }
  /// As they were asked for.
  std::size_t requested(slot s) const noexcept { return slot_bytes() - (records()[s] & slack_mask); }
  unsigned alignment_log(slot s) const noexcept {
    unsigned const log = (records()[s] & ~live_bit) >> slack_bits;
    return log == most_alignment_log ? not_asked : log;
  }
  void set_record(slot s, std::uint32_t record) noexcept { records()[s] = record; }

  /// Makes a live slot the owner's again.
  [[gnu::always_inline]] void give(slot s) noexcept {
    records()[s] = first_free_;
    first_free_ = static_cast<std::uint16_t>(s);
    --live_;
  }
  /// Makes a live slot one that is away.
  void give_away(slot s) noexcept {
    records()[s] = away_bit | first_away_;
    first_away_ = static_cast<std::uint16_t>(s);
    --live_;
    ++away_;
  }
  /// All that is away is the owner's again.
  void take_back() noexcept {
    while (first_away_ != none) {
      std::uint16_t const s = first_away_;
      first_away_ = static_cast<std::uint16_t>(records()[s] & ~away_bit);
      records()[s] = first_free_;
      first_free_ = s;
    }
    away_ = 0;
  }

  std::uint32_t slot_count() const noexcept { return slots_; }
  std::uint32_t live() const noexcept { return live_; }
  std::uint32_t away() const noexcept { return away_; }
  std::uint32_t free() const noexcept { return std::uint32_t{slots_} - live_ - away_; }
  std::size_t slot_bytes() const noexcept { return std::size_t{size_} * unit_bytes; }
  units slot_units() const noexcept { return size_; }
  std::size_t bytes() const noexcept { return slots_ * slot_bytes(); }
  std::uintptr_t begin() const noexcept { return begin_; }
  unsigned size_class() const noexcept { return size_class_; }
  std::size_t host_bytes() const noexcept { return bytes_for(slots_); }

  /// Neighbouring slots that are live (then one slot), free, or away.
  enum class state : std::uint8_t { live, free, away };
  struct run {
    slot first, count;
    slab::state state;
  };
  /// The run that ends before the slot `end`, which is not 0.
  run run_before(slot end) const noexcept {
    run found{end - 1, 1, state_of(end - 1)};
    while (found.state != state::live && found.first != 0 && state_of(found.first - 1) == found.state) {
      --found.first;
      ++found.count;
    }
    return found;
  }

  /// The run that begins with a slot.
  run run_from(slot begin) const noexcept {
    run found{begin, 1, state_of(begin)};
    while (found.state != state::live && begin + found.count != slots_ && state_of(begin + found.count) == found.state)
      ++found.count;
    return found;
  }

 private:
  /// Units of a slot, and what to multiply with in place of a division by that.
  struct size {
    std::uint32_t slot, reciprocal;
  };
  struct sizes {
    size of[classes];
  };
  static constexpr sizes make_sizes() noexcept {
    sizes all{};
    for (unsigned c = 0; c < classes; ++c)
      all.of[c] = {slot_class::size(c), static_cast<std::uint32_t>((std::uint64_t{1} << 31) / slot_class::size(c) + 1)};
    return all;
  }
  static sizes const sizes_of_classes;
  static constexpr std::size_t bytes_for(std::size_t slot_count) noexcept {
    return sizeof(slab) + slot_count * sizeof(std::uint32_t);
  }
  static constexpr std::uint32_t live_bit = 1u << 31, away_bit = 1u << 30;
  static constexpr unsigned slack_bits = 26, most_alignment_log = 15;
  static constexpr std::uint32_t slack_mask = (1u << slack_bits) - 1;

  slab(std::uintptr_t begin, unsigned number, std::uint32_t count) noexcept
      : begin_(begin),
        size_(static_cast<std::uint16_t>(slot_class::size(number))),
        slots_(static_cast<std::uint16_t>(count)),
        size_class_(static_cast<std::uint16_t>(number)) {
    for (slot s = 0; s < count; ++s) records()[s] = none;
  }
  std::uint32_t* records() noexcept { return reinterpret_cast<std::uint32_t*>(this + 1); }
  std::uint32_t const* records() const noexcept { return reinterpret_cast<std::uint32_t const*>(this + 1); }
  state state_of(slot s) const noexcept {
    if (is_live(s)) return state::live;
    // The chain of free slots ends in `none`, which has no bit of these.
    return (records()[s] & away_bit) != 0 ? state::away : state::free;
  }

  // One cache line, in front of the records.
  std::uintptr_t begin_;

 public:
  /// What whoever keeps the slab notes in it.
  slab* previous = nullptr;  ///< with free slots, of the same owner and class
  slab* next = nullptr;
  sequence_number freed{};  ///< the owner's free slots are done when all up to this one on its list is
  list_id owner{};

 private:
  std::uint16_t size_;  // units of a slot
  std::uint16_t slots_;
  std::uint16_t used_ = 0;  // those from here on were never taken
  std::uint16_t live_ = 0, away_ = 0;
  std::uint16_t first_free_ = none, first_away_ = none;
  std::uint16_t size_class_;

 public:
  list_id away_list{};
  std::uint32_t index = 0;       ///< among all slabs
  sequence_number away_until{};  ///< what is away is the owner's again when this is done on `away_list`
};
inline constexpr slab::sizes slab::sizes_of_classes = slab::make_sizes();
static_assert(sizeof(slab) == 64);

}  // namespace weir::detail
