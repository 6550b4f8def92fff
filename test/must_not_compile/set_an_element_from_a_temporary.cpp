// refused: weir: a temporary is gone before the copy; use set
#include <weir/containers/vector.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>

int main() {
  weir::any_resource const memory(weir::async{});
  weir::stream const stream;
  weir::vector<int> values(10, stream, memory);
  int const one = 1;
#if defined(REFUSED)
  values.set_async(3, one + 1);
#else
  values.set_async(3, one);
#endif
}
