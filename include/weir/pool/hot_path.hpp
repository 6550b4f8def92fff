#pragma once
// What most requests and frees of a pool come down to: the thread that owns the lock, and what its stream has at hand;
// or where threads wait for each other, what the thread's own cache has.

#include <weir/core/resource.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/pool/heap/block_table.hpp>
#include <weir/pool/heap/slot_class.hpp>
#include <weir/pool/order/stream_key.hpp>
#include <weir/pool/pool_memory.hpp>
#include <weir/pool/stream_ordered_heap.hpp>
#include <weir/pool/thread_cache.hpp>
#include <weir/support/biased_lock.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// Whether a free is done with; where it is not, but nothing is kept on the stream, it is for the heap.
enum class given : std::uint8_t { no, yes, for_the_heap };

/// Two functions that call no other, so that neither saves registers over a call: together these took a tenth of a
/// pair's time. They serve or change nothing; `caching_allocator` then goes the general way, which has all cases.
template <resource Upstream>
class hot_path : public pool_memory<Upstream> {
  using base = pool_memory<Upstream>;

 public:
  /// False where nothing is at hand, which takes no lock to say. The size comes last: where large and small blocks take
  /// turns, and small ones are not kept, the processor need not guess which this is.
  [[gnu::always_inline]] bool may_be_at_hand(std::size_t block_bytes, std::size_t alignment) const noexcept {
    return keeps_small && (keeps_.load() || mutex_.is_contended()) && block_bytes - 1 < slot_class::most_bytes &&
           alignment - 1 < unit_bytes && (alignment & (alignment - 1)) == 0;
  }

  /// What `take_as_owner` returns to the owner where the stream has nothing at hand: nobody need look again.
  static constexpr std::uintptr_t nothing_at_hand = 1;
  static bool is_memory(void const* taken) noexcept {
    return reinterpret_cast<std::uintptr_t>(taken) > nothing_at_hand;
  }
  /// What the stream has at hand for a request; no memory (`is_memory`) in all other cases. For what `may_be_at_hand`.
  [[gnu::always_inline]] void* take_as_owner(stream_ref stream, std::size_t bytes, std::size_t alignment) noexcept {
    return take(stream, bytes, live_mark(static_cast<unsigned>(std::countr_zero(alignment))));
  }
  /// The stream has at hand from now on what it frees, where that is `given::yes`. For what `may_be_at_hand`.
  [[gnu::always_inline]] given give_as_owner(stream_ref stream, void* p, std::size_t bytes,
                                             std::size_t alignment) noexcept {
    return give(stream, p, bytes, live_mark(static_cast<unsigned>(std::countr_zero(alignment))));
  }

 protected:
  // On growable memory small blocks stay in the heap: it holds what is asked for to a part in fifty, and what streams
  // have at hand is more than that.
  static constexpr bool keeps_small = !growable<Upstream>;

  hot_path(Upstream& upstream, pool const& options, int device) : base(upstream, options, device) {}
  ~hot_path() = default;

  bool streams_last() const noexcept { return options_.streams == stream_lifetime::outlives_pool; }
  bool is_above_threshold() const noexcept { return segments_.held() > options_.release_threshold; }

  using base::heap_, base::keeps_, base::lent_, base::mutex_, base::numbers_, base::options_, base::segments_;

 private:
  // A stream with an id of its own is known by that; others go on by a jump. So does who does not own the lock, which
  // is nobody where threads have caches: to a function with the same parameters. Streams that only CUDA knows have
  // nothing at hand.
  [[gnu::noinline]] void* take(stream_ref stream, std::size_t bytes, live_mark mark) noexcept {
    if (stream.lasting_id() == 0) [[unlikely]]
      return take_by_handle(stream, bytes, mark);
    return take_for(stream, stream_identity::key_for(stream_identity::lasting, stream.lasting_id()), bytes, mark);
  }
  [[gnu::noinline]] void* take_by_handle(stream_ref stream, std::size_t bytes, live_mark mark) noexcept {
    stream_key const key = stream_identity::key_at_hand(stream, streams_last());
    if (key == stream_key::none) return reinterpret_cast<void*>(nothing_at_hand);
    return take_for(stream, key, bytes, mark);
  }
  [[gnu::always_inline]] void* take_for(stream_ref stream, stream_key key, std::size_t bytes, live_mark mark) noexcept {
    {
      biased_owner_section const lock(mutex_);
      if (lock) [[likely]] {
        if (heap_.is_exiting_or(count_declared_captures())) [[unlikely]]
          return nullptr;
        auto const size_class = slot_class::for_bytes(bytes);
        void* const p = heap_.take_small(key, size_class, bytes, mark);
        if (p == nullptr) [[unlikely]]
          return reinterpret_cast<void*>(nothing_at_hand);
        numbers_.count_allocation(bytes, size_class.bytes);
        return p;
      }
    }
    return take_from_cache(stream, bytes, mark);
  }
  [[gnu::noinline]] void* take_from_cache(stream_ref stream, std::size_t bytes, live_mark mark) noexcept {
    if (stream.lasting_id() == 0) [[unlikely]]
      return take_from_cache_by_handle(stream, bytes, mark);
    return take_cached(stream_identity::key_for(stream_identity::lasting, stream.lasting_id()), bytes, mark);
  }
  [[gnu::noinline]] void* take_from_cache_by_handle(stream_ref stream, std::size_t bytes, live_mark mark) noexcept {
    return take_cached(stream_identity::key_at_hand(stream, streams_last()), bytes, mark);
  }
  [[gnu::always_inline]] void* take_cached(stream_key key, std::size_t bytes, live_mark mark) noexcept {
    thread_cache* const cache = lent_.cache_hint();
    if (cache == nullptr || heap_.is_exiting_or(count_declared_captures())) [[unlikely]]
      return nullptr;
    return cache->take_at_once(key, slot_class::for_bytes(bytes), bytes, mark.alignment_log());
  }

  [[gnu::noinline]] given give(stream_ref stream, void* p, std::size_t bytes, live_mark mark) noexcept {
    if (stream.lasting_id() == 0) [[unlikely]]
      return give_by_handle(stream, p, bytes, mark);
    return give_for(stream, stream_identity::key_for(stream_identity::lasting, stream.lasting_id()), p, bytes, mark);
  }
  [[gnu::noinline]] given give_by_handle(stream_ref stream, void* p, std::size_t bytes, live_mark mark) noexcept {
    stream_key const key = stream_identity::key_at_hand(stream, streams_last());
    return stream_identity::must_ask(stream, key) ? given::no : give_for(stream, key, p, bytes, mark);
  }
  [[gnu::always_inline]] given give_for(stream_ref stream, stream_key key, void* p, std::size_t bytes,
                                        live_mark mark) noexcept {
    {
      biased_owner_section const lock(mutex_);
      if (lock) [[likely]] {
        if (heap_.is_exiting_or(count_declared_captures()) || is_above_threshold()) [[unlikely]]
          return given::no;
        std::size_t const held = heap_.give_at_once(key, p, bytes, mark);
        if (held <= heap_.for_the_heap) [[unlikely]]
          return held == 0 ? given::no : given::for_the_heap;
        numbers_.count_deallocation(bytes, held);
        return given::yes;
      }
    }
    return give_to_cache(stream, p, bytes, mark);
  }
  [[gnu::noinline]] given give_to_cache(stream_ref stream, void* p, std::size_t bytes, live_mark mark) noexcept {
    if (stream.lasting_id() == 0) [[unlikely]]
      return give_to_cache_by_handle(stream, p, bytes, mark);
    return give_cached(stream_identity::key_for(stream_identity::lasting, stream.lasting_id()), p, bytes, mark);
  }
  [[gnu::noinline]] given give_to_cache_by_handle(stream_ref stream, void* p, std::size_t bytes,
                                                  live_mark mark) noexcept {
    stream_key const key = stream_identity::key_at_hand(stream, streams_last());
    return key == stream_key::none ? given::no : give_cached(key, p, bytes, mark);  // in host order
  }
  [[gnu::always_inline]] given give_cached(stream_key key, void* p, std::size_t bytes, live_mark mark) noexcept {
    thread_cache* const cache = lent_.cache_hint();
    if (cache == nullptr || heap_.is_exiting_or(count_declared_captures())) [[unlikely]]
      return given::no;
    bool const is_kept = cache->give_at_once(key, p, slot_class::for_bytes(bytes), bytes, mark.alignment_log());
    return is_kept ? given::yes : given::no;
  }
};

}  // namespace weir::detail
