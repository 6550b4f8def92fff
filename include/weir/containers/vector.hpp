#pragma once
// Elements of a stack that live on a stream.

#include <weir/containers/any_handle.hpp>
#include <weir/containers/buffer.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace weir {
namespace detail {

template <class V>
using element_of = std::remove_cvref_t<decltype(*std::data(std::declval<V const&>()))>;
template <class V>
using span_of = std::span<element_of<V> const>;
/// An array, a span, or a container of which a span can be made.
template <class V>
concept in_one_piece = std::constructible_from<span_of<V>, V const&>;

}  // namespace detail

/// Owns elements of a trivially copyable `T` on a stream; they have undefined values until they are written. For
/// streams, devices, threads, what it may be made on and how `R` holds that, see `buffer`. Move-only; `copy` is
/// explicit.
///
///     weir::vector<float> x(n, stream, memory);
///     kernel<<<grid, block, 0, stream.get()>>>(x.data(), x.size());   // or std::span<float>, which it converts to
///     std::vector<float> result = x.to_host();                        // waits
///
/// When not to use it: where elements should be filled by Thrust, or pushed one by one (`device_vector`; this one grows
/// to just what is asked for); for elements of the host's alone (`std::vector` with `weir::allocator`).
template <class T, resource R = any_handle>
class vector {
  static_assert(
      std::is_trivially_copyable_v<T>,
      "weir: vector<T> copies the bytes of its elements and leaves new ones undefined, so T must be trivially "
      "copyable");
  /// Whether no pointer is a `T`, so that a list in braces is never an array that two of them name.
  static constexpr bool has_plain_lists = (std::is_arithmetic_v<T> && !std::same_as<T, bool>) || std::is_aggregate_v<T>;

 public:
  using value_type = T;
  using size_type = std::size_t;
  using iterator = T*;
  using const_iterator = T const*;
  using handle_type = typename buffer<R>::handle_type;

  /// `count` undefined elements. Throws what the stack throws, and `std::bad_array_new_length` where the bytes cannot
  /// be counted.
  template <detail::memory_for<R> M>
  vector(std::size_t count, stream_ref stream, M&& memory)
      : bytes_(bytes_of(count), stream, std::forward<M>(memory), alignment) {}
  /// A copy of the host's `values` (a `std::vector`, an array, a span); waits, so that these may change on return.
  /// Throws what the stack throws, and as `buffer::write`.
  template <detail::memory_for<R> M>
  vector(std::span<T const> values, stream_ref stream, M&& memory)
      : vector(values.size(), stream, std::forward<M>(memory)) {
    if (!values.empty()) bytes_.write(0, values.data(), values.size_bytes());
  }
  /// A copy of the values in braces, as of a span: `({5}, stream, memory)` is one element, `(5, stream, memory)` five.
  /// Numbers and aggregates may be written as for a `std::vector`: `1` for `1.0F`, `{1, 2}` for a `float2`.
  template <detail::memory_for<R> M>
  requires(has_plain_lists) vector(std::initializer_list<T> values, stream_ref stream, M&& memory)
      : vector(std::span<T const>(values.begin(), values.size()), stream, std::forward<M>(memory)) {}
  /// The same of all else, where each has to be a `T`: two pointers in braces may be the ends of an array.
  template <std::same_as<T> U, detail::memory_for<R> M>
  requires(!has_plain_lists) vector(std::initializer_list<U> values, stream_ref stream, M&& memory)
      : vector(std::span<T const>(values.begin(), values.size()), stream, std::forward<M>(memory)) {}
  /// The same of a `std::vector<bool>`, which has its elements in bits: by a copy on the host, a byte each. Throws also
  /// `std::bad_alloc`.
  template <class A, detail::memory_for<R> M>
  requires std::same_as<T, bool> vector(std::vector<bool, A> const& values, stream_ref stream, M&& memory)
      : vector(values.size(), stream, std::forward<M>(memory)) {
    std::vector<unsigned char> const bytes(values.begin(), values.end());
    if (!bytes.empty()) bytes_.write(0, bytes.data(), bytes.size());
  }

  template <detail::cannot_be_shared F>
  vector(std::size_t, stream_ref, F const&) = delete;  // weir: make the recipe first: `weir::make(recipe)`
  template <detail::cannot_be_shared F>
  vector(std::span<T const>, stream_ref, F const&) = delete;  // weir: make the recipe first: `weir::make(recipe)`
  template <detail::cannot_be_shared F>
  vector(std::initializer_list<T>, stream_ref, F const&) = delete;  // weir: make the recipe first: `weir::make(recipe)`

  /// Another vector on the same memory with the same elements, which lives on `stream`.
  [[nodiscard]] vector copy(stream_ref stream) const { return vector(bytes_.copy(stream)); }
  [[nodiscard]] vector copy() const { return copy(stream()); }
  /// The elements on the host; waits. Throws as `buffer::read`, and `std::bad_alloc`.
  [[nodiscard]] std::vector<T> to_host() const requires std::default_initializable<T> {
    using in_bytes = std::conditional_t<std::same_as<T, bool>, unsigned char, T>;  // std::vector<bool> has bits
    std::vector<in_bytes> values(size());
    if (!empty()) bytes_.read(0, values.data(), bytes_.size());
    if constexpr (std::same_as<T, bool>)
      return std::vector<T>(values.begin(), values.end());
    else
      return values;
  }

  T* data() noexcept { return static_cast<T*>(bytes_.data()); }
  T const* data() const noexcept { return static_cast<T const*>(bytes_.data()); }
  std::size_t size() const noexcept { return bytes_.size() / sizeof(T); }
  bool empty() const noexcept { return bytes_.empty(); }
  std::size_t capacity() const noexcept { return bytes_.capacity() / sizeof(T); }
  stream_ref stream() const noexcept { return bytes_.stream(); }
  handle_type const& memory() const noexcept { return bytes_.memory(); }
  int device() const noexcept { return bytes_.device(); }

  /// Addresses, for work on the device: as with `data()`, the host may go there only if it reaches the memory.
  T* begin() noexcept { return data(); }
  T* end() noexcept { return data() + size(); }
  T const* begin() const noexcept { return data(); }
  T const* end() const noexcept { return data() + size(); }

  /// An element in memory that the host reaches, in place. Wait for the stream first: the memory may be in use by work
  /// that was queued there, also right after it was made. `i` is below `size()`.
  T& operator[](std::size_t i) noexcept requires host_accessible<R> { return data()[i]; }
  T const& operator[](std::size_t i) const noexcept requires host_accessible<R> { return data()[i]; }

  /// The element `i`, copied to the host on `stream`; waits. Throws `std::out_of_range`, and as `buffer::read`.
  [[nodiscard]] T get(std::size_t i, stream_ref stream) const {
    std::array<std::byte, sizeof(T)> raw;
    bytes_.read(offset_of(i), raw.data(), sizeof(T), stream);
    return std::bit_cast<T>(raw);
  }
  [[nodiscard]] T get(std::size_t i) const { return get(i, stream()); }
  /// Sets the element `i` on `stream`; waits, so that `value` may go. Throws as `get`.
  void set(std::size_t i, T const& value, stream_ref stream) {
    bytes_.write(offset_of(i), __builtin_addressof(value), sizeof(T), stream);
  }
  void set(std::size_t i, T const& value) { set(i, value, stream()); }
  /// The same without the wait: `value` has to stay as it is until the work on `stream` has come so far.
  void set_async(std::size_t i, T const& value, stream_ref stream) {
    bytes_.write_async(offset_of(i), __builtin_addressof(value), sizeof(T), stream);
  }
  void set_async(std::size_t i, T const& value) { set_async(i, value, stream()); }
  void set_async(std::size_t, T const&&, stream_ref) = delete;  // weir: a temporary is gone before the copy; use set
  void set_async(std::size_t, T const&&) = delete;              // weir: a temporary is gone before the copy; use set

  /// Has `count` elements: those there were, and undefined ones. As `buffer::resize`; throws also
  /// `std::bad_array_new_length`. If it throws, nothing has changed.
  void resize(std::size_t count) { bytes_.resize(bytes_of(count)); }
  void reserve(std::size_t count) { bytes_.reserve(bytes_of(count)); }
  void shrink_to_fit() { bytes_.shrink_to_fit(); }
  /// Sets the bytes of all elements to 0, on the stream. Throws `cuda_error`.
  void set_to_zero() { bytes_.set_to_zero(); }
  /// Lives on `stream` from now on, which is put behind the work of the old one so far. Throws as `buffer::set_stream`.
  void set_stream(stream_ref stream) { bytes_.set_stream(stream); }

 private:
  static constexpr std::size_t alignment = alignof(T) > default_alignment ? alignof(T) : default_alignment;

  explicit vector(buffer<R> bytes) noexcept : bytes_(std::move(bytes)) {}

  static std::size_t bytes_of(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    return count * sizeof(T);
  }
  std::size_t offset_of(std::size_t i) const {
    if (i >= size())
      throw std::out_of_range("weir: there is no element " + std::to_string(i) + "; " +
                              (size() == 0 ? "this is empty, or was moved from"
                                           : "there are " + std::to_string(size()) + ", numbered from 0"));
    return i * sizeof(T);
  }

  buffer<R> bytes_;
};

/// `weir::vector v(values, stream, memory)` holds its memory as any vector whose type does not say how.
template <class T, class A, class M>
vector(std::vector<T, A> const&, stream_ref, M&&) -> vector<T>;
template <class T, class M>
vector(std::initializer_list<T>, stream_ref, M&&) -> vector<T>;
/// The same of all else that a span is made of.
template <detail::in_one_piece V, class M>
vector(V const&, stream_ref, M&&) -> vector<detail::element_of<V>>;

}  // namespace weir
