#pragma once
// How often CUDA is asked for what other streams have at hand.

#include <weir/version.hpp>

#include <utility>

namespace weir::detail {

/// Looks without a question are free, and a question costs some five calls of CUDA: so that comes once in so many looks
/// in vain. Often while questions give much, that is some blocks until the next one; else twice as seldom each time;
/// and seldom while streams are at work. Not thread-safe.
class question_interval {
 public:
  static constexpr unsigned often = 8, seldom = 128;
  static constexpr unsigned much = 4;  ///< blocks that were found without another question

  /// Somebody looked; true if it is time to ask.
  bool is_due_after_look(bool found) noexcept {
    if (found) return ++found_, false;
    if (++in_vain_ < interval_) return false;
    in_vain_ = 0;
    return true;
  }
  /// What a question, at whatever time, was answered: whether it gave a block.
  void answered(bool gave) noexcept {
    bool const gave_much = std::exchange(found_, 0u) >= much;
    unsigned const later = interval_ < seldom / 2 ? 2 * interval_ : seldom;
    interval_ = !gave ? seldom : gave_much ? often : later;
  }

 private:
  unsigned found_ = 0, in_vain_ = 0, interval_ = seldom;
};

}  // namespace weir::detail
