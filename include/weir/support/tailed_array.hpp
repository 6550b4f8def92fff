#pragma once
// An array whose elements each have some bytes behind them: how many is known at run time.

#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// As `grown_array`, but of elements that end in an array which has one length in all of them and grows too. An element
/// finds it behind itself. What is behind an element is zeros at first. Not thread-safe. When not to use it: where the
/// length is known when the program is compiled.
template <class T>
class tailed_array {
 public:
  /// Has at least `size` elements, with at least `tail` bytes behind each. Moves them; changes nothing if it throws.
  void grow(std::size_t size, std::size_t tail) {
    static_assert(__is_trivially_copyable(T) && alignof(T) <= alignof(std::uint64_t));
    std::size_t const wanted = (sizeof(T) + tail + alignof(T) - 1) / alignof(T) * alignof(T);
    std::size_t const count = size < elements_.size() ? elements_.size() : size;
    std::size_t const stride = wanted < stride_ ? stride_ : wanted;
    if (count == elements_.size() && stride == stride_) return;
    grown_array<unsigned char> fresh(count * stride);
    grown_array<T*> elements(count);
    for (std::size_t i = 0; i < count; ++i) {
      elements[i] = ::new (fresh.data() + i * stride) T{};
      if (i < elements_.size()) __builtin_memcpy(fresh.data() + i * stride, bytes_.data() + i * stride_, stride_);
    }
    bytes_.swap(fresh);
    elements_.swap(elements);
    stride_ = stride;
  }

  /// By a number of any type, an enumeration's too.
  template <class Index>
  T& operator[](Index i) noexcept {
    return *elements_[i];
  }
  template <class Index>
  T const& operator[](Index i) const noexcept {
    return *elements_[i];
  }
  std::size_t size() const noexcept { return elements_.size(); }
  std::size_t bytes() const noexcept { return bytes_.bytes() + elements_.bytes(); }

 private:
  grown_array<unsigned char> bytes_;  // the elements, each with what is behind it
  grown_array<T*> elements_;          // where each is: to multiply takes an instruction more
  std::size_t stride_ = 0;            // bytes from one to the next
};

}  // namespace weir::detail
