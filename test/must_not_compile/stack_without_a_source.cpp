// refused: weir: a stack starts with a source
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/host.hpp>

int main() {
#if defined(REFUSED)
  static_cast<void>(weir::limit{.max_bytes = 1 << 20} | weir::statistics{});
#else
  static_cast<void>(weir::host{} | weir::limit{.max_bytes = 1 << 20} | weir::statistics{});
#endif
}
