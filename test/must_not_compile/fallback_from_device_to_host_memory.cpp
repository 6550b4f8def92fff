// refused: one stack's memory is for the device only, the other's for the host only
#include <weir/adaptors/fallback.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/host.hpp>
#include <weir/sources/managed.hpp>

int main() {
#if defined(REFUSED)
  auto memory = weir::make(weir::device{} | weir::fallback{weir::host{}});
#else
  auto memory = weir::make(weir::device{} | weir::fallback{weir::managed{}});
#endif
  memory.deallocate({}, memory.allocate({}, 256), 256);
}
