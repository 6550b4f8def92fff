// refused: weir: per_device_scope owns the memory that it sets: .*weir::any_resource.weir::share.memory
#include <weir/adaptors/pool.hpp>
#include <weir/bridges/per_device.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/sources/async.hpp>

int main() {
  auto memory = weir::make(weir::async{} | weir::pool{});
#if defined(REFUSED)
  weir::per_device_scope const scope(memory);
#else
  weir::per_device_scope const scope(weir::any_resource(weir::share(memory)));
#endif
}
