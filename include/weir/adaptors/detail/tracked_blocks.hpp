#pragma once
// All live blocks, with who allocated each, and the latest frees.

#include <weir/adaptors/detail/call_stacks.hpp>
#include <weir/adaptors/detail/memory_statistics.hpp>
#include <weir/adaptors/detail/tag_totals.hpp>
#include <weir/core/live_block.hpp>
#include <weir/core/tag.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/support/blocks_by_address.hpp>
#include <weir/support/grown_array.hpp>
#include <weir/support/spin_lock.hpp>
#include <weir/support/thread_id.hpp>

#include <time.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weir {

/// A live block, as `tracking` knows it.
struct tracked_block {
  std::uintptr_t address = 0;
  std::size_t bytes = 0;  ///< as the caller asked
  std::size_t alignment = 0;
  std::size_t taken = 0;  ///< of the upstream (`weir::taken`)
  tag_name tag = {};
  stream_ref stream = {};
  std::uint64_t thread = 0;              ///< the kernel's number
  std::uint64_t nanoseconds = 0;         ///< when it was allocated: of a clock that begins with the machine
  detail::call_stack_id call_stack = 0;  ///< 0: not kept
};

namespace detail {

/// To some milliseconds, in some nanoseconds.
inline std::uint64_t coarse_nanoseconds() noexcept {
  ::timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

/// What is known of an address whose free is wrong.
struct wrong_free {
  enum kind {
    unknown,  ///< nothing
    differs,  ///< `block` is live there, with another size or alignment
    again,    ///< `block` was there, and was freed by `thread` at `nanoseconds`
    inside,   ///< it lies in `block`, which is live
  };
  kind what = unknown;
  tracked_block block = {};
  std::uint64_t thread = 0, nanoseconds = 0;
};

/// Under one short lock; thread-safe. Only `promise` takes host memory, about 200 B a live block.
class tracked_blocks {
 public:
  tracked_blocks() : freed_(remembered_frees) {}

  /// Makes room for `count` blocks of this tag, so that `add` can be called after it for each, or `forget_promise` for
  /// all of them. May throw `std::bad_alloc`, and has changed nothing then.
  void promise(tag_name tag, std::size_t count = 1) {
    spin_guard const lock(lock_);
    by_tag_.make_room(tag);
    blocks_.promise(count);
  }
  /// The request failed, and is counted as that.
  void forget_promise(std::size_t count = 1) noexcept {
    spin_guard const lock(lock_);
    blocks_.forget_promise(count);
    ++numbers_.failures;
  }
  /// Of the calling thread, now.
  void add(tracked_block block) noexcept {
    block.thread = thread_id();
    block.nanoseconds = coarse_nanoseconds();
    spin_guard const lock(lock_);
    // What is live there still was given back past this layer.
    if (tracked_block const* const stale = blocks_.find(block.address); stale != nullptr) count_off(*stale);
    blocks_.insert(block.address, block);
    numbers_.add(block.bytes, block.taken);
    by_tag_.of(block.tag).add(block.bytes, block.taken);
  }

  /// Takes off just the block that was added so, and copies it to `found`; false, and nothing done, if there is none.
  bool take_off(void const* p, std::size_t bytes, std::size_t alignment, tracked_block& found) noexcept {
    auto const address = reinterpret_cast<std::uintptr_t>(p);
    freed_block const now{.nanoseconds = coarse_nanoseconds(), .thread = thread_id()};
    spin_guard const lock(lock_);
    tracked_block const* const live = blocks_.find(address);
    if (live == nullptr || live->bytes != bytes || live->alignment != alignment) return false;
    found = *live;
    blocks_.erase(address);
    count_off(found);
    freed_[next_freed_++ % remembered_frees] = {found, now.nanoseconds, now.thread};
    return true;
  }
  /// As if it had not been taken off.
  void put_back(tracked_block const& block) noexcept {
    spin_guard const lock(lock_);
    if (!blocks_.insert_again(block.address, block)) return;
    numbers_.put_back(block.bytes, block.taken);
    by_tag_.of(block.tag).put_back(block.bytes, block.taken);
  }

  /// As it was asked for; none if no live block begins there.
  live_block find_block(void const* p) const noexcept {
    spin_guard const lock(lock_);
    tracked_block const* const live = blocks_.find(reinterpret_cast<std::uintptr_t>(p));
    return live == nullptr ? live_block{} : live_block{live->bytes, live->alignment, true};
  }

  /// Why `take_off` found nothing. Looks at all blocks.
  wrong_free explain(void const* p) const noexcept {
    auto const address = reinterpret_cast<std::uintptr_t>(p);
    wrong_free found;
    spin_guard const lock(lock_);
    if (tracked_block const* const live = blocks_.find(address); live != nullptr)
      return {.what = wrong_free::differs, .block = *live};
    for (std::size_t i = 0; i < remembered_frees; ++i) {  // the latest first
      freed_block const& freed = freed_[(next_freed_ - 1 - i) % remembered_frees];
      if (freed.block.address == address && address != 0)
        return {wrong_free::again, freed.block, freed.thread, freed.nanoseconds};
    }
    blocks_.for_each([&](std::uintptr_t begin, tracked_block const& each) {
      if (address > begin && address - begin < each.bytes) found = {.what = wrong_free::inside, .block = each};
    });
    return found;
  }

  memory_statistics numbers() const noexcept {
    spin_guard const lock(lock_);
    return numbers_;
  }
  std::vector<tag_statistics> numbers_by_tag() const {
    spin_guard const lock(lock_);
    return by_tag_.used();
  }
  void reset_peaks() noexcept {
    spin_guard const lock(lock_);
    numbers_.reset_peaks();
    by_tag_.reset_peaks();
  }
  /// A copy of all that is live, in no order.
  std::vector<tracked_block> all() const {
    std::vector<tracked_block> copies;
    for (std::size_t room = live_count();; room = copies.capacity() * 2) {
      copies.reserve(room + 16);  // outside of the lock
      spin_guard const lock(lock_);
      if (blocks_.size() > copies.capacity()) continue;
      blocks_.for_each([&](std::uintptr_t, tracked_block const& each) { copies.push_back(each); });
      return copies;
    }
  }

 private:
  struct freed_block {
    tracked_block block = {};
    std::uint64_t nanoseconds = 0, thread = 0;
  };
  static constexpr std::size_t remembered_frees = 256;

  std::size_t live_count() const noexcept {
    spin_guard const lock(lock_);
    return blocks_.size();
  }
  void count_off(tracked_block const& block) noexcept {
    numbers_.take_off(block.bytes, block.taken);
    by_tag_.of(block.tag).take_off(block.bytes, block.taken);
  }

  mutable spin_lock lock_;
  blocks_by_address<tracked_block> blocks_;
  memory_statistics numbers_;
  tag_totals by_tag_;
  grown_array<freed_block> freed_;  // a ring
  std::size_t next_freed_ = 0;
};

}  // namespace detail
}  // namespace weir
