// refused: memory that the device can reach is needed here
#include <weir/containers/buffer.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/host.hpp>

int main() {
  auto memory = weir::make(weir::host{});
  weir::stream const stream;
#if defined(REFUSED)
  weir::buffer<> const b(1, stream, memory);
#else
  weir::buffer<decltype(memory)> const b(1, stream, memory);
#endif
}
