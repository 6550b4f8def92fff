// Compiled with CUDA_API_PER_THREAD_DEFAULT_STREAM, as nvcc's `--default-stream per-thread` does.
#include <everything.hpp>

weir::stream_ref default_stream_of_the_per_thread_file() { return {}; }
weir::stream_ref handle_0_of_the_per_thread_file() { return cudaStream_t{}; }
