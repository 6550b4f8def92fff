#pragma once
// Small blocks that one thread has at hand, under a lock of its own.

#include <weir/pool/cached_blocks.hpp>
#include <weir/pool/heap/sequence.hpp>
#include <weir/pool/heap/slab.hpp>
#include <weir/pool/heap/slot_class.hpp>
#include <weir/pool/order/stream_key.hpp>
#include <weir/pool/pool_options.hpp>
#include <weir/support/biased_lock.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// Live and free blocks that a pool lent to one of several threads which would else wait for its lock all the time. A
/// block that the thread frees stays here for the same stream, and that thread has it again without the pool. For the
/// pool all of them are live, with a record that no request has (`record`), so that it can tell which cache has one:
/// what another thread frees, and what the pool needs for a request that finds nothing else, is asked back. Keeps
/// blocks only for streams that do not end, or whose end is noticed. Thread-safe; whoever has the pool's lock may take
/// this one, never the other way round. The idea is that of tcmalloc's thread caches.
class alignas(64) thread_cache {
 public:
  /// The alignment's log2 in the pool's record of a block that is lent, and what is subtracted there from the block's
  /// bytes says to which cache.
  static constexpr unsigned record_alignment_log = slab::not_asked;
  static constexpr std::size_t most_caches = 64;
  static_assert(most_caches < unit_bytes);

  /// May throw `std::bad_alloc`.
  explicit thread_cache(std::size_t number) : number_(number) {}
  thread_cache(thread_cache const&) = delete;
  thread_cache& operator=(thread_cache const&) = delete;

  /// What the pool notes as requested of a block of this size that is lent here.
  std::size_t record(std::size_t block_bytes) const noexcept { return block_bytes - number_; }

  // ---- for the thread that it is for, without the pool's lock

  /// A free block of the class that was freed on the stream with this key, now live; null if there is none.
  [[gnu::always_inline]] void* take(stream_key key, unsigned size_class, std::size_t bytes,
                                    unsigned alignment_log) noexcept {
    biased_section const lock(lock_);
    of_stream* const own = find(key);
    cached_blocks::number const first = own == nullptr ? 0 : own->first[size_class];
    if (first == 0) [[unlikely]]
      return nullptr;
    block& taken = blocks_.take(first);
    own->first[size_class] = taken.next;
    --own->count[size_class];
    taken.set_asked(bytes, alignment_log);
    counts_.count_allocation(bytes, taken.bytes());
    return reinterpret_cast<void*>(taken.address());
  }

  enum class answer : std::uint8_t {
    kept,
    unknown,  ///< no block here that is live and was asked for so
    no_room,  ///< for another one of this size, or of this stream
  };
  /// Keeps a block that is freed on the stream with this key.
  [[gnu::always_inline]] answer give(stream_key key, void* p, std::size_t bytes, unsigned alignment_log) noexcept {
    if (bytes > slot_class::most_bytes) return answer::unknown;
    biased_section const lock(lock_);
    cached_blocks::number const number = blocks_.find(p);
    if (number == 0) return answer::unknown;
    block const& given = blocks_[number];
    if (!given.is_asked(bytes, alignment_log)) return answer::unknown;
    of_stream* const own = find(key);
    if (own == nullptr || own->count[given.size_class()] >= most_of(given.size_class())) return answer::no_room;
    counts_.count_deallocation(bytes, given.bytes());
    push(*own, number);
    return answer::kept;
  }

  // ---- for the pool, with its lock

  /// Room for as many more blocks. May throw `std::bad_alloc`.
  void promise(std::size_t count) {
    biased_guard const lock(lock_);
    blocks_.promise(count);
  }
  void forget_promise(std::size_t count) noexcept {
    biased_guard const lock(lock_);
    blocks_.forget_promise(count);
  }
  /// A block that is lent from now on, and live. Needs a promise.
  void add_live(void* p, unsigned size_class, std::size_t bytes, unsigned alignment_log) noexcept {
    biased_guard const lock(lock_);
    block const added(p, size_class, bytes, alignment_log);
    blocks_.insert(added);
    counts_.count_allocation(bytes, added.bytes());
  }
  /// The same for one that is free, for a stream that is open. Needs a promise.
  void add_free(stream_key key, void* p, unsigned size_class) noexcept {
    biased_guard const lock(lock_);
    push(*find(key), blocks_.insert({p, size_class, cached_blocks::free_mark, 0}));
  }

  bool is_open(stream_key key) noexcept {
    biased_guard const lock(lock_);
    return find(key) != nullptr;
  }
  /// From now on what is freed on a stream is kept here; `list`: its free list. `give(p, list, bytes)` and
  /// `close(list)` are as for `drain`, for a stream that has to make room.
  template <class Give, class Close>
  void open(stream_key key, list_id list, Give give, Close close) noexcept {
    biased_guard const lock(lock_);
    of_stream* place = find(stream_key::none);
    if (place == nullptr) place = &streams_[next_closed_++ % most_streams];
    if (place->key != stream_key::none) drain(*place, give, close);
    place->key = key;
    place->list = list;
  }

  /// Gives all free blocks back: `give(p, list, block_bytes)` for each, then `close(list)` for each stream, which is no
  /// longer open.
  template <class Give, class Close>
  void drain(Give give, Close close) noexcept {
    biased_guard const lock(lock_);
    for (of_stream& each : streams_)
      if (each.key != stream_key::none) drain(each, give, close);
  }
  /// Gives half of the free blocks of a class and stream back.
  template <class Give>
  void drain(stream_key key, unsigned size_class, Give give) noexcept {
    biased_guard const lock(lock_);
    of_stream* const own = find(key);
    if (own != nullptr) drain(*own, size_class, own->count[size_class] / 2u, give);
  }

  /// How a block was asked for.
  struct live {
    std::size_t requested = 0;  ///< 0: it is not live here
    unsigned alignment_log = 0;
  };
  /// Forgets a live block, which is no longer lent, and what was counted for it, in the peaks too.
  live take_back(void const* p) noexcept {
    biased_guard const lock(lock_);
    cached_blocks::number const number = blocks_.find(p);
    if (number == 0 || blocks_[number].is_free()) return {};
    live const was = live_at(number);
    counts_.requested.move_from(was.requested);
    counts_.allocated.move_from(blocks_[number].bytes());
    blocks_.erase(number);
    return was;
  }
  /// The same for all, after `drain`: `f(p, live, block_bytes)` for each.
  template <class F>
  void take_all_back(F f) noexcept {
    biased_guard const lock(lock_);
    blocks_.for_each([&](cached_blocks::number number) {
      f(address_of(number), live_at(number), blocks_[number].bytes());
      blocks_.erase(number);
    });
    counts_.requested.move_from(counts_.requested.current);
    counts_.allocated.move_from(counts_.allocated.current);
  }

  /// What was counted here; the peaks start again from now.
  pool_numbers take_numbers() noexcept {
    biased_guard const lock(lock_);
    pool_numbers const was = counts_;
    counts_.requested.reset_peak();
    counts_.allocated.reset_peak();
    return was;
  }
  std::size_t host_bytes() const noexcept {
    biased_guard const lock(lock_);
    return sizeof(*this) + blocks_.host_bytes();
  }

 private:
  using block = cached_blocks::block;

  static constexpr std::uint8_t most_of(unsigned size_class) noexcept {
    return size_class <= slot_class::of(256) ? 32 : size_class <= slot_class::of(1024) ? 16 : 8;
  }
  /// What one stream freed.
  struct of_stream {
    stream_key key = stream_key::none;
    list_id list{};
    cached_blocks::number first[slot_class::count] = {};
    std::uint16_t count[slot_class::count] = {};  // how many it has: where threads share, a few more than `most_of`
  };

  void* address_of(cached_blocks::number number) noexcept { return reinterpret_cast<void*>(blocks_[number].address()); }
  live live_at(cached_blocks::number number) noexcept {
    return {blocks_[number].requested(), blocks_[number].alignment_log()};
  }

  of_stream* find(stream_key key) noexcept {
    if (streams_[latest_].key == key) return &streams_[latest_];
    for (unsigned i = 0; i < most_streams; ++i)
      if (streams_[i].key == key) return &streams_[latest_ = i];
    return nullptr;
  }
  void push(of_stream& own, cached_blocks::number number) noexcept {
    block& b = blocks_[number];
    unsigned const size_class = b.size_class();
    b.set_asked(cached_blocks::free_mark, 0);
    b.next = own.first[size_class];
    own.first[size_class] = number;
    ++own.count[size_class];
  }
  template <class Give>
  void drain(of_stream& own, unsigned size_class, unsigned count, Give give) noexcept {
    own.count[size_class] = static_cast<std::uint16_t>(own.count[size_class] - count);
    for (; count != 0; --count) {
      cached_blocks::number const number = own.first[size_class];
      own.first[size_class] = blocks_[number].next;
      give(address_of(number), own.list, blocks_[number].bytes());
      blocks_.erase(number);
    }
  }
  template <class Give, class Close>
  void drain(of_stream& own, Give give, Close close) noexcept {
    for (unsigned c = 0; c < slot_class::count; ++c) drain(own, c, own.count[c], give);
    close(own.list);
    own.key = stream_key::none;
  }

  static constexpr unsigned most_streams = 4;

  // Every search enters every cache once. What that costs the cache's thread ends with its next entries, however often.
  biased_lock mutable lock_{512};
  unsigned latest_ = 0;  // found
  unsigned next_closed_ = 0;
  std::size_t const number_;
  pool_numbers counts_;
  cached_blocks blocks_;
  of_stream streams_[most_streams];
};

}  // namespace weir::detail
