// refused: weir: nullptr is no stream; the default stream is weir::stream_ref
#include <weir/core/recipe.hpp>
#include <weir/sources/async.hpp>

int main() {
  auto memory = weir::make(weir::async{});
#if defined(REFUSED)
  static_cast<void>(memory.allocate(nullptr, 100));
#else
  static_cast<void>(memory.allocate(weir::stream_ref(), 100));
#endif
}
