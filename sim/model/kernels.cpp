#include "model/kernels.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace weir::sim::detail {

kernel_table& kernels() {
  static auto* const only = new kernel_table;
  return *only;
}

void forget_skipped_kernels() {
  kernel_table& known = kernels();
  std::lock_guard const lock(known.mutex);
  known.skipped.clear();
}

std::string demangled(std::string const& name) {
  int status = 0;
  std::unique_ptr<char, decltype(&std::free)> const text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                         &std::free);
  return text != nullptr ? text.get() : name;
}

}  // namespace weir::sim::detail
