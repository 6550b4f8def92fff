#pragma once
// Bytes that a budget charged ahead to those below it: how many are left, and what fills them up again.

#include <weir/support/spin_lock.hpp>

#include <cstddef>

namespace weir::detail {

/// A reserve. What the budgets below are charged with for it and for all that is in use is the larger of the two:
/// requests take from the reserve first, and frees fill it up as far as less than the reserve is in use. Thread-safe;
/// exact whatever threads do, since a request that is under way, and may fail, does not count as in use.
class reserve_account {
 public:
  explicit reserve_account(std::size_t bytes) noexcept : bytes_(bytes), left_(bytes) {}

  std::size_t bytes() const noexcept { return bytes_; }
  std::size_t left() const noexcept {
    spin_guard const lock(mutex_);
    return left_;
  }

  /// Bytes in use above the reserve.
  std::size_t beyond() const noexcept {
    spin_guard const lock(mutex_);
    return in_use_ < bytes_ ? 0 : in_use_ - bytes_;
  }

  /// A request of `bytes` begins. How many of them the reserve pays.
  std::size_t begin_request(std::size_t bytes) noexcept {
    if (bytes_ == 0) return 0;
    spin_guard const lock(mutex_);
    std::size_t const paid = bytes < left_ ? bytes : left_;
    left_ -= paid;
    under_way_ += paid;
    return paid;
  }
  /// It was served. `bytes` may be less than was asked for, with less of it `paid`; `spared` goes back. Returns what
  /// the budgets below are to be credited with, as all that follow: frees that filled the reserve up did not yet know
  /// that a request which it did not pay would be served.
  [[nodiscard]] std::size_t end_request(std::size_t bytes, std::size_t paid, std::size_t spared = 0) noexcept {
    if (bytes_ == 0) return 0;
    spin_guard const lock(mutex_);
    under_way_ -= paid + spared;
    left_ += spared;
    in_use_ += bytes;
    std::size_t const covered = in_use_ + left_ + under_way_;
    std::size_t const beyond = covered < bytes_ ? 0 : covered - bytes_, excess = beyond < left_ ? beyond : left_;
    left_ -= excess;
    return excess;
  }
  /// It failed.
  [[nodiscard]] std::size_t undo_request(std::size_t paid) noexcept { return end_request(0, 0, paid); }

  /// A free of `bytes` begins. How many of them fill the reserve up; the budgets below are credited with the rest.
  std::size_t begin_free(std::size_t bytes) noexcept {
    if (bytes_ == 0) return 0;
    spin_guard const lock(mutex_);
    in_use_ -= bytes < in_use_ ? bytes : in_use_;  // more only where one block was freed twice
    std::size_t const covered = in_use_ + left_ + under_way_;
    std::size_t const back = covered < bytes_ ? bytes_ - covered : 0;  // at most `bytes`: it was covered before
    under_way_ += back;
    return back;
  }
  /// The memory is free.
  [[nodiscard]] std::size_t end_free(std::size_t back) noexcept { return end_request(0, 0, back); }
  /// It was not freed after all.
  [[nodiscard]] std::size_t undo_free(std::size_t bytes, std::size_t back) noexcept { return end_request(bytes, back); }

 private:
  mutable spin_lock mutex_;
  std::size_t const bytes_;
  std::size_t left_;
  std::size_t under_way_ = 0;  // of the reserve: with requests that may still fail, and frees that are not done
  std::size_t in_use_ = 0;     // in all, also beyond the reserve
};

}  // namespace weir::detail
