// refused: weir: neither copied nor moved; pass weir::share.memory
#include <weir/adaptors/limit.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/sources/host.hpp>

#include <utility>

int main() {
  auto memory = weir::make(weir::host{} | weir::limit{.max_bytes = 1 << 20});
#if defined(REFUSED)
  auto const moved = std::move(memory);
  static_cast<void>(moved);
#else
  auto const handle = weir::share(memory);
  static_cast<void>(handle);
#endif
}
