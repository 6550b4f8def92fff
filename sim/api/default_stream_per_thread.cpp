// The per-thread twins (`cudaMallocAsync_ptsz` and so on) of the functions in default_stream.cpp.

#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include "default_stream.cpp"  // NOLINT(bugprone-suspicious-include): one text for both
