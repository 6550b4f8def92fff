// refused: memory that the device can reach is needed here
#include <weir/bridges/thrust.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/host.hpp>

int main() {
  weir::stream_ref const stream;
#if defined(REFUSED)
  auto memory = weir::make(weir::host{});
  weir::device_vector<int> v(10, memory, stream);
#else
  auto memory = weir::make(weir::async{});
  weir::device_vector<int> v(10, memory, stream);
#endif
}
