#pragma once
// Whether CUDA may still be called: not once the process exits, nor in a child that was forked from it.

#include <weir/cuda/capture.hpp>

#include <cuda_runtime_api.h>

#include <cxxabi.h>
#include <pthread.h>

#include <cstdlib>
#include <ctime>

#ifdef _LIBCPP_VERSION  // whose cxxabi.h does not declare it
namespace __cxxabiv1 {
extern "C" int __cxa_atexit(void (*end)(void*), void* object, void* library) noexcept;
}
#endif

namespace weir::detail {

/// Belongs to an object that calls CUDA, and says when it must stop: `exit` destroys static objects while the runtime
/// goes down, or after, and a forked child has no use of what its parent did with CUDA. The object then leaks quietly.
/// Objects that a child makes itself are none of its parent's. Thread-safe; to ask costs a load and a comparison.
class process_exit {
 public:
  process_exit() noexcept : over_(in_this_process()) {}

  bool is_exiting() const noexcept { return is_exiting_or(0); }
  /// The same, or that a count is not 0, in one comparison.
  bool is_exiting_or(unsigned count) const noexcept { return (__atomic_load_n(over_, __ATOMIC_RELAXED) | count) != 0; }

  /// What an allocation fails with once that is so, and what reports say in place of what CUDA would.
  static constexpr cudaError_t error = cudaErrorCudartUnloading;
  static constexpr char const* words = "CUDA is asked no more: the process ends, or this is a child of its maker";

  /// Sees to it that the life ends before the object does, if that is static. Exit functions run last first, and
  /// destructors of static objects are such functions: call it when the object is used, not while it is made. Does
  /// nothing from the second call on.
  void settle() noexcept {
    if (__atomic_load_n(&settled_, __ATOMIC_RELAXED)) return;
    __atomic_store_n(&settled_, true, __ATOMIC_RELAXED);
    if (__atomic_add_fetch(&exit_functions, 1, __ATOMIC_RELAXED) > most_exit_functions) return;
    // A function of the C library's, on memory that is never freed and that stands for the library it belongs to too:
    // a shared library that weir was compiled into may be gone by then.
    auto const writes = reinterpret_cast<void (*)()>(&std::time);
    __cxxabiv1::__cxa_atexit(reinterpret_cast<void (*)(void*)>(writes), over_, over_);
  }

 private:
  using flag = std::time_t;  // 0, or the time at which it was over

  /// A program that makes pools all the time must not collect exit functions: its static ones were among the first.
  static constexpr unsigned most_exit_functions = 1000;

  static flag* in_this_process() noexcept {
    watch_forks();
    flag* known = __atomic_load_n(&this_process, __ATOMIC_ACQUIRE);
    if (known != nullptr) return known;
    auto* const made = static_cast<flag*>(std::calloc(1, sizeof(flag)));
    if (made == nullptr) return &never;
    if (__atomic_compare_exchange_n(&this_process, &known, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      return made;
    std::free(made);
    return known;
  }
  /// Twice does no harm. This is no function's static variable: where another thread was just about to make it, a
  /// forked child would wait for that without end.
  static void watch_forks() noexcept {
    if (__atomic_load_n(&watches_forks, __ATOMIC_ACQUIRE)) return;
    ::pthread_atfork(nullptr, nullptr, &end_in_child);
    __atomic_store_n(&watches_forks, true, __ATOMIC_RELEASE);
  }
  static void end_in_child() noexcept {
    if (this_process != nullptr) *this_process = 1;
    this_process = nullptr;
    exit_functions = 0;
    declared_captures = records_elsewhere = 0;  // by threads that are not in the child
    ++forks;
  }

  static inline constinit flag* this_process = nullptr;
  static inline constinit flag never = 0;  // without memory for a flag, CUDA's own answers have to do
  static inline constinit unsigned exit_functions = 0;
  static inline constinit bool watches_forks = false;

  flag* over_;
  bool settled_ = false;
};

}  // namespace weir::detail
