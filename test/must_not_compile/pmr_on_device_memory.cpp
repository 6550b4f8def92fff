// refused: weir::pmr_resource: the host cannot reach this memory
#include <weir/bridges/pmr.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/pinned.hpp>

int main() {
#if defined(REFUSED)
  auto memory = weir::make(weir::async{});
  weir::pmr_resource resource(memory);
#else
  auto memory = weir::make(weir::pinned{});
  weir::pmr_resource resource(memory);
#endif
}
