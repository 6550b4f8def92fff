// refused: any_host_resource promises memory that the host can reach
#include <weir/core/any_resource.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/host.hpp>

int main() {
#if defined(REFUSED)
  weir::any_host_resource memory{weir::async{}};
#else
  weir::any_host_resource memory{weir::host{}};
#endif
}
