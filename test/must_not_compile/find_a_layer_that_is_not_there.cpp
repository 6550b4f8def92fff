// refused: weir::find: this stack has no such layer
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/host.hpp>

int main() {
  auto memory = weir::make(weir::host{} | weir::limit{.max_bytes = 1 << 20});
#if defined(REFUSED)
  static_cast<void>(weir::find<weir::statistics_resource>(memory));
#else
  static_cast<void>(weir::find<weir::limit_resource>(memory));
#endif
}
