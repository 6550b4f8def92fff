#pragma once
// Which arena has which segment or range of addresses, and one budget for all of them.

#include <weir/core/growable.hpp>
#include <weir/core/resource.hpp>
#include <weir/pool/pool_options.hpp>
#include <weir/pool/upstream_calls.hpp>
#include <weir/support/address_map.hpp>
#include <weir/support/mutex.hpp>

#include <cstddef>
#include <cstdint>
#include <new>

namespace weir::detail {

/// Takes memory from the upstream within one budget and knows which arena has which: segments, or on a growable
/// upstream ranges of addresses, of which what is mapped counts.
template <resource Upstream>
class arena_directory {
 public:
  arena_directory(Upstream& upstream, std::size_t max_bytes) : upstream_(upstream), max_bytes_(max_bytes) {}

  /// Throws `std::bad_alloc` if the budget or the upstream has too little, even after what other arenas were taking or
  /// giving back meanwhile.
  void* take(std::size_t bytes, std::size_t alignment, std::size_t arena) {
    mutex_guard const lock(mutex_);
    void* p = nullptr;
    auto const allocate = [&] {
      try {
        p = weir::allocate_sync(upstream_, bytes, alignment);
      } catch (std::bad_alloc const&) {
      }
      return p != nullptr;
    };
    if (!ask_until_refused(bytes, allocate)) throw std::bad_alloc();
    enter(p, bytes, alignment, arena);
    return p;
  }
  void give(void* p, std::size_t bytes, std::size_t alignment) noexcept {
    mutex_guard const lock(mutex_);
    segments_.erase(address(p));
    level_.current -= bytes;
    give_back(p, bytes, alignment);
  }

  // The same for a growable upstream.
  address_range reserve_range(std::size_t most, std::size_t arena) {
    address_range const fresh = upstream_.reserve_range(most);
    if (fresh.bytes == 0) return fresh;
    try {
      mutex_guard const lock(mutex_);
      segments_.insert(address(fresh.begin), {fresh.bytes, arena});
    } catch (...) {
      upstream_.release_range(fresh);
      throw;
    }
    return fresh;
  }
  void release_range(address_range range) noexcept {
    {
      mutex_guard const lock(mutex_);
      segments_.erase(address(range.begin));
    }
    upstream_.release_range(range);
  }
  bool map(void* p, std::size_t bytes) {
    mutex_guard const lock(mutex_);
    if (!ask_until_refused(bytes, [&] { return upstream_.map(p, bytes); })) return false;
    level_.add(bytes);
    calls_.count_success();
    return true;
  }
  bool unmap(void* p, std::size_t bytes) noexcept {
    mutex_guard const lock(mutex_);
    upstream_calls::attempt const attempt(calls_);
    level_.current -= bytes;
    bool done = false;
    {
      call const under_way(calls_, mutex_, bytes);
      done = upstream_.unmap(p, bytes);
    }
    if (done)
      calls_.count_success();
    else
      level_.current += bytes;
    return done;
  }

  /// The arena whose segment or range holds `p`, or a number that is none.
  std::size_t owner(void const* p) const noexcept {
    mutex_guard const lock(mutex_);
    auto const* const last = segments_.find_last_up_to(address(p));
    bool const is_inside = last != nullptr && address(p) - last->address < last->value.bytes;
    return is_inside ? last->value.arena : ~std::size_t{0};
  }

  Upstream& upstream() noexcept { return upstream_; }
  upstream_calls const& calls() const noexcept { return calls_; }

  pool_level level() const noexcept {
    mutex_guard const lock(mutex_);
    return level_;
  }
  std::size_t reserved() const noexcept { return level().current; }
  void reset_peak() noexcept {
    mutex_guard const lock(mutex_);
    level_.reset_peak();
  }

 private:
  struct segment {
    std::size_t bytes = 0;
    std::size_t arena = 0;
  };
  using call = upstream_calls::call<mutex>;
  static std::uintptr_t address(void const* p) noexcept { return reinterpret_cast<std::uintptr_t>(p); }

  bool fits(std::size_t bytes) const noexcept {
    std::size_t const held = level_.current + calls_.bytes();
    return max_bytes_ == 0 || (held <= max_bytes_ && bytes <= max_bytes_ - held);
  }
  /// Calls `get()`, which takes `bytes` from the upstream, without the lock; again while other arenas were taking or
  /// giving back what it lacked. False if it never gets them.
  template <class Get>
  bool ask_until_refused(std::size_t bytes, Get get) {
    auto const attempt = [&] { return ask(bytes, get); };
    growth const first = attempt();
    return first == growth::done || (first == growth::contended && calls_.repeat(mutex_, attempt));
  }
  /// Waits for room if other arenas have it, then calls `get()`.
  template <class Get>
  growth ask(std::size_t bytes, Get get) {
    while (!fits(bytes))
      if (!calls_.wait(mutex_)) return growth::refused;
    upstream_calls::attempt const attempt(calls_);
    bool done = false;
    {
      call const under_way(calls_, mutex_, bytes);
      done = get();
    }
    return done ? growth::done : attempt.refusal();
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
  upstream_calls calls_{calls_shared_below(upstream_)};
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

  /// By which the arenas wait for each other: see `upstream_calls`.
  upstream_calls const* shared_upstream_calls() const noexcept { return &directory_.calls(); }

  // What `growable` asks for, and what a pool asks such an upstream.
  std::size_t chunk_bytes() const noexcept requires growable<Upstream> { return upstream().chunk_bytes(); }
  address_range reserve_range(std::size_t most) requires growable<Upstream> {
    return directory_.reserve_range(most, arena_);
  }
  void release_range(address_range range) noexcept requires growable<Upstream> { directory_.release_range(range); }
  bool map(void* p, std::size_t bytes) requires growable<Upstream> { return directory_.map(p, bytes); }
  bool unmap(void* p, std::size_t bytes) noexcept requires growable<Upstream> { return directory_.unmap(p, bytes); }
  bool alias(void* to, void* from, std::size_t bytes) requires growable<Upstream> {
    return directory_.upstream().alias(to, from, bytes);
  }
  tenants& tenancy() noexcept requires has_tenants<Upstream> { return directory_.upstream().tenancy(); }
  Upstream const& upstream() const noexcept { return directory_.upstream(); }

 private:
  arena_directory<Upstream>& directory_;
  std::size_t arena_;
};

}  // namespace weir::detail
