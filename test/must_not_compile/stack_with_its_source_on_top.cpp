// refused: weir: the source stands first
#include <weir/adaptors/pool.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/async.hpp>

int main() {
#if defined(REFUSED)
  static_cast<void>(weir::pool{} | weir::async{});
#else
  static_cast<void>(weir::async{} | weir::pool{});
#endif
}
