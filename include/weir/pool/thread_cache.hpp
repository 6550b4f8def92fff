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
#include <utility>

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
  [[gnu::always_inline]] void* take(stream_key key, slot_class::sized size_class, std::size_t bytes,
                                    unsigned alignment_log) noexcept {
    biased_section const lock(lock_);
    of_stream* const own = find(key);
    return own == nullptr ? nullptr : take(*own, size_class, bytes, alignment_log);
  }

  /// For a request that found nothing here: whether the pool is to lend the block. Not for a while where others free
  /// most of what is lent: who then asks the pool itself saves all of them the way back.
  bool wants_more() noexcept {
    biased_section const lock(lock_);
    if (--requests_to_look_ == 0) look_who_frees();
    return wants_more_;
  }
  /// What it said last.
  bool wanted_more() const noexcept {
    biased_section const lock(lock_);
    return wants_more_;
  }

  enum class answer : std::uint8_t {
    kept,
    unknown,  ///< no block here that is live and was asked for so
    no_room,  ///< for another one of this size, or of this stream
  };
  /// Keeps a block that is freed on the stream with this key; of at most `slot_class::most_bytes`.
  [[gnu::always_inline]] answer give(stream_key key, void* p, slot_class::sized size_class, std::size_t bytes,
                                     unsigned alignment_log) noexcept {
    biased_section const lock(lock_);
    return give(find(key), blocks_.find(p), size_class, bytes, alignment_log);
  }

  // ---- the same in a few instructions and without a call, so that no register is saved over one: for the lock's
  // owner,
  // ---- where the stream is found at once

  /// Null, and nothing changed, elsewhere.
  [[gnu::always_inline]] void* take_at_once(stream_key key, slot_class::sized size_class, std::size_t bytes,
                                            unsigned alignment_log) noexcept {
    biased_owner_section const lock(lock_);
    if (!lock) [[unlikely]]
      return nullptr;
    of_stream& own = streams_[place_of(key)];
    return own.key == key ? take(own, size_class, bytes, alignment_log) : nullptr;
  }
  /// False, and nothing changed, elsewhere.
  [[gnu::always_inline]] bool give_at_once(stream_key key, void* p, slot_class::sized size_class, std::size_t bytes,
                                           unsigned alignment_log) noexcept {
    biased_owner_section const lock(lock_);
    if (!lock) [[unlikely]]
      return false;
    of_stream& own = streams_[place_of(key)];
    return own.key == key && give(&own, blocks_.find_at_once(p), size_class, bytes, alignment_log) == answer::kept;
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
    push(*find(key), blocks_.insert({p, size_class, cached_blocks::free_mark, 0}), size_class);
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
    if (own != nullptr) drain(*own, size_class, own->count(size_class) / 2u, give);
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
    ++asked_back_;
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

  static constexpr std::int16_t most_of(unsigned size_class) noexcept {
    return size_class <= slot_class::of(256) ? 32 : size_class <= slot_class::of(1024) ? 16 : 8;
  }
  /// What one stream freed.
  struct alignas(64) of_stream {
    of_stream() noexcept {
      for (unsigned c = 0; c < slot_class::count; ++c) room[c] = most_of(c);
    }
    unsigned count(unsigned size_class) const noexcept {
      return static_cast<unsigned>(most_of(size_class) - room[size_class]);
    }

    stream_key key = stream_key::none;
    list_id list{};
    cached_blocks::number first[slot_class::count] = {};
    std::int16_t room[slot_class::count];  // for so many more; where threads share, a few less than none
  };

  [[gnu::always_inline]] void* take(of_stream& own, slot_class::sized size_class, std::size_t bytes,
                                    unsigned alignment_log) noexcept {
    cached_blocks::number const first = own.first[size_class.number];
    if (first == 0) [[unlikely]]
      return nullptr;
    block& taken = blocks_.take(first);
    own.first[size_class.number] = taken.next;
    ++own.room[size_class.number];
    taken.set_asked(bytes, alignment_log, size_class.number);
    counts_.count_allocation(bytes, size_class.bytes);
    return reinterpret_cast<void*>(taken.address());
  }
  [[gnu::always_inline]] answer give(of_stream* own, cached_blocks::number number, slot_class::sized size_class,
                                     std::size_t bytes, unsigned alignment_log) noexcept {
    if (number == 0 || !blocks_[number].is_asked(bytes, alignment_log, size_class.number)) return answer::unknown;
    if (own == nullptr || own->room[size_class.number] <= 0) return answer::no_room;
    counts_.count_deallocation(bytes, size_class.bytes);
    push(*own, number, size_class.number);
    return answer::kept;
  }

  /// Each time that others free most, twice as many requests go to the pool until some blocks are lent again, to see
  /// who frees them now.
  void look_who_frees() noexcept {
    std::uint64_t const frees = counts_.deallocations - std::exchange(frees_before_, counts_.deallocations);
    std::uint64_t const asked_back = std::exchange(asked_back_, 0);
    bool const others_free = wants_more_ && asked_back > frees;
    requests_to_look_ = others_free ? pause_ : requests_a_look;
    wants_more_ = !others_free;
    if (others_free) pause_ = lesser(2 * pause_, longest_pause);
    if (frees > asked_back) pause_ = requests_a_look;
  }

  void* address_of(cached_blocks::number number) noexcept { return reinterpret_cast<void*>(blocks_[number].address()); }
  live live_at(cached_blocks::number number) noexcept {
    return {blocks_[number].requested(), blocks_[number].alignment_log()};
  }

  of_stream* find(stream_key key) noexcept {
    std::uint8_t& place = place_of(key);
    if (streams_[place].key == key) return &streams_[place];
    for (std::uint8_t i = 0; i < most_streams; ++i)
      if (streams_[i].key == key) return &streams_[place = i];
    return nullptr;
  }
  /// Where a stream was found last, or another one of the same hash.
  std::uint8_t& place_of(stream_key key) noexcept {
    return places_[static_cast<std::uint32_t>(key) * 0x9e37'79b1u >> (32 - places_log)];
  }
  void push(of_stream& own, cached_blocks::number number, unsigned size_class) noexcept {
    block& b = blocks_[number];
    b.set_asked(cached_blocks::free_mark, 0, size_class);
    b.next = own.first[size_class];
    own.first[size_class] = number;
    --own.room[size_class];
  }
  template <class Give>
  void drain(of_stream& own, unsigned size_class, unsigned count, Give give) noexcept {
    own.room[size_class] = static_cast<std::int16_t>(own.room[size_class] + static_cast<int>(count));
    for (; count != 0; --count) {
      cached_blocks::number const number = own.first[size_class];
      own.first[size_class] = blocks_[number].next;
      give(address_of(number), own.list, blocks_[number].bytes());
      blocks_.erase(number);
    }
  }
  template <class Give, class Close>
  void drain(of_stream& own, Give give, Close close) noexcept {
    for (unsigned c = 0; c < slot_class::count; ++c) drain(own, c, own.count(c), give);
    close(own.list);
    own.key = stream_key::none;
  }

  static constexpr unsigned most_streams = 16;
  static constexpr std::size_t requests_a_look = 64, longest_pause = 64 * requests_a_look;
  static constexpr unsigned places_log = 6;

  // Every search enters every cache once. What that costs the cache's thread ends with its next entries, however often.
  biased_lock mutable lock_{512};
  unsigned next_closed_ = 0;
  std::size_t const number_;
  pool_numbers counts_;
  cached_blocks blocks_;
  of_stream streams_[most_streams];
  std::uint8_t places_[1u << places_log] = {};  // by a hash of the key: see `place_of`
  bool wants_more_ = true;
  std::size_t requests_to_look_ = requests_a_look, pause_ = requests_a_look;
  std::uint64_t asked_back_ = 0, frees_before_ = 0;  // since, and up to, the last look
};

}  // namespace weir::detail
