// refused: memory that the host can reach is needed here
#include <weir/bridges/stl.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/pinned.hpp>

#include <vector>

int main() {
#if defined(REFUSED)
  auto memory = weir::make(weir::async{});
  std::vector<int, weir::allocator<int>> v(memory);
#else
  auto memory = weir::make(weir::pinned{});
  std::vector<int, weir::allocator<int>> v(memory);
#endif
}
