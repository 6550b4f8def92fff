// refused: weir::find: this is the name of a layer.s options; its resource is wanted
#include <weir/adaptors/pool.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/async.hpp>

int main() {
  auto memory = weir::make(weir::async{} | weir::pool{});
#if defined(REFUSED)
  static_cast<void>(weir::find<weir::pool>(memory));
#else
  static_cast<void>(weir::find<weir::pool_resource>(memory));
#endif
}
