# RMM's wheel, for tests only, where cmake/get-rmm or somebody else has installed it. Makes, where they can be used,
#   weir_newer_cccl  the CCCL in the wheel, which is newer than the toolkit's; for a target that does not link weir::cccl
#   weir_rmm         RMM: its headers, that CCCL, and its library, which has a CUDA runtime of its own
# and sets `newer_cccl_is_missing` and `rmm_is_missing`: why not, or nothing.

set(WEIR_RMM_DIR ${PROJECT_SOURCE_DIR}/build/peers/rmm CACHE PATH "RMM's wheel, as pip installs it with --target")
set(newer_cccl_is_missing "")
set(rmm_is_missing "")

if(NOT EXISTS ${WEIR_RMM_DIR}/librmm/include/rapids/cuda/version)
  set(newer_cccl_is_missing "no RMM with a newer CCCL in ${WEIR_RMM_DIR}: get it with cmake/get-rmm")
elseif(NOT TARGET weir_newer_cccl)
  add_library(weir_newer_cccl INTERFACE)
  target_include_directories(weir_newer_cccl SYSTEM INTERFACE ${WEIR_RMM_DIR}/librmm/include/rapids)
endif()

include(CheckCXXSourceCompiles)
check_cxx_source_compiles("namespace __attribute__((visibility(\"default\"))) n {} int main() {}" WEIR_RMM_COMPILES)
if(newer_cccl_is_missing)
  set(rmm_is_missing ${newer_cccl_is_missing})
elseif(NOT WEIR_RMM_COMPILES)
  set(rmm_is_missing "this compiler does not take RMM's headers, which have attributes on namespaces")
elseif(NOT TARGET weir_rmm)
  add_library(weir_rmm INTERFACE)
  target_link_libraries(weir_rmm INTERFACE weir_newer_cccl
    ${WEIR_RMM_DIR}/librmm/lib64/librmm.so ${WEIR_RMM_DIR}/rapids_logger/lib64/librapids_logger.so)
  target_include_directories(weir_rmm SYSTEM INTERFACE
    ${WEIR_RMM_DIR}/librmm/include ${WEIR_RMM_DIR}/rapids_logger/include)
endif()

# A test that says why it is skipped.
function(weir_add_skipped_test name why)
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "skipped: ${why}")
  set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped: ")
endfunction()
