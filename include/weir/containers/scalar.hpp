#pragma once
// One value of a stack that lives on a stream: a kernel's result, or a counter.

#include <weir/containers/any_handle.hpp>
#include <weir/containers/vector.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <stdexcept>
#include <utility>

namespace weir {

/// Owns one `T`, trivially copyable, on a stream. For streams, devices, threads, what it may be made on and how `R`
/// holds that, see `buffer`. Move-only; `copy` is explicit. What is moved from has no value: whatever asks for it,
/// copies it or sets it throws `std::out_of_range`.
///
///     weir::scalar<int> count(stream, memory);
///     count.set_to_zero();
///     kernel<<<grid, block, 0, stream.get()>>>(count.data());
///     int const n = count.value();   // waits
///
/// When not to use it: for many values, each of which would take at least 256 B (`vector`).
template <class T, resource R = any_handle>
class scalar {
 public:
  using value_type = T;
  using handle_type = typename vector<T, R>::handle_type;

  /// An undefined value. Throws what the stack throws.
  template <detail::memory_for<R> M>
  scalar(stream_ref stream, M&& memory) : one_(1, stream, std::forward<M>(memory)) {}
  /// A copy of `value`; waits. Throws what the stack throws, and as `buffer::write`.
  template <detail::memory_for<R> M>
  scalar(T const& value, stream_ref stream, M&& memory) : scalar(stream, std::forward<M>(memory)) {
    set_value(value);
  }

  template <detail::cannot_be_shared F>
  scalar(stream_ref, F const&) = delete;  // weir: make the recipe first: `weir::make(recipe)`
  template <detail::cannot_be_shared F>
  scalar(T const&, stream_ref, F const&) = delete;  // weir: make the recipe first: `weir::make(recipe)`

  /// Another one on the same memory with the same value, which lives on `stream`.
  [[nodiscard]] scalar copy(stream_ref stream) const {
    require_value();
    return scalar(one_.copy(stream));
  }
  [[nodiscard]] scalar copy() const { return copy(stream()); }

  T* data() noexcept { return one_.data(); }
  T const* data() const noexcept { return one_.data(); }
  stream_ref stream() const noexcept { return one_.stream(); }
  handle_type const& memory() const noexcept { return one_.memory(); }
  int device() const noexcept { return one_.device(); }

  /// The value, copied to the host on `stream`; waits. Throws as `buffer::read`.
  [[nodiscard]] T value(stream_ref stream) const { return one_.get(0, stream); }
  [[nodiscard]] T value() const { return value(stream()); }
  /// Sets it on `stream`; waits, so that `value` may go. Throws as `buffer::write`.
  void set_value(T const& value, stream_ref stream) { one_.set(0, value, stream); }
  void set_value(T const& value) { set_value(value, stream()); }
  /// The same without the wait: `value` has to stay as it is until the work on `stream` has come so far, and where that
  /// is being captured, as long as the graph may run, which reads it at each launch.
  void set_value_async(T const& value, stream_ref stream) { one_.set_async(0, value, stream); }
  void set_value_async(T const& value) { set_value_async(value, stream()); }
  void set_value_async(T const&&, stream_ref) = delete;  // weir: a temporary is gone before the copy; use set_value
  void set_value_async(T const&&) = delete;              // weir: a temporary is gone before the copy; use set_value
  /// Sets its bytes to 0 on the stream, without a wait and in captures too. Throws `cuda_error`.
  void set_to_zero() {
    require_value();
    one_.set_to_zero();
  }
  /// Lives on `stream` from now on, which is put behind the work of the old one so far. Throws as `buffer::set_stream`.
  void set_stream(stream_ref stream) { one_.set_stream(stream); }

 private:
  explicit scalar(vector<T, R> one) noexcept : one_(std::move(one)) {}

  void require_value() const {
    if (one_.empty()) throw std::out_of_range("weir: there is no value; this scalar was moved from");
  }

  vector<T, R> one_;
};

template <class T, class M>
scalar(T const&, stream_ref, M&&) -> scalar<T>;

}  // namespace weir
