// refused: weir: this is a recipe; make it first, and share what was made
#include <weir/adaptors/pool.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/async.hpp>

int main() {
  auto recipe = weir::async{} | weir::pool{};
#if defined(REFUSED)
  weir::share(recipe);
#else
  auto memory = weir::make(recipe);
  static_cast<void>(weir::share(memory));
#endif
}
