#pragma once
// Which arena has which segment, and one budget for all of them.

#include <weir/core/resource.hpp>
#include <weir/pool/pool_options.hpp>
#include <weir/pool/upstream_calls.hpp>
#include <weir/support/address_map.hpp>
#include <weir/support/mutex.hpp>

#include <cstddef>
#include <cstdint>
#include <new>

namespace weir::detail {

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
  std::size_t owner(void const* p) const noexcept {
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
  static std::uintptr_t address(void const* p) noexcept { return reinterpret_cast<std::uintptr_t>(p); }

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
