#pragma once
// An array for tables that only grow, on large pages where the system gives them.

#include <weir/version.hpp>

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace weir::detail {

/// What a pool's tables need of `std::vector`, which costs whoever includes a pool a quarter of the time that takes:
/// elements that may be copied as bytes, `T{}` at first, and an array that only grows, to just the size that is asked
/// for. From 2 MiB on it is aligned to large pages and asks for them: a table of some megabytes that is read at random
/// costs a miss of the address translation at nearly every access otherwise. Not thread-safe. When not to use it: where
/// elements have to go, or be constructed.
template <class T>
class grown_array {
 public:
  static constexpr std::size_t page_bytes = std::size_t{2} << 20;
  static constexpr std::size_t element_bytes = sizeof(T);  // NOLINT(bugprone-sizeof-expression): pointers are elements

  /// May throw `std::bad_alloc`, as `grow`.
  explicit grown_array(std::size_t size = 0) { grow(size); }
  ~grown_array() { release(first_, size_); }
  grown_array(grown_array const&) = delete;
  grown_array& operator=(grown_array const&) = delete;

  /// Has at least `size` elements. Moves them; changes nothing if it throws.
  void grow(std::size_t size) {
    static_assert(__is_trivially_copyable(T));  // <type_traits> asks a dozen templates for that
    if (size <= size_) return;
    T* const fresh = static_cast<T*>(::operator new(size* element_bytes, alignment_of(size)));
    if (is_large(size)) ::madvise(fresh, size * element_bytes, MADV_HUGEPAGE);  // refused where there are none
    for (std::size_t i = 0; i < size_; ++i) ::new (fresh + i) T(first_[i]);
    for (std::size_t i = size_; i < size; ++i) ::new (fresh + i) T{};
    T* const old = first_;
    std::size_t const old_size = size_;
    first_ = fresh, size_ = size;
    release(old, old_size);  // last: a child that is forked meanwhile gives back what it finds here
  }
  void swap(grown_array& other) noexcept {
    T* const first = first_;
    std::size_t const size = size_;
    first_ = other.first_, size_ = other.size_;
    other.first_ = first, other.size_ = size;
  }

  /// By a number of any type, an enumeration's too.
  template <class Index>
  T& operator[](Index i) noexcept {
    return first_[static_cast<std::size_t>(i)];
  }
  template <class Index>
  T const& operator[](Index i) const noexcept {
    return first_[static_cast<std::size_t>(i)];
  }
  T* data() noexcept { return first_; }
  T const* data() const noexcept { return first_; }
  std::size_t size() const noexcept { return size_; }
  std::size_t bytes() const noexcept { return size_ * element_bytes; }

 private:
  static constexpr bool is_large(std::size_t n) noexcept { return n * element_bytes >= page_bytes; }
  static constexpr std::align_val_t alignment_of(std::size_t n) noexcept {
    return std::align_val_t{is_large(n) ? page_bytes : alignof(T)};
  }
  static void release(T* first, std::size_t size) noexcept {
    if (first != nullptr) ::operator delete(first, alignment_of(size));
  }

  T* first_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace weir::detail
