// refused: weir::allocator<T, R>: R must be a memory resource
#include <weir/bridges/stl.hpp>
#include <weir/sources/host.hpp>

int main() {
#if defined(REFUSED)
  using memory = weir::host;  // the options
#else
  using memory = weir::host_resource;
#endif
  return sizeof(weir::allocator<int, memory>) == 0;
}
