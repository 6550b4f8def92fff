// refused: weir::from_cuda_mr: this is no cuda::mr resource
#include <weir/bridges/cuda_mr.hpp>
#include <weir/core/any_ref.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/device.hpp>

int main() {
  auto memory = weir::make(weir::device{});
#if defined(REFUSED)
  auto on_it = weir::make(weir::from_cuda_mr(&memory));
#else
  auto on_it = weir::make(weir::from_cuda_mr(weir::any_ref(memory)));
#endif
  static_cast<void>(on_it);
}
