// refused: weir: a temporary is gone before the copy; use set_value
#include <weir/containers/scalar.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>

int main() {
  weir::any_resource const memory(weir::async{});
  weir::stream const stream;
  weir::scalar<int> sum(0, stream, memory);
  int const one = 1;
#if defined(REFUSED)
  sum.set_value_async(one + 1, stream);
#else
  sum.set_value_async(one, stream);
#endif
}
