#include <everything.hpp>

#include <doctest/doctest.h>

weir::stream_ref default_stream_of_the_per_thread_file();
weir::stream_ref handle_0_of_the_per_thread_file();

TEST_CASE("each file of a program has the default stream it was compiled with") {
  CHECK(weir::stream_ref().get() == cudaStreamLegacy);
  CHECK(weir::stream_ref(cudaStream_t{}).get() == cudaStreamLegacy);
  CHECK(default_stream_of_the_per_thread_file().get() == cudaStreamPerThread);
  CHECK(handle_0_of_the_per_thread_file().get() == cudaStreamPerThread);
}
