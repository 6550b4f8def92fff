#pragma once
// Functions of the driver that do what one of the runtime does, internal: made of that one.

#include "model/thread.hpp"
#include "model/tsan_fibers.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <type_traits>

namespace weir::sim::detail {

/// Does a runtime's call for the driver, whose calls leave the last error alone. The two number their errors alike.
template <class Call>
CUresult in_driver(Call call) {
  own_work const not_the_streams;
  thread_state& me = this_thread();
  cudaError_t const before = me.last_error;
  cudaError_t const code = call();
  me.last_error = before;
  return static_cast<CUresult>(code);
}

/// What handle 0 means to the functions that were found for one of the two default streams.
template <bool PerThread>
cudaStream_t stream_of(CUstream handle) {
  if (handle != nullptr) return handle;
  return PerThread ? cudaStreamPerThread : cudaStreamLegacy;
}

/// An argument of a driver's function, as the runtime's function has it: types of both that are the same in memory.
template <bool PerThread, class From>
struct driver_argument {
  From value;

  template <class To>
  operator To() const {
    if constexpr (std::is_same_v<From, CUstream> && std::is_same_v<To, cudaStream_t>)
      return stream_of<PerThread>(value);
    else if constexpr (std::is_pointer_v<To> && !std::is_same_v<From, To>)
      return reinterpret_cast<To>(value);
    else
      return static_cast<To>(value);
  }
};

/// `same_as<cudaMalloc, decltype(cuMemAlloc), ...>::call` is the driver's function that does what the runtime's does.
/// It is counted, delayed, and fails on request by the runtime's name.
template <auto Runtime, class Function, bool PerThread>
struct same_as;
template <auto Runtime, bool PerThread, class... Arguments>
struct same_as<Runtime, CUresult(Arguments...), PerThread> {
  static CUresult call(Arguments... arguments) {
    return in_driver([&] { return Runtime(driver_argument<PerThread, Arguments>{arguments}...); });
  }
};

}  // namespace weir::sim::detail
