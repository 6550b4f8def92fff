#pragma once
// Tells types apart in all of a process.

#include <weir/version.hpp>

namespace weir::detail {

/// Which type something is of. By a text that the compiler writes, and not by the address of something that each type
/// has one of: libraries that hide their symbols have one of their own each. Slow: compares letter by letter.
class type_mark {
 public:
  /// Of no type.
  constexpr type_mark() noexcept = default;
  template <class T>
  static constexpr type_mark of() noexcept {
    return type_mark(__PRETTY_FUNCTION__);
  }

  friend constexpr bool operator==(type_mark a, type_mark b) noexcept {
    return __builtin_strcmp(a.text_, b.text_) == 0;
  }

 private:
  constexpr explicit type_mark(char const* text) noexcept : text_(text) {}

  char const* text_ = "";
};

}  // namespace weir::detail
