#pragma once
// Attempts of several threads at one supply, where what one takes in vain is missing to another: that one tries again.

#include <weir/version.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace weir::detail {

/// Lets attempts run side by side. One that is refused beside others is made once more, alone: what they had taken and
/// gave back is there again by then. Nothing that an attempt calls may make another one. Thread-safe.
class lone_attempts {
 public:
  lone_attempts() = default;
  lone_attempts(lone_attempts const&) = delete;
  lone_attempts& operator=(lone_attempts const&) = delete;

  /// Calls `try_to()`, which returns false where it found too little, once or twice. Throws what that throws.
  template <class F>
  bool operator()(F try_to) {
    {
      turn const mine(*this, beside_others);
      if (try_to()) return true;
      if (!mine.met_others()) return false;
    }
    turn const mine(*this, alone);
    return try_to();
  }

 private:
  enum kind : bool { beside_others, alone };

  /// An attempt under way, which begins when it may.
  class turn {
   public:
    turn(lone_attempts& all, kind which) : all_(all), kind_(which) {
      std::unique_lock lock(all_.mutex_);
      all_.changed_.wait(lock, [this] { return !all_.one_is_alone_; });
      all_.one_is_alone_ = kind_ == alone;
      if (kind_ == alone) all_.changed_.wait(lock, [this] { return all_.under_way_ == 0; });
      met_some_ = all_.under_way_++ != 0;
      number_ = ++all_.begun_;
    }
    ~turn() {
      std::lock_guard const lock(all_.mutex_);
      --all_.under_way_;
      if (kind_ == alone) all_.one_is_alone_ = false;
      if (all_.under_way_ == 0) all_.changed_.notify_all();
    }
    turn(turn const&) = delete;
    turn& operator=(turn const&) = delete;

    bool met_others() const {
      std::lock_guard const lock(all_.mutex_);
      return met_some_ || all_.begun_ != number_;
    }

   private:
    lone_attempts& all_;
    kind kind_;
    bool met_some_ = false;
    std::uint64_t number_ = 0;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t under_way_ = 0;
  std::uint64_t begun_ = 0;
  bool one_is_alone_ = false;
};

}  // namespace weir::detail
