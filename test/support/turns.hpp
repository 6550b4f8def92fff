#pragma once
// Threads that work one at a time, each as long as it is its turn.

#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace weir::test {

/// A few threads that do what they are told, one after the other: what each sees is what one thread would see, and what
/// belongs to a thread is still each one's own.
class turns {
 public:
  explicit turns(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) threads_.emplace_back([this, i] { work_on_turn(i); });
  }
  ~turns() {
    for (std::size_t i = 0; i < threads_.size(); ++i) on(i, nullptr);
    for (std::thread& each : threads_) each.join();
  }
  turns(turns const&) = delete;
  turns& operator=(turns const&) = delete;

  /// Thread `i` calls `work()`; returns when that has returned. A null `work` ends the thread.
  void on(std::size_t i, std::function<void()> work) {
    work_ = std::move(work);
    turn_.store(i, std::memory_order_release);
    while (turn_.load(std::memory_order_acquire) != nobody) std::this_thread::yield();
  }

 private:
  static constexpr std::size_t nobody = ~std::size_t{0};

  void work_on_turn(std::size_t i) {
    for (bool ends = false; !ends;) {
      while (turn_.load(std::memory_order_acquire) != i) std::this_thread::yield();
      ends = work_ == nullptr;
      if (!ends) work_();
      turn_.store(nobody, std::memory_order_release);
    }
  }

  std::function<void()> work_;
  std::atomic<std::size_t> turn_{nobody};
  std::vector<std::thread> threads_;
};

}  // namespace weir::test
