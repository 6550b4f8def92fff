#pragma once
// The streams that a call names.

#include <weir/cuda/stream_ref.hpp>

#include <concepts>
#include <cstddef>
#include <initializer_list>

namespace weir {

/// A parameter that takes `{a, b}`, or anything with `data()` and `size()` such as `std::vector<weir::stream_ref>`.
/// Refers to them: not to be kept beyond the call.
class stream_list {
 public:
  stream_list() = default;
  stream_list(std::initializer_list<stream_ref> streams) noexcept {
    first_ = streams.begin();
    count_ = streams.size();
  }
  template <class Streams>
  requires requires(Streams const& streams) {
    { streams.data() } -> std::convertible_to<stream_ref const*>;
    { streams.size() } -> std::convertible_to<std::size_t>;
  }
  stream_list(Streams const& streams) noexcept : first_(streams.data()), count_(streams.size()) {}

  stream_ref const* begin() const noexcept { return first_; }
  stream_ref const* end() const noexcept { return first_ + count_; }
  std::size_t size() const noexcept { return count_; }

 private:
  stream_ref const* first_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace weir
