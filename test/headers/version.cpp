#include <weir/version.hpp>

#include <doctest/doctest.h>

#include <string>

TEST_CASE("the version in the header is the one that CMake's packages have") {
  CHECK(std::string(WEIR_VERSION_STRING) == CMAKE_SAYS);
  CHECK(std::string(WEIR_VERSION_STRING) == std::to_string(WEIR_VERSION_MAJOR) + "." +
                                                std::to_string(WEIR_VERSION_MINOR) + "." +
                                                std::to_string(WEIR_VERSION_PATCH));
}

TEST_CASE("later versions compare greater in the preprocessor") {
  static_assert(WEIR_VERSION == WEIR_VERSION_MAJOR * 10000 + WEIR_VERSION_MINOR * 100 + WEIR_VERSION_PATCH);
#if WEIR_VERSION >= 100  // 0.1.0
  CHECK(WEIR_VERSION >= 100);
#else
  FAIL("no version before 0.1.0 had this macro");
#endif
}
