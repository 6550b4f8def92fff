// refused: weir: vector<T> copies the bytes of its elements
#include <weir/containers/vector.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>

#include <string>

int main() {
  auto memory = weir::make(weir::async{});
  weir::stream const stream;
#if defined(REFUSED)
  weir::vector<std::string> const v(1, stream, memory);
#else
  weir::vector<char> const v(1, stream, memory);
#endif
}
