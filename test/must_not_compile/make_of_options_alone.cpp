// refused: weir: a stack starts with a source, as in .weir::make
#include <weir/adaptors/pool.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/async.hpp>

int main() {
#if defined(REFUSED)
  weir::make(weir::pool{});
#else
  static_cast<void>(weir::make(weir::async{} | weir::pool{}));
#endif
}
