// refused: T must be trivially
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/spillable.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/pinned.hpp>

#include <string>

int main() {
  auto host = weir::make(weir::pinned{} | weir::pool{});
  auto memory = weir::make(weir::device{} | weir::pool{} | weir::spill{.to = weir::share(host)});
  weir::stream const stream;
#if defined(REFUSED)
  weir::spillable<std::string> const names(memory, stream, 10);
#else
  weir::spillable<char> const names(memory, stream, 10);
#endif
}
