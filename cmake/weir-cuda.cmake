# What weir needs of CUDA, found in the same way by weir's own build and by find_package(weir). Makes the targets
#   CUDA::toolkit  the headers (from FindCUDAToolkit, or from the folder WEIR_CUDA_INCLUDE_DIR where there is no toolkit)
#   weir::cccl     the toolkit's Thrust, CUB and libcu++ headers, for .cpp files; nvcc finds them by itself
#   weir::cuda     weir::weir and the real runtime, CUDA::cudart; only where that library was found

set(WEIR_CUDA_INCLUDE_DIR "" CACHE PATH
  "Folder with cuda_runtime_api.h, used where no CUDA Toolkit is found: enough for programs on weir::sim")

if(NOT TARGET CUDA::toolkit)
  # CMake 3.25.0 and 3.25.1 fail on toolkits without nvToolsExt, as all of today's are, unless asked for less than 3.25.
  set(weir_asked_for ${CMAKE_MINIMUM_REQUIRED_VERSION})
  set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
  # GLOBAL: whoever links weir may do so from a directory above the one that added it.
  find_package(CUDAToolkit 12.2 QUIET GLOBAL)
  set(CMAKE_MINIMUM_REQUIRED_VERSION ${weir_asked_for})
endif()
if(NOT TARGET CUDA::toolkit AND EXISTS "${WEIR_CUDA_INCLUDE_DIR}/cuda_runtime_api.h")
  add_library(CUDA::toolkit INTERFACE IMPORTED GLOBAL)
  target_include_directories(CUDA::toolkit SYSTEM INTERFACE "${WEIR_CUDA_INCLUDE_DIR}")
endif()

if(TARGET CUDA::toolkit AND NOT TARGET weir::cccl)
  add_library(weir::cccl INTERFACE IMPORTED GLOBAL)
  foreach(folder IN LISTS CUDAToolkit_INCLUDE_DIRS WEIR_CUDA_INCLUDE_DIR)
    # Toolkit 13 has them in a folder of their own, toolkit 12 beside the others.
    if(EXISTS "${folder}/cccl/thrust/version.h")
      target_include_directories(weir::cccl SYSTEM INTERFACE "${folder}/cccl")
    endif()
  endforeach()
endif()

if(TARGET CUDA::cudart AND NOT TARGET weir::cuda)
  add_library(weir::cuda INTERFACE IMPORTED GLOBAL)
  target_link_libraries(weir::cuda INTERFACE weir::weir CUDA::cudart)
endif()
