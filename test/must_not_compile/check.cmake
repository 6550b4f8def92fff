# Proves that a program is refused for the reason it names: it compiles as it stands, does not compile with REFUSED
# defined, and the compiler's words then match the pattern in its first line, `// refused: PATTERN`.
#   cmake -DCOMPILER=... -DSOURCE=... "-DFLAGS=-std=c++20;-I..." -P check.cmake
file(STRINGS ${SOURCE} pattern LIMIT_COUNT 1 REGEX "^// refused: ")
if(NOT pattern)
  message(FATAL_ERROR "${SOURCE} has no line `// refused: PATTERN`")
endif()
string(REPLACE "// refused: " "" pattern "${pattern}")

set(ENV{LC_ALL} C)  # plain quotation marks
execute_process(COMMAND ${COMPILER} ${FLAGS} -fsyntax-only ${SOURCE} RESULT_VARIABLE status ERROR_VARIABLE words)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "does not compile as it should without REFUSED, so the refusal proves nothing:\n${words}")
endif()

execute_process(COMMAND ${COMPILER} ${FLAGS} -DREFUSED -fsyntax-only ${SOURCE} RESULT_VARIABLE status ERROR_VARIABLE words)
if(status EQUAL 0)
  message(FATAL_ERROR "compiles, but should not: ${SOURCE} with REFUSED defined")
endif()
if(NOT words MATCHES "${pattern}")
  message(FATAL_ERROR "refused, but nothing matches `${pattern}` in:\n${words}")
endif()
