#pragma once
// What arenas have in common: which thread has which, which segment is whose, and one budget for all.

#include <weir/core/error.hpp>
#include <weir/core/resource.hpp>
#include <weir/pool/pool_options.hpp>
#include <weir/pool/upstream_calls.hpp>
#include <weir/support/address_map.hpp>
#include <weir/support/grown_array.hpp>
#include <weir/support/mutex.hpp>
#include <weir/support/shared_owner.hpp>

#include <cstddef>
#include <cstdint>
#include <new>

namespace weir::detail {

class arena_lease;

/// The lease that the calling thread used last. Never destroyed, so that it can be asked while the thread's other
/// objects are. What it points to is alive: the thread's list owns it, and forgets it here first.
struct latest_lease {
  arena_lease const* lease = nullptr;
  std::size_t index = 0;
  bool holds_some = false;  // the thread's list exists
  bool ended = false;       // and does no more
};
inline thread_local constinit latest_lease this_thread_lease{};

/// Hands out the numbers of arenas to threads. A thread keeps its number until it ends; then the next new thread gets
/// it, and the memory with it. When all are taken, threads share.
class arena_lease {
 public:
  static constexpr std::size_t most = 64;
  static constexpr std::size_t none = ~std::size_t{0};

  explicit arena_lease(std::size_t count) : holders_(count) {}

  /// The calling thread's arena of the resource that `lease` belongs to. Takes one if it has none yet.
  static std::size_t of_this_thread(shared_owner<arena_lease> const& lease) noexcept {
    if (this_thread_lease.lease == lease.get()) [[likely]]
      return this_thread_lease.index;
    return find_or_take(lease);
  }
  /// The same, but `none` if it has none: who only frees needs no arena.
  static std::size_t held_by_this_thread(shared_owner<arena_lease> const& lease) noexcept {
    if (this_thread_lease.lease == lease.get()) [[likely]]
      return this_thread_lease.index;
    // Threads that hold nothing do not even look: looking would make the list.
    return this_thread_lease.holds_some ? this_thread().find(lease) : none;
  }

  /// The resource is gone: threads need not give anything back.
  void close() noexcept {
    mutex_guard const lock(mutex_);
    closed_ = true;
  }

 private:
  /// A thread's arenas, of all resources it used.
  class held_leases {
   public:
    held_leases() noexcept { this_thread_lease.holds_some = true; }
    ~held_leases() {
      this_thread_lease = {.ended = true};
      for (held* h = first_; h != nullptr; h = forget(h)) h->lease->give_back(h->index);
    }
    held_leases(held_leases const&) = delete;
    held_leases& operator=(held_leases const&) = delete;

    std::size_t find(shared_owner<arena_lease> const& lease) noexcept {
      for (held const* h = first_; h != nullptr; h = h->next)
        if (h->lease == lease) return remember(*h);
      return none;
    }
    std::size_t take(shared_owner<arena_lease> const& lease) {
      this_thread_lease.lease = nullptr;  // may be among those forgotten now, and its address another's soon
      for (held** at = &first_; *at != nullptr;)
        if ((*at)->lease->is_closed())
          *at = forget(*at);
        else
          at = &(*at)->next;
      first_ = new held{lease, 0, first_};
      first_->index = lease->take();
      return remember(*first_);
    }

   private:
    struct held {
      shared_owner<arena_lease> lease;
      std::size_t index;
      held* next;
    };
    /// Returns the next one.
    static held* forget(held* h) noexcept {
      held* const next = h->next;
      delete h;
      return next;
    }
    static std::size_t remember(held const& h) noexcept {
      this_thread_lease.lease = h.lease.get();
      return this_thread_lease.index = h.index;
    }
    held* first_ = nullptr;
  };

  static held_leases& this_thread() noexcept {
    thread_local held_leases mine;
    return mine;
  }

  static std::size_t find_or_take(shared_owner<arena_lease> const& lease) noexcept try {
    if (this_thread_lease.ended) return 0;  // objects that outlive the thread's list share the first arena
    std::size_t const index = this_thread().find(lease);
    return index != none ? index : this_thread().take(lease);
  } catch (std::bad_alloc const&) {
    return 0;  // any arena serves; the first is then shared
  }

  /// The lowest number with the fewest holders: arenas that ended threads left are used before new ones are made.
  std::size_t take() noexcept {
    mutex_guard const lock(mutex_);
    std::size_t best = 0;
    for (std::size_t i = 0; i < holders_.size(); ++i)
      if (holders_[i] < holders_[best]) best = i;
    ++holders_[best];
    return best;
  }
  void give_back(std::size_t index) noexcept {
    mutex_guard const lock(mutex_);
    --holders_[index];
  }
  bool is_closed() noexcept {
    mutex_guard const lock(mutex_);
    return closed_;
  }

  mutex mutex_;
  grown_array<std::size_t> holders_;  // threads that have each arena
  bool closed_ = false;
};

/// Takes segments from the upstream within one budget and knows which arena has which.
template <resource Upstream>
class arena_directory {
 public:
  arena_directory(Upstream& upstream, std::size_t max_bytes) : upstream_(upstream), max_bytes_(max_bytes) {}

  /// Throws `std::bad_alloc` if the budget or the upstream has too little, even after what other arenas were taking or
  /// giving back meanwhile.
  void* take(std::size_t bytes, std::size_t alignment, std::size_t arena) {
    mutex_guard const lock(mutex_);
    void* p = nullptr;
    auto const attempt = [&] { return ask(p, bytes, alignment); };
    growth const first = attempt();
    if (first != growth::done && !(first == growth::contended && calls_.repeat(mutex_, attempt)))
      throw std::bad_alloc();
    enter(p, bytes, alignment, arena);
    return p;
  }
  void give(void* p, std::size_t bytes, std::size_t alignment) noexcept {
    mutex_guard const lock(mutex_);
    segments_.erase(address(p));
    level_.current -= bytes;
    give_back(p, bytes, alignment);
  }

  /// The arena whose segment holds `p`, or a number that is none.
  std::size_t owner(void* p) const noexcept {
    mutex_guard const lock(mutex_);
    auto const* const last = segments_.find_last_up_to(address(p));
    bool const is_inside = last != nullptr && address(p) - last->address < last->value.bytes;
    return is_inside ? last->value.arena : ~std::size_t{0};
  }

  pool_level level() const noexcept {
    mutex_guard const lock(mutex_);
    return level_;
  }
  std::size_t reserved() const noexcept { return level().current; }

 private:
  struct segment {
    std::size_t bytes = 0;
    std::size_t arena = 0;
  };
  using call = upstream_calls::call<mutex>;
  static std::uintptr_t address(void* p) noexcept { return reinterpret_cast<std::uintptr_t>(p); }

  bool fits(std::size_t bytes) const noexcept {
    std::size_t const held = level_.current + calls_.bytes();
    return max_bytes_ == 0 || (held <= max_bytes_ && bytes <= max_bytes_ - held);
  }
  /// Waits for room if other arenas have it, then takes `p` from the upstream. Throws what that throws but
  /// `std::bad_alloc`.
  growth ask(void*& p, std::size_t bytes, std::size_t alignment) {
    while (!fits(bytes))
      if (!calls_.wait(mutex_)) return growth::refused;
    upstream_calls::attempt const attempt(calls_);
    try {
      call const under_way(calls_, mutex_, bytes);
      p = weir::allocate_sync(upstream_, bytes, alignment);
    } catch (std::bad_alloc const&) {
    }
    return p == nullptr ? attempt.refusal() : growth::done;
  }
  void give_back(void* p, std::size_t bytes, std::size_t alignment) noexcept {
    upstream_calls::attempt const attempt(calls_);
    {
      call const under_way(calls_, mutex_, bytes);
      weir::deallocate_sync(upstream_, p, bytes, alignment);
    }
    calls_.count_success();
  }
  void enter(void* p, std::size_t bytes, std::size_t alignment, std::size_t arena) try {
    segments_.insert(address(p), {bytes, arena});
    level_.add(bytes);
    calls_.count_success();
  } catch (...) {
    give_back(p, bytes, alignment);
    throw;
  }

  Upstream& upstream_;
  std::size_t max_bytes_;
  mutex mutable mutex_;
  upstream_calls calls_;
  address_map<segment> segments_;
  pool_level level_;
};

/// One arena's view of the directory: the upstream of its pool.
template <resource Upstream>
class arena_share {
 public:
  static constexpr bool host_ordered = true;

  arena_share(arena_directory<Upstream>& directory, std::size_t arena) : directory_(directory), arena_(arena) {}

  void* allocate(stream_ref, std::size_t bytes, std::size_t alignment) {
    return directory_.take(bytes, alignment, arena_);
  }
  void deallocate(stream_ref, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    directory_.give(p, bytes, alignment);
  }

 private:
  arena_directory<Upstream>& directory_;
  std::size_t arena_;
};

}  // namespace weir::detail
