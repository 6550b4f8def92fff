// refused: weir::find: the type of this stack is forgotten: ask by name
#include <weir/adaptors/spillable.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/pinned.hpp>

int main() {
  auto host = weir::make(weir::pinned{});
#if defined(REFUSED)
  weir::any_resource const memory(weir::device{} | weir::spill{.to = weir::share(host)});
#else
  auto memory = weir::make(weir::device{} | weir::spill{.to = weir::share(host)});
#endif
  weir::spillable<float> const x(memory, weir::stream(), 10);
}
