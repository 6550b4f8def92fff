// refused: weir::find: the type of this stack is forgotten: ask by name
#include <weir/adaptors/limit.hpp>
#include <weir/core/any_ref.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/sources/async.hpp>

int main() {
  auto memory = weir::make(weir::async{} | weir::limit{.max_bytes = 1 << 20});
#if defined(REFUSED)
  weir::any_ref const known(memory);
#else
  auto const known = weir::share(memory);
#endif
  static_cast<void>(weir::find<weir::limit_resource>(known));
}
