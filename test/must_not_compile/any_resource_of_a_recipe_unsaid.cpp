// refused: weir: a recipe is made by name: .weir::any_resource
#include <weir/adaptors/pool.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/async.hpp>

namespace {
void use(weir::any_resource const&) {}
}  // namespace

int main() {
  auto const recipe = weir::async{} | weir::pool{};
#if defined(REFUSED)
  use(recipe);
#else
  use(weir::any_resource(recipe));
#endif
}
