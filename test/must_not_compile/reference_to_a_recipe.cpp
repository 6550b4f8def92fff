// refused: weir: make the recipe first: .weir::make
#include <weir/adaptors/pool.hpp>
#include <weir/core/any_ref.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/async.hpp>

namespace {
void use(weir::any_ref) {}
}  // namespace

int main() {
  auto recipe = weir::async{} | weir::pool{};
#if defined(REFUSED)
  use(recipe);
#else
  auto memory = weir::make(recipe);
  use(memory);
#endif
}
