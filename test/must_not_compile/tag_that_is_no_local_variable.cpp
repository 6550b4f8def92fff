// refused: weir: a tag is a scope, a local variable
#include <weir/core/tag.hpp>

int main() {
#if defined(REFUSED)
  auto* const scope = new weir::tag("decoder");
  static_cast<void>(scope);
#else
  weir::tag const scope("decoder");
#endif
}
