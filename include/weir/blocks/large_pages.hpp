#pragma once
// Host memory for large tables, on large pages where the system gives them.

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace weir::detail {

/// An allocator for `std::vector`: arrays of 2 MiB and more are aligned to large pages and ask for them. A table of
/// some megabytes that is read at random costs a miss of the address translation at nearly every access otherwise. When
/// not to use it: for arrays that stay small, where it is aligned `new` and nothing else.
template <class T>
struct large_pages {
  using value_type = T;
  static constexpr std::size_t page_bytes = std::size_t{2} << 20;

  large_pages() = default;
  template <class U>
  constexpr large_pages(large_pages<U> const&) noexcept {}  // NOLINT: allocators convert

  T* allocate(std::size_t n) {
    void* const p = ::operator new(n * sizeof(T), alignment_of(n));
    if (is_large(n)) ::madvise(p, n * sizeof(T), MADV_HUGEPAGE);  // advice: refused where there are none
    return static_cast<T*>(p);
  }
  void deallocate(T* p, std::size_t n) noexcept { ::operator delete(p, alignment_of(n)); }

  friend constexpr bool operator==(large_pages, large_pages) noexcept { return true; }

 private:
  static constexpr bool is_large(std::size_t n) noexcept { return n * sizeof(T) >= page_bytes; }
  static constexpr std::align_val_t alignment_of(std::size_t n) noexcept {
    return std::align_val_t{is_large(n) ? page_bytes : alignof(T)};
  }
};

}  // namespace weir::detail
