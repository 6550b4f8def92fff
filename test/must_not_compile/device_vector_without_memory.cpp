// refused: use of deleted function .*device_vector|call to deleted constructor of .weir::device_vector
#include <weir/bridges/thrust.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/async.hpp>

int main() {
#if defined(REFUSED)
  weir::device_vector<int> v(10);
#else
  auto memory = weir::make(weir::async{});
  weir::device_vector<int> v(10, memory, weir::stream_ref());
#endif
}
