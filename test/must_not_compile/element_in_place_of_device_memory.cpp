// refused: no match for 'operator\[\]'|does not provide a subscript operator|no viable overloaded operator\[\]
#include <weir/containers/vector.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/pinned.hpp>

int main() {
  weir::stream const stream;
#if defined(REFUSED)
  auto memory = weir::make(weir::async{});
#else
  auto memory = weir::make(weir::pinned{});
#endif
  weir::vector<int, decltype(memory)> v(1, stream, memory);
  v[0] = 1;
}
