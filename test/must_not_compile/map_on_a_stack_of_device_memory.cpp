// refused: weir::allocator: the host cannot reach this memory
#include <weir/adaptors/limit.hpp>
#include <weir/bridges/stl.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/pinned.hpp>

#include <map>
#include <utility>

int main() {
#if defined(REFUSED)
  auto memory = weir::make(weir::async{} | weir::limit{.max_bytes = 1 << 20});
  using entry = std::pair<int const, int>;
  std::map<int, int, std::less<>, weir::allocator<entry, decltype(memory)>> m(weir::allocator_for<entry>(memory));
#else
  auto memory = weir::make(weir::pinned{} | weir::limit{.max_bytes = 1 << 20});
  using entry = std::pair<int const, int>;
  std::map<int, int, std::less<>, weir::allocator<entry, decltype(memory)>> m(weir::allocator_for<entry>(memory));
#endif
}
