#pragma once
// A stack that the environment may name: so that who runs a program chooses its memory, without a build.

#include <weir/core/any_resource.hpp>
#include <weir/tools/config_text.hpp>
#include <weir/tools/parse.hpp>

#include <cstdlib>
#include <string_view>

namespace weir {

/// `parse` of the environment variable `WEIR_STACK`; of `otherwise` where that is empty or not set, and always in a
/// privileged program (setuid, setgid or with capabilities), whose user must not name the files that it writes.
/// Throws what `parse` throws; a `config_error` about the variable names it. Read at each call; not while another
/// thread changes the environment.
template <class Any = any_resource>
[[nodiscard]] Any stack_from_environment(std::string_view otherwise) {
  char const* const variable = ::secure_getenv("WEIR_STACK");
  if (variable == nullptr || *variable == '\0') return parse<Any>(otherwise);
  try {
    return parse<Any>(variable);
  } catch (config_error const& wrong) {
    throw wrong.from("WEIR_STACK");
  }
}

}  // namespace weir
