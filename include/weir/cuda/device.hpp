#pragma once
// The current device, what a device can do, and how much memory it has.

#include <weir/cuda/error.hpp>

#include <cstddef>
#include <string>

namespace weir {

/// The calling thread's current device.
inline int current_device() {
  int device = 0;
  detail::check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

inline int device_count() {
  int count = 0;
  detail::check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  return count;
}

/// Bytes of a device's memory: all of it, and what no process holds now.
struct device_memory_info {
  std::size_t free_bytes;
  std::size_t total_bytes;
};

namespace detail {

/// Throws `cuda_error` that says which device could not be made current, and which there are.
[[gnu::noinline, gnu::cold]] inline void refuse_device(int device, cudaError_t code) {
  std::string call = "cudaSetDevice(" + std::to_string(device) + ")";
  int count = 0;
  if (code == cudaErrorInvalidDevice && succeeded(cudaGetDeviceCount(&count)))
    call += " (this process sees " + std::to_string(count) + " devices, numbered from 0)";
  check(code, call.c_str());
}

}  // namespace detail

/// Makes `device` current for this thread until the end of the scope. Costs one CUDA call when it is current already.
class device_guard {
 public:
  [[nodiscard]] explicit device_guard(int device) : previous_(current_device()) {
    if (device == previous_) return;
    if (cudaError_t const code = cudaSetDevice(device); code != cudaSuccess) [[unlikely]]
      detail::refuse_device(device, code);
    changed_ = true;
  }
  ~device_guard() {
    if (changed_) detail::succeeded(cudaSetDevice(previous_));
  }
  device_guard(device_guard const&) = delete;
  device_guard& operator=(device_guard const&) = delete;

 private:
  int previous_;
  bool changed_ = false;
};

namespace detail {

/// As `device_guard`, where nothing may be thrown (an exception takes host memory, as no free may): says whether
/// `device` (negative: the current one, whichever it is) is current now.
class device_switch {
 public:
  explicit device_switch(int device) noexcept : is_current_(succeeded(cudaGetDevice(&previous_))) {
    if (!is_current_ || device < 0 || device == previous_) return;
    is_current_ = changed_ = succeeded(cudaSetDevice(device));
  }
  ~device_switch() {
    if (changed_) succeeded(cudaSetDevice(previous_));
  }
  device_switch(device_switch const&) = delete;
  device_switch& operator=(device_switch const&) = delete;

  bool is_current() const noexcept { return is_current_; }

 private:
  int previous_ = 0;
  bool is_current_;
  bool changed_ = false;
};

}  // namespace detail

inline device_memory_info memory_info(int device) {
  device_guard const on_device(device);
  device_memory_info info{};
  detail::check(cudaMemGetInfo(&info.free_bytes, &info.total_bytes), "cudaMemGetInfo");
  return info;
}

namespace detail {

inline int device_attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace detail
}  // namespace weir
