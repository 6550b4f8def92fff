#pragma once
// Every block of every segment: its place, its neighbours, and which one a live pointer belongs to.

#include <weir/blocks/size_classes.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weir::detail {

/// A block's number; 0 is none.
using block_id = std::uint32_t;
using lane_id = std::uint16_t;

enum class block_state : std::uint8_t { unused, live, free };

/// A piece of a segment. Host memory, apart from what it describes: nothing on the device can overwrite it.
struct block {
  std::uintptr_t address = 0;
  units size = 0;
  lane_id lane = 0;  ///< free: whose
  block_state state = block_state::unused;
  std::uint8_t alignment_log = 0;  ///< live: log2 of what was asked for
  block_id left = 0;               ///< neighbours in the segment; 0 at its ends
  block_id right = 0;
  block_id list_previous = 0;  ///< free: in its size class
  block_id list_next = 0;      ///< free; unused: next unused record
  block_id older = 0;          ///< free: in its lane, by ticket
  block_id newer = 0;
  std::uint64_t mark = 0;  ///< live: bytes asked for; free: ticket of the latest free in it

  std::size_t bytes() const noexcept { return std::size_t{size} * unit_bytes; }
};

/// Records of blocks in one growing array, and a hash table from address to live block. Constant time, except for the
/// growth of either, which `reserve` does before anything changes. Not thread-safe.
class block_table {
 public:
  block_table() : blocks_(1), slots_(16) {}

  block& operator[](block_id id) noexcept { return blocks_[id]; }
  block const& operator[](block_id id) const noexcept { return blocks_[id]; }

  /// Makes room for `records` new blocks and one more live one; may throw `std::bad_alloc`, and then changed nothing.
  void reserve(std::size_t records) {
    if (unused_count_ < records) [[unlikely]]
      add_records();
    if ((live_ + 1) * 4 > slots_.size() * 3) [[unlikely]]
      rehash();
  }

  /// A record for a whole segment. Needs one reserved.
  block_id add(std::uintptr_t address, units size) noexcept {
    block_id const id = unused_;
    unused_ = blocks_[id].list_next;
    --unused_count_;
    blocks_[id] = block{.address = address, .size = size};
    return id;
  }

  /// Cuts `id` to `size` units; returns the rest, a block of its own to the right of it. Needs one reserved.
  block_id split(block_id id, units size) noexcept {
    block_id const rest = add(blocks_[id].address + std::size_t{size} * unit_bytes, blocks_[id].size - size);
    block& first = blocks_[id];
    blocks_[rest].left = id;
    blocks_[rest].right = first.right;
    if (first.right != 0) blocks_[first.right].left = rest;
    first.right = rest;
    first.size = size;
    return rest;
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

  /// Forgets a whole segment.
  void drop(block_id id) noexcept {
    blocks_[id].state = block_state::unused;
    blocks_[id].list_next = unused_;
    unused_ = id;
    ++unused_count_;
  }

  /// Makes `id` live, found by its address from now on. Needs room reserved.
  void enlist(block_id id) noexcept {
    insert({tag_of(blocks_[id].address), id});
    ++live_;
    blocks_[id].state = block_state::live;
  }

  /// The live block that starts at `address`, or 0.
  block_id find(std::uintptr_t address) noexcept {
    found_ = find_slot(address);
    return slots_[found_].id;
  }

  /// Takes a live block off the table.
  void delist(block_id id) noexcept {
    std::size_t hole = slots_[found_].id == id ? found_ : find_slot(blocks_[id].address);
    --live_;
    // Close the gap: move back what would no longer be reached. Knuth, TAOCP 3, 6.4, algorithm R.
    std::size_t const mask = slots_.size() - 1;
    for (std::size_t at = next(hole); slots_[at].id != 0; at = next(at)) {
      if (((at - home(slots_[at].tag)) & mask) < ((at - hole) & mask)) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole] = {};
  }

  std::size_t live() const noexcept { return live_; }
  /// Records that stand for a block, live or free.
  std::size_t used() const noexcept { return blocks_.size() - 1 - unused_count_; }
  /// Bytes of host memory in use for bookkeeping.
  std::size_t host_bytes() const noexcept {
    return blocks_.capacity() * sizeof(block) + slots_.capacity() * sizeof(slot);
  }

  /// Checks every record and the hash table; slow, for tests.
  bool valid() const {
    std::size_t live = 0, unused = 0;
    for (block_id id = 1; id < blocks_.size(); ++id) {
      block const& b = blocks_[id];
      if (b.state == block_state::unused) {
        ++unused;
        continue;
      }
      if (b.size == 0) return false;
      if (b.right != 0 && (blocks_[b.right].left != id || blocks_[b.right].address != b.address + b.bytes()))
        return false;
      if (b.left != 0 && blocks_[b.left].right != id) return false;
      if (b.state != block_state::live) continue;
      ++live;
      if (slots_[find_slot(b.address)].id != id) return false;
    }
    return live == live_ && unused == unused_count_;
  }

 private:
  /// The tag is most of the address's hash. It keeps probing within the slots: only a block with the same tag, nearly
  /// always the one that is looked for, has its record read.
  struct slot {
    std::uint32_t tag = 0;
    block_id id = 0;
  };

  static std::uint32_t tag_of(std::uintptr_t address) noexcept {
    // Fibonacci hashing: the high bits of the product depend on all bits of the address.
    return static_cast<std::uint32_t>((address / unit_bytes * 0x9e3779b97f4a7c15u) >> 32);
  }
  std::size_t home(std::uint32_t tag) const noexcept { return tag >> shift_; }
  std::size_t next(std::size_t at) const noexcept { return (at + 1) & (slots_.size() - 1); }

  std::size_t find_slot(std::uintptr_t address) const noexcept {
    std::uint32_t const tag = tag_of(address);
    std::size_t at = home(tag);
    while (slots_[at].id != 0 && (slots_[at].tag != tag || blocks_[slots_[at].id].address != address)) at = next(at);
    return at;
  }

  void insert(slot s) noexcept {
    std::size_t at = home(s.tag);
    while (slots_[at].id != 0) at = next(at);
    slots_[at] = s;
  }

  void add_records() {
    std::size_t const old = blocks_.size();
    std::size_t const grown = old + (old < 64 ? 64 : old / 2);
    blocks_.resize(grown);
    for (std::size_t id = grown - 1; id >= old; --id) drop(static_cast<block_id>(id));
  }

  void rehash() {
    std::vector<slot> larger(slots_.size() * 2);
    slots_.swap(larger);
    --shift_;
    for (slot const& s : larger)
      if (s.id != 0) insert(s);
  }

  std::vector<block> blocks_;
  block_id unused_ = 0;
  std::size_t unused_count_ = 0;
  std::vector<slot> slots_;  // a power of two of them, at most three quarters in use
  unsigned shift_ = 28;
  std::size_t found_ = 0;  // where the latest find ended: what it found is most often delisted next
  std::size_t live_ = 0;
};

static_assert(sizeof(block) == 48);

}  // namespace weir::detail
