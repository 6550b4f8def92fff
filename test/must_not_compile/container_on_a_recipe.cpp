// refused: buffer.*make the recipe first: .*scalar.*make the recipe first: .*vector.*make the recipe first:
#include <weir/containers/buffer.hpp>
#include <weir/containers/scalar.hpp>
#include <weir/containers/vector.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>

int main() {
  weir::stream const stream;
#if defined(REFUSED)
  weir::async const memory;
#else
  auto memory = weir::make(weir::async{});
#endif
  weir::buffer const bytes(1, stream, memory);
  weir::scalar const one(5, stream, memory);
  weir::vector<int> const elements(2, stream, memory);
}
