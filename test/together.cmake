# Tests of one folder as one program, since most of what a compiler makes of each is the same code. Each is still a test
# of its own in ctest, in a process of its own, which runs the cases of its file.

include(${PROJECT_SOURCE_DIR}/cmake/weir-together.cmake)
set(tests_in_a_program 12)

# True if a file cannot be put in a namespace, is compiled or linked in a way of its own, or tells a library of the
# process what to call. `#if CUDART_VERSION`, and another name for a namespace, can stand in one.
function(weir_stands_alone source result)
  set(language "^#define|^#if [^C]|^#ifn?def|^int main\\(|^extern \"C\"|operator new\\(|^template <>")
  set(others "^namespace [a-z_:]+ {")
  set(flags "#include <(weir/bridges/)?(thrust|cuda_mr|cuda/)")
  file(STRINGS ${source} found LIMIT_COUNT 1 REGEX "${language}|${others}|${flags}")
  if(found OR source MATCHES "^(bench/trace|sim/driver_functions|bridges/nvtx.*)\\.cpp$")
    set(${result} TRUE PARENT_SCOPE)
  else()
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()

# Makes the programs, each of so many files of one folder, and their tests.
function(weir_add_tests_together sources)
  foreach(source IN LISTS sources)
    get_filename_component(folder ${source} DIRECTORY)
    list(APPEND folders ${folder})
    list(APPEND left_in_${folder} ${source})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder IN LISTS folders)
    set(number 0)
    while(left_in_${folder})
      list(SUBLIST left_in_${folder} 0 ${tests_in_a_program} some)
      list(REMOVE_ITEM left_in_${folder} ${some})
      string(REPLACE "/" "." target "tests.${folder}.${number}")
      weir_add_program_of_tests(${target} "${some}")
      math(EXPR number "${number} + 1")
    endwhile()
  endforeach()
endfunction()

function(weir_add_program_of_tests target sources)
  weir_write_together(${target}.cpp test_ ${CMAKE_CURRENT_SOURCE_DIR} "${sources}")
  add_executable(${target} ${CMAKE_CURRENT_BINARY_DIR}/${target}.cpp)
  weir_link(${target} sim)
  target_link_libraries(${target} PRIVATE weir_test_main)
  if(WEIR_PRECOMPILED_HEADERS)
    target_precompile_headers(${target} REUSE_FROM weir_test_headers)
  endif()
  foreach(source IN LISTS sources)
    weir_link_parsed(${target} ${source})
    string(REGEX REPLACE "\\.cpp$" "" name ${source})
    add_test(NAME ${name} COMMAND ${target} --source-file=*/test/${source})
    set_tests_properties(${name} PROPERTIES FAIL_REGULAR_EXPRESSION "test cases: +0 ")  # the file has none
  endforeach()
endfunction()

# Adds the test that each compiles alone too, and so does each example.
function(weir_add_test_of_each_alone sources)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  list(TRANSFORM sources PREPEND test/)
  file(GLOB examples CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/examples/*.cpp)
  foreach(example IN LISTS examples)
    file(STRINGS ${PROJECT_SOURCE_DIR}/${example} includes_cccl LIMIT_COUNT 1
      REGEX "#include <(.*thrust|.*cuda_mr|cuda/)")
    if(NOT includes_cccl)  # which are put together with no other
      list(APPEND sources ${example})
    endif()
  endforeach()
  list(JOIN sources "\n" lines)
  file(CONFIGURE OUTPUT alone.txt CONTENT "${lines}\n")
  get_target_property(folders CUDA::toolkit INTERFACE_INCLUDE_DIRECTORIES)
  list(APPEND folders ${WEIR_DOCTEST_INCLUDE_DIR})
  list(FILTER folders EXCLUDE REGEX "^/usr/include$|NOTFOUND")
  add_test(NAME structure/alone COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/structure/alone.py
    ${CMAKE_CXX_COMPILER} ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_BINARY_DIR}/alone.txt ${folders})
  set_tests_properties(structure/alone PROPERTIES PROCESSORS 2 COST 1500)
endfunction()
