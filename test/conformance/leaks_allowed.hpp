#pragma once
// Where memory is kept for good on purpose, which is no news from the leak sanitizer.

extern "C" void __lsan_disable() __attribute__((weak));
extern "C" void __lsan_enable() __attribute__((weak));

/// While one lives, the leak sanitizer, where there is one, does not care. Host memory that a source keeps for good, as
/// it may be used by a graph or by work that nobody can wait for, has nobody who knows it.
class leaks_allowed {
 public:
  explicit leaks_allowed(bool allowed) : allowed_(allowed && __lsan_disable != nullptr) {
    if (allowed_) __lsan_disable();
  }
  ~leaks_allowed() {
    if (allowed_) __lsan_enable();
  }
  leaks_allowed(leaks_allowed const&) = delete;
  leaks_allowed& operator=(leaks_allowed const&) = delete;

 private:
  bool allowed_;
};
