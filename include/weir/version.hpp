#pragma once
// The version of weir, and what it needs of the compiler; every header passes here before anything else.

#define WEIR_VERSION_MAJOR 0
#define WEIR_VERSION_MINOR 1
#define WEIR_VERSION_PATCH 0
/// For comparisons in the preprocessor: major * 10000 + minor * 100 + patch.
#define WEIR_VERSION (WEIR_VERSION_MAJOR * 10000 + WEIR_VERSION_MINOR * 100 + WEIR_VERSION_PATCH)
#define WEIR_VERSION_STRING "0.1.0"

#if __cplusplus < 202002L
#ifdef __CUDACC__
#error "weir needs C++20: compile with -std=c++20 (CMake: target_compile_options(TARGET PRIVATE -std=c++20))"
#else
#error "weir needs C++20: compile with -std=c++20 (CMake: target_compile_features(TARGET PRIVATE cxx_std_20))"
#endif
// No such file: the compiler stops here, instead of printing the hundreds of errors that would follow from this one.
#define WEIR_STOP <weir needs C++20>
#include WEIR_STOP
#endif

#if !defined(__cpp_exceptions) && !defined(__CUDA_ARCH__)  // device code has none
#error "weir needs exceptions: compile without -fno-exceptions (-fno-rtti is fine)"
#define WEIR_STOP <weir needs exceptions>
#include WEIR_STOP
#endif
