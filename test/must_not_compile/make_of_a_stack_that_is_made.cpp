// refused: no matching function for call to .make
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
