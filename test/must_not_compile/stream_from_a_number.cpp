// refused: weir: a number is no stream; the default stream is weir::stream_ref
#include <weir/cuda/stream_ref.hpp>

int main() {
#if defined(REFUSED)
  weir::stream_ref const stream(0);
  static_cast<void>(stream);
#else
  weir::stream_ref const stream(cudaStreamLegacy);
  static_cast<void>(stream);
#endif
}
