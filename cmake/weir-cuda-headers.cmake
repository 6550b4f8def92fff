# Where CUDA's headers are, and which version of the runtime they belong to.

# The path of a header as `cuda.h`, in the toolkit or where it was found without one; empty if it is in neither.
function(weir_find_cuda_header name result)
  set(${result} "" PARENT_SCOPE)
  get_target_property(folders CUDA::toolkit INTERFACE_INCLUDE_DIRECTORIES)
  foreach(folder IN LISTS folders CUDAToolkit_INCLUDE_DIRS)
    if(EXISTS "${folder}/${name}")
      set(${result} "${folder}/${name}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# 12 or 13: the number in the name of the runtime's library.
function(weir_cudart_major result)
  weir_find_cuda_header(cuda_runtime_api.h header)
  if(NOT header)
    message(FATAL_ERROR "weir needs the version of CUDA's headers, but found no cuda_runtime_api.h; is WEIR_CUDA_INCLUDE_DIR right?")
  endif()
  file(STRINGS "${header}" version REGEX "^#define CUDART_VERSION ")
  string(REGEX REPLACE ".* ([0-9]+)$" "\\1" version "${version}")
  if(version LESS 12020)
    message(FATAL_ERROR
      "weir needs CUDA 12.2 or newer, but ${header} has CUDART_VERSION ${version}: set CUDAToolkit_ROOT, or WEIR_CUDA_INCLUDE_DIR if only a newer one's headers are there")
  endif()
  math(EXPR major "${version} / 1000")
  set(${result} ${major} PARENT_SCOPE)
endfunction()
