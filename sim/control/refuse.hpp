#pragma once
// How the functions of `weir::sim` refuse their arguments, internal.

#include <stdexcept>
#include <string>

namespace weir::sim::detail {

/// Throws `std::invalid_argument`; `why` begins with the function's name.
[[noreturn]] inline void refuse(std::string const& why) { throw std::invalid_argument("weir::sim::" + why); }

}  // namespace weir::sim::detail
