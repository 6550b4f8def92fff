# How weir compiles its own code: tests, examples, benches and the simulated runtime. Users of weir get none of this.

# The presets that a change must pass ask for it. Whoever else builds weir may have a compiler that warns of more than
# those that it is developed with, or optimise as they do not: g++ 12 then warns of what is not there.
option(WEIR_WARNINGS_AS_ERRORS "Warnings stop weir's own builds" OFF)

function(weir_own target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wshadow>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${WEIR_WARNINGS_AS_ERRORS}>>:-Werror>)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
endfunction()

# Links a program of ours with weir and the runtime that WEIR_RUNTIME chose; with `sim` as second argument, always with
# the simulated runtime.
function(weir_link target)
  weir_own(${target})
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    file(REAL_PATH ${source} source)
    file(STRINGS ${source} includes_thrust REGEX "#include <(weir/bridges/)?thrust" LIMIT_COUNT 1)
    if(includes_thrust)
      # Thrust binds references to null execution policies; UBSan says so, and nobody else minds.
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=null,object-size>)
    endif()
  endforeach()
  if(WEIR_RUNTIME STREQUAL "sim" OR "sim" IN_LIST ARGN)
    target_link_libraries(${target} PRIVATE weir::weir weir::sim weir::cccl)
  else()
    target_link_libraries(${target} PRIVATE weir::cuda weir::cccl)
  endif()
endfunction()

# Turns on .cu files: C++20, for the GPU of this machine, or for every one from compute capability 8.0 up if there is none.
macro(weir_enable_nvcc)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)  # before the language is enabled, which sets it
    execute_process(COMMAND nvidia-smi -L OUTPUT_VARIABLE gpus ERROR_QUIET)
    if(gpus MATCHES "GPU 0")
      set(CMAKE_CUDA_ARCHITECTURES native)
    else()
      set(CMAKE_CUDA_ARCHITECTURES 80)
    endif()
  endif()
  if(NOT DEFINED CMAKE_CUDA_COMPILER AND CUDAToolkit_NVCC_EXECUTABLE)
    set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
  endif()
  enable_language(CUDA)
  if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc 12 and newer do
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
endmacro()
