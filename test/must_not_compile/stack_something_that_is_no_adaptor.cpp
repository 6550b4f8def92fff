// refused: weir: on the right of ... stands an adaptor
#include <weir/adaptors/limit.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/host.hpp>

int main() {
#if defined(REFUSED)
  static_cast<void>(weir::host{} | weir::host{});
#else
  static_cast<void>(weir::host{} | weir::limit{.max_bytes = 1 << 20});
#endif
}
