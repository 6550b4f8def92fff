// The main function of every test program.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

// What the address sanitizer's runtime looks for. Sizes that no machine has are answered with nullptr, as malloc does.
// And it clears what it knows of large blocks by writing, not by mapping pages anew, which takes twice as long.
extern "C" char const* __asan_default_options();
extern "C" char const* __asan_default_options() {
  return "allocator_may_return_null=1:clear_shadow_mmap_threshold=1000000000";
}
