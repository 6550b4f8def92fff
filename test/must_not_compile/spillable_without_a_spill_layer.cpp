// refused: this stack has no such layer
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/spillable.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/pinned.hpp>

int main() {
  auto host = weir::make(weir::pinned{} | weir::pool{});
#if defined(REFUSED)
  auto memory = weir::make(weir::device{} | weir::pool{});
#else
  auto memory = weir::make(weir::device{} | weir::pool{} | weir::spill{.to = weir::share(host)});
#endif
  weir::spillable<float> const x(memory, weir::stream(), 10);
}
