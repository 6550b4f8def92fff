// refused: memory that the host can reach is needed here
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/spill.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/pinned.hpp>

int main() {
#if defined(REFUSED)
  auto host = weir::make(weir::device{} | weir::pool{});
#else
  auto host = weir::make(weir::pinned{} | weir::pool{});
#endif
  auto memory = weir::make(weir::device{} | weir::pool{} | weir::spill{.to = weir::share(host)});
}
