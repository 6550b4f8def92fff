// refused: weir: any_resource makes and owns its stack: give it the recipe.*or .weir::share
#include <weir/adaptors/pool.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/sources/async.hpp>

int main() {
  auto memory = weir::make(weir::async{} | weir::pool{});
#if defined(REFUSED)
  weir::any_resource const owned(memory);
#else
  weir::any_resource const owned(weir::share(memory));
#endif
}
