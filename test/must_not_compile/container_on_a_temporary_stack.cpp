// refused: no matching (constructor|function)|no match|could not convert|constraint
#include <weir/containers/buffer.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>

int main() {
  weir::stream const stream;
#if defined(REFUSED)
  weir::buffer<> const b(1, stream, weir::make(weir::async{}));
#else
  weir::buffer<> const b(1, stream, weir::any_resource{weir::async{}});
#endif
}
