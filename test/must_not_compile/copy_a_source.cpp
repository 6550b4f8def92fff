// refused: weir: neither copied nor moved; pass weir::share.memory
#include <weir/core/recipe.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/sources/async.hpp>

int main() {
  auto memory = weir::make(weir::async{});
#if defined(REFUSED)
  auto const copy = memory;
  static_cast<void>(copy);
#else
  auto const copy = weir::share(memory);
  static_cast<void>(copy);
#endif
}
