// refused: weir: async_managed and async_pinned need CUDA.s toolkit 13
#include <cuda_runtime_api.h>
#if defined(REFUSED) && CUDART_VERSION >= 13000
#undef CUDART_VERSION
#define CUDART_VERSION 12090
#endif
#include <weir/sources/async_on_host.hpp>

int main() {
#if defined(REFUSED)
  auto memory = weir::make(weir::async_managed{});
#else
  auto memory = weir::make(weir::async{});
#endif
  memory.deallocate(weir::host_order, memory.allocate(weir::host_order, 1000), 1000);
}
