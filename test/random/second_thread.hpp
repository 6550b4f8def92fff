#pragma once
// Another thread that does now and then what a random program would do itself, while that waits.

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace random_program {

/// Begins with the first piece of work, and ends with this.
class second_thread {
 public:
  second_thread() = default;
  ~second_thread() {
    if (!thread_.joinable()) return;
    hand_over({});
    thread_.join();
  }
  second_thread(second_thread const&) = delete;
  second_thread& operator=(second_thread const&) = delete;

  /// Returns when it is done; throws what it throws.
  void run(std::function<void()> work) {
    if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
    hand_over(std::move(work));
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !is_busy_; });
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
  }

 private:
  void hand_over(std::function<void()> work) {
    std::lock_guard const lock(mutex_);
    work_ = std::move(work);
    is_busy_ = true;
    changed_.notify_all();
  }
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return is_busy_; });
      if (!work_) return;
      try {
        work_();
      } catch (...) {
        thrown_ = std::current_exception();
      }
      is_busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;
  bool is_busy_ = false;
  std::exception_ptr thrown_;
  std::thread thread_;
};

}  // namespace random_program
