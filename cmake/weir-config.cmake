foreach(component IN LISTS weir_FIND_COMPONENTS)
  if(weir_FIND_REQUIRED_${component})
    set(weir_FOUND FALSE)
    set(weir_NOT_FOUND_MESSAGE
      "weir has no component '${component}', since it has none: find_package(weir) brings weir::weir, weir::cuda, weir::cccl, weir::sim, weir::sim_shared and weir::sim_driver, as far as they were installed")
    return()
  endif()
endforeach()
include("${CMAKE_CURRENT_LIST_DIR}/weir-cuda.cmake")
if(NOT TARGET CUDA::toolkit)
  set(weir_FOUND FALSE)
  set(weir_NOT_FOUND_MESSAGE
    "weir needs the CUDA Toolkit, 12.2 or newer: set CUDAToolkit_ROOT, or WEIR_CUDA_INCLUDE_DIR if only its headers are there")
  return()
endif()
include(CMakeFindDependencyMacro)
find_dependency(Threads)  # of the simulated runtime
include("${CMAKE_CURRENT_LIST_DIR}/weir-targets.cmake")
