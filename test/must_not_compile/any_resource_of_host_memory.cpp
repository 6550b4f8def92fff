// refused: any_resource promises memory that the device can reach
#include <weir/core/any_resource.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/host.hpp>

int main() {
#if defined(REFUSED)
  weir::any_resource memory{weir::host{}};
#else
  weir::any_resource memory{weir::async{}};
#endif
}
