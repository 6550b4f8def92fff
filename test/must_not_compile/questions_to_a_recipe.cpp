// refused: device_of.*make the recipe first: .*report_of.*make the recipe first: .*weir::find: this is a recipe
#include <weir/adaptors/pool.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/sources/async.hpp>

int main() {
  auto recipe = weir::async{.device = 1} | weir::pool{};
#if defined(REFUSED)
  auto& memory = recipe;
#else
  auto memory = weir::make(recipe);
#endif
  static_cast<void>(weir::device_of(memory));
  static_cast<void>(weir::report_of(memory));
  static_cast<void>(weir::find<weir::pool_resource>(memory));
}
