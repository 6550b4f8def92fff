// refused: weir: the stack on the left of `.` is made already; write `weir::share
#include <weir/adaptors/limit.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/sources/host.hpp>

int main() {
  auto memory = weir::make(weir::host{});
#if defined(REFUSED)
  auto service = weir::make(memory | weir::limit{.max_bytes = 1 << 20});
#else
  auto service = weir::make(weir::share(memory) | weir::limit{.max_bytes = 1 << 20});
#endif
}
