// refused: weir: a copy is explicit and names its stream: .x.copy.stream
#include <weir/containers/vector.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>

int main() {
  weir::any_resource const memory(weir::async{});
  weir::stream const stream;
  weir::vector<int> const x(10, stream, memory);
#if defined(REFUSED)
  auto const copy = x;
#else
  auto const copy = x.copy(stream);
#endif
  static_cast<void>(copy);
}
