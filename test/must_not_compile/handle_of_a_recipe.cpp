// refused: weir: make the recipe first: .weir::make
#include <weir/containers/any_handle.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/async.hpp>

int main() {
#if defined(REFUSED)
  weir::async const memory;
#else
  auto memory = weir::make(weir::async{});
#endif
  weir::any_handle const handle = memory;
  static_cast<void>(handle);
}
