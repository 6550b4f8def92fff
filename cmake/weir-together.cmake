# Several programs as one file: most of what a compiler makes of them is the headers that all include and the code of the
# same templates.

# Writes OUTPUT, in the folder that is built in: what SOURCES include, and then each source in a namespace of its own,
# which is called PREFIX and the source's path without the ending.
function(weir_write_together output prefix sources)
  set(headers "")
  set(programs "")
  foreach(source IN LISTS sources)
    get_filename_component(folder ${source} DIRECTORY)
    file(STRINGS ${source} includes REGEX "^#include ")
    foreach(include IN LISTS includes)
      string(REGEX REPLACE ".*[<\"](.*)[>\"].*" "\\1" included ${include})
      if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/${included})
        set(include "#include \"${CMAKE_CURRENT_SOURCE_DIR}/${folder}/${included}\"")
      endif()
      list(APPEND headers ${include})
    endforeach()
    string(REGEX REPLACE "\\.cpp$" "" name ${source})
    string(MAKE_C_IDENTIFIER ${name} name)
    string(APPEND programs "namespace ${prefix}${name} {\n"
      "#include \"${CMAKE_CURRENT_SOURCE_DIR}/${source}\"  // NOLINT(bugprone-suspicious-include)\n}\n")
  endforeach()
  list(REMOVE_DUPLICATES headers)
  list(JOIN headers "\n" headers)
  file(CONFIGURE OUTPUT ${output} CONTENT "${headers}\n${programs}" @ONLY)
endfunction()
