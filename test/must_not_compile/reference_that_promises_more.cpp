// refused: no matching function|could not convert|no viable conversion|conversion from
#include <weir/core/any_ref.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/pinned.hpp>

int main() {
  auto memory = weir::make(weir::pinned{});
#if defined(REFUSED)
  weir::any_ref const device = memory;
  weir::any_host_ref const host = device;
  static_cast<void>(host);
#else
  weir::any_host_device_ref const device = memory;
  weir::any_host_ref const host = device;
  static_cast<void>(host);
#endif
}
