// refused: weir: scrub stands on memory that the device or the host can reach
#include <weir/adaptors/scrub.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/sources/device.hpp>

using anything = weir::basic_any_resource<false, false>;

int main() {
#if defined(REFUSED)
  auto const below = [] { return anything(weir::device{}); };
#else
  auto const below = [] { return weir::any_resource(weir::device{}); };
#endif
  auto memory = weir::make(below | weir::scrub{});
  memory.deallocate(weir::host_order, memory.allocate(weir::host_order, 1000), 1000);
}
