#pragma once
// Every block of every segment: its place, its neighbours, and which one a live pointer belongs to.

#include <weir/pool/heap/live_block_map.hpp>
#include <weir/pool/heap/sequence.hpp>
#include <weir/pool/heap/size_class.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// `held`: neither live nor free, while the memory behind it is being put there or taken away.
enum class block_state : std::uint8_t { unused, live, free, held };

/// That a block is live and how it was asked to be aligned, as the low bits of its record's address keep it. What was
/// asked for is often known when a program is compiled, and this then too.
class live_mark {
 public:
  constexpr live_mark(unsigned alignment_log) noexcept
      : bits_(std::uintptr_t{alignment_log} << 2 | static_cast<std::uintptr_t>(block_state::live)) {}
  constexpr std::uintptr_t bits() const noexcept { return bits_; }
  constexpr unsigned alignment_log() const noexcept { return static_cast<unsigned>(bits_) >> 2; }

 private:
  std::uintptr_t bits_;
};

/// A piece of a segment. Host memory, apart from what it describes: nothing on the device can overwrite it. Half a
/// cache line, since a program with many blocks pays for each line that it touches: what is not needed at once shares
/// room.
class alignas(32) block {
 public:
  block() = default;
  /// Starts at `address`, a multiple of `unit_bytes`.
  block(std::uintptr_t address, units blocks_size) noexcept : size(blocks_size), place_(address) {}

  std::uintptr_t address() const noexcept { return place_ & ~std::uintptr_t{unit_bytes - 1}; }
  std::size_t bytes() const noexcept { return std::size_t{size} * unit_bytes; }
  block_state state() const noexcept { return static_cast<block_state>(place_ & 3); }
  bool is_free() const noexcept { return state() == block_state::free; }

  void set_free(list_id whose) noexcept {
    place_ = address() | static_cast<std::uintptr_t>(block_state::free);
    list = whose;
  }
  /// Of the list that it was free in.
  void set_held(list_id whose) noexcept {
    place_ = address() | static_cast<std::uintptr_t>(block_state::held);
    list = whose;
  }
  void set_live(std::uint64_t requested, live_mark mark) noexcept {
    place_ = live_place(address(), mark);
    list_next = static_cast<block_id>(requested);
    list_previous = static_cast<block_id>(requested >> 32);
  }
  /// Live for its neighbours and found by its address, but no free of a live block names it. `next` is for the caller.
  void set_cached(block_id next) noexcept {
    list_next = next;
    list_previous = cached_mark;
  }
  bool is_cached() const noexcept { return state() == block_state::live && list_previous == cached_mark; }
  void set_unused(block_id next_unused) noexcept {
    place_ = 0;
    list_next = next_unused;
  }

  /// What is one word of a live block that starts at `address`, and of no other: see `is_at`.
  static std::uintptr_t live_place(std::uintptr_t address, live_mark mark) noexcept { return address | mark.bits(); }
  bool is_at(std::uintptr_t live_place) const noexcept { return place_ == live_place; }

  /// Of a live block: the bytes and the alignment's log2 that were asked for.
  std::uint64_t requested() const noexcept { return std::uint64_t{list_previous} << 32 | list_next; }
  unsigned alignment_log() const noexcept { return place_ >> 2 & 0x3f; }

  units size = 0;
  block_id left = 0;  ///< neighbours in the segment; 0 at its ends
  block_id right = 0;
  block_id list_next = 0;      ///< free; unused: next unused record
  block_id list_previous = 0;  ///< free: in its size class; stale in the first of a class
  list_id list{};              ///< free, held: whose; live: of the stream that has it as a small block, or `shared`
  list_id captured{};          ///< live: a free list of the stream capture that it was allocated in; 0: in none

 private:
  static constexpr block_id cached_mark = ~block_id{0};  // more than the upper half of any size

  std::uintptr_t place_ = 0;  // the address; its low 8 bits, which are 0, keep the state and the alignment
};
static_assert(sizeof(block) == 32);

/// Records of blocks in one growing array, and a table from address to live block. Constant time, except for the
/// growth of either, which `reserve` does before anything changes. Not thread-safe.
class block_table {
 public:
  block_table() : blocks_(1) {}

  block& operator[](block_id id) noexcept { return blocks_[id]; }
  block const& operator[](block_id id) const noexcept { return blocks_[id]; }

  /// Makes room for `records` new blocks and one more live one, or `live`; may throw `std::bad_alloc`, and then nothing
  /// but room has changed.
  void reserve(std::size_t records, std::size_t live = 1) {
    while (unused_count_ < records) add_records(end_if_grown());
    while (live_.room() < live) live_.grow(address_of());
  }
  /// Records that are ready for new blocks.
  std::size_t unused() const noexcept { return unused_count_; }
  /// True if `reserve(records)` has something to do.
  bool is_short_of(std::size_t records) const noexcept { return unused_count_ < records || live_.is_full(); }

  /// A record for a whole segment. Needs one reserved.
  block_id add(std::uintptr_t address, units size) noexcept {
    block_id const id = unused_;
    unused_ = blocks_[id].list_next;
    --unused_count_;
    blocks_[id] = block(address, size);
    return id;
  }

  /// Cuts the last `size` units off `id`; returns them as a block of their own. Needs one record reserved.
  [[gnu::always_inline]] block_id split(block_id id, units size) noexcept {
    block_id const end = unused_;
    block& first = blocks_[id];
    first.size -= size;
    add(first.address() + first.bytes(), size);
    blocks_[end].left = id;
    blocks_[end].right = first.right;
    if (first.right != 0) blocks_[first.right].left = end;
    first.right = end;
    return end;
  }

  /// Joins `id` and its right neighbour into `id`.
  void merge_right(block_id id) noexcept {
    block& first = blocks_[id];
    block_id const gone = first.right;
    first.size += blocks_[gone].size;
    first.right = blocks_[gone].right;
    if (first.right != 0) blocks_[first.right].left = id;
    drop(gone);
  }

  /// Moves the border between `id` and its right neighbour `size` units to the left.
  void move_border(block_id id, units size) noexcept {
    block& first = blocks_[id];
    block& second = blocks_[first.right];
    first.size -= size;
    block moved(first.address() + first.bytes(), second.size + size);
    moved.left = id;
    moved.right = second.right;
    second = moved;
  }

  /// Forgets a whole segment.
  void drop(block_id id) noexcept {
    blocks_[id].set_unused(unused_);
    unused_ = id;
    ++unused_count_;
  }

  /// Makes `id` live, found by its address from now on. Needs room reserved.
  [[gnu::always_inline]] void enlist(block_id id, std::uint64_t requested, unsigned alignment_log) noexcept {
    live_.insert(blocks_[id].address(), id);
    blocks_[id].set_live(requested, alignment_log);
    blocks_[id].list = shared;
    latest_ = id;
  }

  /// A live block is one of those that a stream's small blocks are counted by.
  void set_taker(block_id id, list_id list) noexcept { blocks_[id].list = list; }
  /// See `block::set_cached`; then live again, with what `reuse` is given, which returns its address.
  void set_cached(block_id id, block_id next) noexcept { blocks_[id].set_cached(next); }
  [[gnu::always_inline]] std::uintptr_t reuse(block_id id, std::uint64_t requested, live_mark mark) noexcept {
    block& b = blocks_[id];
    std::uintptr_t const address = b.address();
    if (address == 0) __builtin_unreachable();  // then nobody has to ask
    latest_ = id;
    b.set_live(requested, mark);
    return address;
  }

  /// The live block that starts at `address`, or 0.
  [[gnu::always_inline]] block_id find(std::uintptr_t address) noexcept { return live_.find(address, address_of()); }
  /// The same, if its alignment was asked for so. What was allocated last is found at once.
  [[gnu::always_inline]] block_id find(std::uintptr_t address, unsigned alignment_log) noexcept {
    if (address % unit_bytes != 0) [[unlikely]]
      return 0;
    std::uintptr_t const place = block::live_place(address, alignment_log);
    block const* const blocks = blocks_.data();
    if (blocks[latest_].is_at(place)) return latest_;
    return live_.find_if(address, [=](block_id id) { return blocks[id].is_at(place); });
  }
  /// The same, or 0 where that takes more than a few instructions.
  [[gnu::always_inline]] block_id find_at_once(std::uintptr_t address, live_mark mark) const noexcept {
    if (address % unit_bytes != 0) [[unlikely]]
      return 0;
    std::uintptr_t const place = block::live_place(address, mark);
    block const* const blocks = blocks_.data();
    if (block_id const latest = latest_; blocks[latest].is_at(place)) [[likely]] {
      if (latest == 0) __builtin_unreachable();  // no block's record
      return latest;
    }
    return live_.find_at_once(address, [=](block_id id) { return blocks[id].is_at(place); });
  }

  /// Takes a live block off the table.
  [[gnu::always_inline]] void delist(block_id id) noexcept { live_.erase(blocks_[id].address(), id); }

  std::size_t live() const noexcept { return live_.size(); }
  /// Records that stand for a block, live or free.
  std::size_t used() const noexcept { return blocks_.size() - 1 - unused_count_; }
  /// Numbers of blocks are below this.
  std::size_t end() const noexcept { return blocks_.size(); }
  /// The same after the next growth of the array: by little, since doubling would leave much of it unused.
  std::size_t end_if_grown() const noexcept { return end() + (end() < 512 ? 64 : end() / (end() < 4096 ? 16 : 8)); }
  /// Bytes of host memory in use for bookkeeping.
  std::size_t host_bytes() const noexcept { return blocks_.bytes() + live_.host_bytes(); }

  /// Checks every record and the hash table; slow, for tests.
  bool valid() const {
    std::size_t live = 0, unused = 0;
    for (block_id id = 1; id < blocks_.size(); ++id) {
      block const& b = blocks_[id];
      if (b.state() == block_state::unused) {
        ++unused;
        continue;
      }
      if (b.size == 0) return false;
      if (b.right != 0 && (blocks_[b.right].left != id || blocks_[b.right].address() != b.address() + b.bytes()))
        return false;
      if (b.left != 0 && blocks_[b.left].right != id) return false;
      if (b.state() != block_state::live) {
        if (b.captured != shared) return false;
        continue;
      }
      ++live;
      if (live_.look_up(b.address(), address_of()) != id) return false;
    }
    return live == live_.size() && unused == unused_count_;
  }

 private:
  struct addresses {
    block const* blocks;
    std::uintptr_t operator()(block_id id) const noexcept { return blocks[id].address(); }
  };
  addresses address_of() const noexcept { return {blocks_.data()}; }

  void add_records(std::size_t grown) {
    std::size_t const old = blocks_.size();
    blocks_.grow(grown);
    for (std::size_t id = grown - 1; id >= old; --id) drop(static_cast<block_id>(id));
  }

  grown_array<block> blocks_;
  block_id unused_ = 0;
  std::size_t unused_count_ = 0;
  block_id latest_ = 0;  // that became live
  live_block_map live_;
};

}  // namespace weir::detail
