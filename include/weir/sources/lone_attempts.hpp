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
      beside_others const mine(*this);
      if (try_to()) return true;
      if (!mine.met_others()) return false;
    }
    alone const mine(*this);
    return try_to();
  }

 private:
  class beside_others {
   public:
    explicit beside_others(lone_attempts& all) : all_(all) {
      std::unique_lock lock(all_.mutex_);
      all_.changed_.wait(lock, [this] { return !all_.one_is_alone_; });
      met_some_ = all_.under_way_++ != 0;
      number_ = ++all_.begun_;
    }
    ~beside_others() {
      std::lock_guard const lock(all_.mutex_);
      if (--all_.under_way_ == 0) all_.changed_.notify_all();
    }
    beside_others(beside_others const&) = delete;
    beside_others& operator=(beside_others const&) = delete;

    bool met_others() const {
      std::lock_guard const lock(all_.mutex_);
      return met_some_ || all_.begun_ != number_;
    }

   private:
    lone_attempts& all_;
    bool met_some_ = false;
    std::uint64_t number_ = 0;
  };

  class alone {
   public:
    explicit alone(lone_attempts& all) : all_(all) {
      std::unique_lock lock(all_.mutex_);
      all_.changed_.wait(lock, [this] { return !all_.one_is_alone_; });
      all_.one_is_alone_ = true;
      all_.changed_.wait(lock, [this] { return all_.under_way_ == 0; });
    }
    ~alone() {
      std::lock_guard const lock(all_.mutex_);
      all_.one_is_alone_ = false;
      all_.changed_.notify_all();
    }
    alone(alone const&) = delete;
    alone& operator=(alone const&) = delete;

   private:
    lone_attempts& all_;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t under_way_ = 0;
  std::uint64_t begun_ = 0;
  bool one_is_alone_ = false;
};

}  // namespace weir::detail
