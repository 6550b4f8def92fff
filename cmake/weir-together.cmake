# Several programs as one file: most of what a compiler makes of them is the headers that all include and the code of the
# same templates.

# Writes OUTPUT, in the folder that is built in: what SOURCES of ROOT include, and then each source in a namespace of its
# own, which is called PREFIX and the source's path without the ending.
function(weir_write_together output prefix root sources)
  set(headers "")
  set(programs "")
  foreach(source IN LISTS sources)
    get_filename_component(folder ${source} DIRECTORY)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${root}/${source})  # it may come to include more
    file(STRINGS ${root}/${source} includes REGEX "^#include ")
    foreach(include IN LISTS includes)
      string(REGEX REPLACE ".*[<\"](.*)[>\"].*" "\\1" included ${include})
      if(EXISTS ${root}/${folder}/${included})
        set(include "#include \"${root}/${folder}/${included}\"")
      endif()
      list(APPEND headers ${include})
    endforeach()
    string(REGEX REPLACE "\\.cpp$" "" name ${source})
    string(MAKE_C_IDENTIFIER ${name} name)
    string(APPEND programs "namespace ${prefix}${name} {\n"
      "#include \"${root}/${source}\"  // NOLINT(bugprone-suspicious-include)\n}\n")
  endforeach()
  list(REMOVE_DUPLICATES headers)
  list(JOIN headers "\n" headers)
  file(CONFIGURE OUTPUT ${output} CONTENT "${headers}\n${programs}" @ONLY)
endfunction()

# Writes OUTPUT: a main function that is told by its first argument which of those to be, and hands it the others.
function(weir_write_choice output prefix root sources)
  set(declarations "")
  set(choices "")
  foreach(source IN LISTS sources)
    string(REGEX REPLACE "\\.cpp$" "" name ${source})
    string(MAKE_C_IDENTIFIER ${name} program)
    file(STRINGS ${root}/${source} takes_arguments REGEX "^int main\\([a-z]" LIMIT_COUNT 1)
    if(takes_arguments)
      string(APPEND declarations "namespace ${prefix}${program} { int main(int, char**); }\n")
      string(APPEND choices "  if (name == \"${name}\") return ${prefix}${program}::main(count - 1, arguments + 1);\n")
    else()
      string(APPEND declarations "namespace ${prefix}${program} { int main(); }\n")
      string(APPEND choices "  if (name == \"${name}\") return ${prefix}${program}::main();\n")
    endif()
  endforeach()
  file(CONFIGURE OUTPUT ${output} CONTENT [[#include <string_view>

@declarations@
int main(int count, char** arguments) {
  std::string_view const name = count >= 2 ? arguments[1] : "";
@choices@  return 2;
}
]] @ONLY)
endfunction()
