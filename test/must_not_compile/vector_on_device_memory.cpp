// refused: weir::allocator: the host cannot reach this memory
#include <weir/bridges/stl.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/pinned.hpp>

#include <vector>

int main() {
#if defined(REFUSED)
  auto memory = weir::make(weir::async{});
  std::vector<int, weir::allocator<int, decltype(memory)>> v(memory);
#else
  auto memory = weir::make(weir::pinned{});
  std::vector<int, weir::allocator<int, decltype(memory)>> v(memory);
#endif
}
