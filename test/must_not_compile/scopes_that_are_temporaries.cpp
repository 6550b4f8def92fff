// refused: nodiscard.*capture_scope.*nodiscard.*device_guard.*nodiscard.*per_device_scope.*nodiscard.*statistics_scope
#include <weir/adaptors/statistics.hpp>
#include <weir/bridges/per_device.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/tag.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/device.hpp>
#include <weir/sources/async.hpp>

#pragma GCC diagnostic error "-Wunused-result"  // g++'s name for it
#pragma GCC diagnostic error "-Wunused-value"   // clang's

int main() {
  auto memory = weir::make(weir::async{} | weir::statistics{});
  weir::any_resource const other(weir::async{});
#if defined(REFUSED)
  weir::tag("decoder");
  weir::capture_scope{};
  weir::device_guard(1);
  weir::per_device_scope{other};
  weir::per_device_scope(0, other);
  weir::statistics_scope{memory};
#else
  weir::tag const tag("decoder");
  weir::capture_scope const capture{};
  weir::device_guard const guard(1);
  weir::per_device_scope const current{other};
  weir::per_device_scope const current_of_first(0, other);
  weir::statistics_scope const scope{memory};
#endif
}
