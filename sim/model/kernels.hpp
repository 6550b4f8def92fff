#pragma once
// The kernels that nvcc's code registered, internal, and how often each was launched and skipped.

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace weir::sim::detail {

struct kernel {
  void* module = nullptr;
  std::string name;  // mangled
  bool refused = false;
};

/// Has a mutex of its own: programs register before `main`, and libraries when they are loaded.
struct kernel_table {
  std::mutex mutex;
  std::map<void const*, kernel> kernels;         // by the host function that is its handle
  std::map<std::string, std::uint64_t> skipped;  // launches by mangled name; the kernel may be gone
};

/// Never destroyed: programs and libraries unregister theirs when they end.
kernel_table& kernels();

void forget_skipped_kernels();

/// The name as people write it.
std::string demangled(std::string const& name);

}  // namespace weir::sim::detail
