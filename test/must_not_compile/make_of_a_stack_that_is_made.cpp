// refused: weir: this stack is made already; .weir::share
#include <weir/core/recipe.hpp>
#include <weir/sources/host.hpp>

int main() {
#if defined(REFUSED)
  auto memory = weir::make(weir::host{});
  auto again = weir::make(memory);
#else
  auto memory = weir::make(weir::host{});
#endif
}
