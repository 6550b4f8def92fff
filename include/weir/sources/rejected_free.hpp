#pragma once
// A free that CUDA refuses: whose fault it is, and what is said of it.

#include <weir/core/call_note.hpp>
#include <weir/core/error.hpp>
#include <weir/cuda/error.hpp>

#include <cstddef>
#include <cstdio>
#include <string>

namespace weir::detail {

/// Ends a `deallocate` of a pointer that CUDA says it did not give. Other failures are no fault of the caller's: they
/// come from earlier work (then all is lost, and an exception on its way says so) or from CUDA's unloading at exit, and
/// then the memory is kept. False if it was not given back.
inline bool freed(cudaError_t code, char const* source, char const* call, void* p, std::size_t bytes) noexcept {
  if (succeeded(code)) return true;
  if (code != cudaErrorInvalidValue) return note_kept(), false;
  char where[32];
  std::snprintf(where, sizeof where, "%p", p);
  report_misuse(std::string("weir: ") + source + ": deallocate of " + where + " (" + std::to_string(bytes) +
                " B): " + call +
                " does not know this pointer; it was freed before, is not from this resource, or went with its device "
                "(cudaDeviceReset)");
  return false;
}

}  // namespace weir::detail
