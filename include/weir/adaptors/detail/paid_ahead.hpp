#pragma once
// What of a request is charged to a budget before it arrives there.

#include <weir/version.hpp>

#include <cstddef>

namespace weir::detail {

/// While it lives, one budget is told of one request, or of one free, that this thread passes down: `bytes` of it are
/// charged there already, or stay charged. Set by the budget above, for the next one below only; nothing else on the
/// way has to know of it. Those that call the program's functions in between hide it (`paid_ahead hidden;`).
class paid_ahead {
 public:
  paid_ahead() noexcept : paid_ahead(nullptr, nullptr, 0, 0) {}
  /// `p` is the block that is freed, or null; `size` what is asked for or freed. For no `budget` it says nothing.
  paid_ahead(void const* budget, void const* p, std::size_t size, std::size_t bytes) noexcept
      : outer_(now_), budget_(budget), p_(p), size_(size), bytes_(bytes) {
    now_ = this;
  }
  ~paid_ahead() { now_ = outer_; }
  paid_ahead(paid_ahead const&) = delete;
  paid_ahead& operator=(paid_ahead const&) = delete;

  std::size_t bytes() const noexcept { return bytes_; }

  /// What this thread's innermost one says to `budget` of this request or free; null if it is for something else.
  static paid_ahead const* find(void const* budget, void const* p, std::size_t size) noexcept {
    return now_ != nullptr && now_->budget_ == budget && now_->p_ == p && now_->size_ == size ? now_ : nullptr;
  }

 private:
  [[gnu::visibility("default")]] inline static constinit thread_local paid_ahead const* now_ = nullptr;
  paid_ahead const* outer_;
  void const* budget_;
  void const* p_;
  std::size_t size_;
  std::size_t bytes_;
};

}  // namespace weir::detail
