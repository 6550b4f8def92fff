// refused: weir: a copy is explicit and names its stream: .y = x.copy.stream
#include <weir/containers/scalar.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>

int main() {
  weir::any_resource const memory(weir::async{});
  weir::stream const stream;
  weir::scalar<int> const x(10, stream, memory);
  weir::scalar<int> y(stream, memory);
#if defined(REFUSED)
  y = x;
#else
  y = x.copy(stream);
#endif
}
