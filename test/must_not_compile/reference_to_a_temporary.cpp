// refused: no matching function|could not convert|no known conversion|cannot bind|no viable conversion|conversion from
#include <weir/core/any_ref.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/sources/async.hpp>

int main() {
#if defined(REFUSED)
  weir::any_ref const ref = weir::any_resource{weir::async{}};
  static_cast<void>(ref);
#else
  weir::any_resource memory{weir::async{}};
  weir::any_ref const ref = memory;
  static_cast<void>(ref);
#endif
}
