// refused: weir: a number is no stream; .*give it first
#include <weir/adaptors/pool.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>

int main() {
  auto memory = weir::make(weir::async{} | weir::pool{});
  weir::stream const stream;
  std::size_t const bytes = 1024;
#if defined(REFUSED)
  static_cast<void>(memory.allocate(bytes, stream.get()));  // as RMM has it
#else
  static_cast<void>(memory.allocate(stream.get(), bytes));
#endif
}
