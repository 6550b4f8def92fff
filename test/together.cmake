# Tests of one folder as one program, since with sanitizers most of what a compiler makes of each is the same code. Each
# is still a test of its own in ctest, in a process of its own, which runs the cases of its file.

include(${PROJECT_SOURCE_DIR}/cmake/weir-together.cmake)
set(tests_in_a_program 12)

# True if a file cannot be put in a namespace, is compiled or linked in a way of its own, or tells a library of the
# process what to call.
function(weir_stands_alone source result)
  set(language "^#define|^#if|^int main\\(|^extern \"C\"|operator new|^template <>|^namespace [a-z]")
  set(flags "#include <(weir/bridges/)?(thrust|cuda_mr|cuda/)")
  file(STRINGS ${source} found LIMIT_COUNT 1 REGEX "${language}|${flags}")
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
