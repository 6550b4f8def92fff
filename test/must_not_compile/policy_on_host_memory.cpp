// refused: memory that the device can reach is needed here
#include <weir/bridges/thrust.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/host.hpp>

int main() {
  weir::stream_ref const stream;
#if defined(REFUSED)
  auto memory = weir::make(weir::host{});
  static_cast<void>(weir::policy(memory, stream));
#else
  auto memory = weir::make(weir::async{});
  static_cast<void>(weir::policy(memory, stream));
#endif
}
