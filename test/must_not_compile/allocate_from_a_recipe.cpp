// refused: weir: this is a recipe, which holds no memory; make it first
#include <weir/adaptors/pool.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/async.hpp>

int main() {
#if defined(REFUSED)
  auto memory = weir::async{} | weir::pool{};
  static_cast<void>(memory.allocate(weir::stream_ref(), 100));
#else
  auto memory = weir::make(weir::async{} | weir::pool{});
  static_cast<void>(memory.allocate(weir::stream_ref(), 100));
#endif
}
