#pragma once
// Which free list is a stream's, by its key; which lists are spare.

#include <weir/pool/heap/sequence.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace weir::detail {

/// Gives each key a free list of its own, while that is open. Those seen of late are found in a few instructions, the
/// others by a hash. Knows nothing of what is in a list. `Key` is a number that is some stream's, but for `Key{}`. Not
/// thread-safe.
template <class Key = std::uint64_t>
class stream_lists {
 public:
  static constexpr std::size_t most = 0xffff;

  stream_lists() : keys_(1), next_(1), buckets_(1) {}

  /// So many more that are ready to be opened, if there may be that many. May throw `std::bad_alloc`.
  void add(std::size_t more) {
    std::size_t const old = keys_.size(), size = more < most - old ? old + more : most;
    next_.grow(size);
    make_buckets_for(size);
    keys_.grow(size);
    for (std::size_t list = size; list-- > old;) chain(first_closed_, static_cast<list_id>(list));
    closed_ += size - old;
  }

  /// The free list of a stream's key (never `Key{}`), or `shared` if it has none.
  list_id find(Key key) const noexcept {
    if (list_id const list = find_cached(key); list != shared) return list;
    list_id list = buckets_[bucket_of(key)];
    while (list != shared && keys_[list] != key) list = next_[list];
    return list;
  }
  /// The same for streams seen of late; `shared` says nothing. Any key.
  [[gnu::always_inline]] list_id find_cached(Key key) const noexcept {
    std::size_t const at = slot_of(key);
    return cache_[at].key == key ? cache_[at].list : find_beside(key, at);
  }

  /// The same for most of them, in a few instructions.
  list_id find_at_once(Key key) const noexcept {
    slot const& s = cache_[slot_of(key)];
    return s.key == key ? s.list : shared;
  }

  /// The same, but opens one if it may; `shared` only if none is spare.
  list_id find_or_open(Key key, bool& opened, bool may_open = true) noexcept {
    opened = false;
    if (list_id const list = find_cached(key); list != shared) return list;
    list_id found = find(key);
    if (found == shared && may_open && closed_ != 0) {
      found = first_closed_;
      unchain(first_closed_, found);
      --closed_;
      opened = true;
      keys_[found] = key;
      chain(buckets_[bucket_of(key)], found);
    }
    if (found != shared) remember({key, found});
    return found;
  }

  /// The list is no key's any more.
  void close(list_id list) noexcept {
    for (std::size_t beside = 0; beside < ways; ++beside)
      if (slot& s = cache_[slot_of(keys_[list]) ^ beside]; s.key == keys_[list]) s = {};
    unchain(buckets_[bucket_of(keys_[list])], list);
    chain(first_closed_, list);
    keys_[list] = Key{};
    ++closed_;
  }

  bool is_open(list_id list) const noexcept { return keys_[list] != Key{}; }
  Key key(list_id list) const noexcept { return keys_[list]; }
  /// All of them, and `shared`.
  std::size_t count() const noexcept { return keys_.size(); }
  std::size_t open_count() const noexcept { return keys_.size() - 1 - closed_; }
  /// Those ready to be opened.
  std::size_t closed_count() const noexcept { return closed_; }

  /// Bytes of host memory in use, beside itself.
  std::size_t host_bytes() const noexcept { return keys_.bytes() + next_.bytes() + buckets_.bytes(); }

  bool valid() const {
    std::size_t closed = 0;
    for (std::size_t i = 1; i < keys_.size(); ++i) {
      closed += keys_[i] == Key{};
      if (keys_[i] != Key{} && find(keys_[i]) != static_cast<list_id>(i)) return false;
    }
    return closed == closed_;
  }

 private:
  static constexpr std::size_t cache_size = 64;
  static constexpr std::size_t ways = 4;  // places that a key may have: its own, and three beside that

  struct slot {
    Key key{};
    list_id list = shared;
  };

  // Fibonacci hashing: keys may differ in any of their bits.
  static std::uint64_t hash_of(Key key) noexcept { return static_cast<std::uint64_t>(key) * 0x9e3779b97f4a7c15u; }
  // By the low half, with a factor that fits into an instruction: those seen of late seldom differ in the other alone.
  static std::size_t slot_of(Key key) noexcept { return static_cast<std::uint32_t>(key) * 0x9e3779b1u >> 26; }
  list_id find_beside(Key key, std::size_t at) const noexcept {
    for (std::size_t beside = 1; beside < ways; ++beside)
      if (slot const& s = cache_[at ^ beside]; s.key == key) return s.list;
    return shared;
  }
  /// For a key that is not there. Where its places are taken, one that was put there earlier goes.
  void remember(slot put) noexcept {
    std::size_t const at = slot_of(put.key);
    for (std::size_t beside = 0; beside < ways && put.key != Key{}; ++beside) std::swap(cache_[at ^ beside], put);
  }
  std::size_t bucket_of(Key key) const noexcept {
    return static_cast<std::size_t>(hash_of(key) >> 32) & (buckets_.size() - 1);
  }
  /// Has a bucket a free list, at least; a power of two.
  void make_buckets_for(std::size_t lists) {
    if (lists <= buckets_.size()) return;
    std::size_t count = buckets_.size();
    while (count < lists) count *= 2;
    grown_array<list_id> more(count);
    buckets_.swap(more);
    for (std::size_t list = 1; list < keys_.size(); ++list)
      if (keys_[list] != Key{}) chain(buckets_[bucket_of(keys_[list])], static_cast<list_id>(list));
  }
  void chain(list_id& first, list_id list) noexcept {
    next_[list] = first;
    first = list;
  }
  void unchain(list_id& first, list_id list) noexcept {
    list_id* at = &first;
    while (*at != list) at = &next_[*at];
    *at = next_[list];
  }

  std::size_t closed_ = 0;
  grown_array<Key> keys_;         // of open free lists; Key{}: closed
  grown_array<list_id> next_;     // of the closed free lists, or of those in the same bucket
  grown_array<list_id> buckets_;  // first free lists, by their keys' hashes
  list_id first_closed_ = shared;
  slot cache_[cache_size] = {};
};

}  // namespace weir::detail
