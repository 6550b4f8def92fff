#pragma once
// The free lists that a search looks at.

#include <weir/pool/heap/block_heap.hpp>

#include <cstddef>

namespace weir::detail {

/// So many lists of all that there are, from one of them on and, behind the last, from the first one again. `shared` is
/// none of them.
class searched_lists {
 public:
  /// `first`, from 0, is below `of`, or there are none.
  searched_lists(std::size_t first, std::size_t count, std::size_t of) noexcept
      : first_(first), count_(count), of_(of) {}
  /// Every one.
  explicit searched_lists(std::size_t of) noexcept : searched_lists(0, of, of) {}

  std::size_t count() const noexcept { return count_; }
  bool are_all() const noexcept { return count_ == of_; }
  /// From 0 on; behind the last it is the first again.
  list_id operator[](std::size_t i) const noexcept { return static_cast<list_id>(1 + (first_ + i % count_) % of_); }

  /// Calls `f(list)` for each.
  template <class F>
  void for_each(F f) const {
    for (std::size_t i = 0, at = first_; i < count_; ++i) {
      f(static_cast<list_id>(at + 1));
      at = at + 1 == of_ ? 0 : at + 1;
    }
  }
  /// The same for those that have free blocks in a heap; what it costs goes by these.
  template <class F>
  void for_each_with_free(block_heap const& heap, F f) const {
    first_of(heap, [&](list_id list) -> block_id { return f(list), 0; });
  }
  /// Of those that have free blocks, the first result of `f(list)` that is not 0, or 0.
  template <class F>
  block_id first_of(block_heap const& heap, F f) const {
    std::size_t const end = first_ + count_;
    block_id const found = first_between(heap, first_, lesser(end, of_), f);
    return found != 0 || end <= of_ ? found : first_between(heap, 0, end - of_, f);
  }

 private:
  template <class F>
  static block_id first_between(block_heap const& heap, std::size_t begin, std::size_t end, F& f) {
    auto const next = [&](std::size_t at) { return heap.next_with_free(static_cast<list_id>(at), end + 1); };
    block_id found = 0;
    for (list_id list = next(begin + 1); list != shared && found == 0; list = next(static_cast<std::size_t>(list) + 1))
      found = f(list);
    return found;
  }

  std::size_t first_, count_, of_;
};

}  // namespace weir::detail
