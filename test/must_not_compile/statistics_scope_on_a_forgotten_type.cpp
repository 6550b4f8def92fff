// refused: weir::find: the type of this stack is forgotten: ask by name
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/sources/async.hpp>

int main() {
#if defined(REFUSED)
  weir::any_resource const memory(weir::async{} | weir::statistics{});
#else
  auto memory = weir::make(weir::async{} | weir::statistics{});
#endif
  auto tenant = weir::make(weir::share(memory) | weir::pool{});
  weir::statistics_scope const scope(tenant);
}
