#include <weir/tools/stack_from_environment.hpp>

#include <weir/core/numbers.hpp>
#include <weir/core/report.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/parsed.hpp>
#include <support/sim_fixture.hpp>

#include <cstdlib>
#include <string>

using namespace weir;

// What glibc has, but that the test says whether the program is privileged.
static bool is_privileged = false;
extern "C" char* secure_getenv(char const* name) noexcept { return is_privileged ? nullptr : std::getenv(name); }

namespace {

struct named_stack {
  explicit named_stack(char const* text) { setenv("WEIR_STACK", text, 1); }
  ~named_stack() { unsetenv("WEIR_STACK"); }
};

std::string chain_of(any_resource const& memory) { return report_of(memory).chain(); }

std::string error_of(char const* otherwise) {
  try {
    static_cast<void>(stack_from_environment(otherwise));
  } catch (config_error const& wrong) {
    return wrong.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("the environment names the stack, and the program the one without it") {
  test::fresh_world const world;
  CHECK(chain_of(stack_from_environment("device")) == "device(0)");
  named_stack const other("async | pool");
  CHECK(chain_of(stack_from_environment("device")) == "pool > async(0)");
}

TEST_CASE("an empty variable names none") {
  test::fresh_world const world;
  named_stack const empty("");
  CHECK(chain_of(stack_from_environment("device")) == "device(0)");
}

TEST_CASE("an error names the variable and the column; one of the program's own text does not") {
  test::fresh_world const world;
  CHECK(error_of("device | pol").rfind("weir: column 10: no adaptor is called 'pol'", 0) == 0);
  named_stack const wrong("async | pool(max=1)");
  std::string const text = error_of("device");
  CHECK(text.rfind("weir: WEIR_STACK: column 9: ", 0) == 0);
  CHECK(text.find("\n  async | pool(max=1)\n          ^") != std::string::npos);
  try {
    static_cast<void>(stack_from_environment("device"));
    FAIL("no error");
  } catch (config_error const& error) {
    CHECK(error.column() == 9);
  }
}

TEST_CASE("the memory is of the kind that is asked for") {
  test::fresh_world const world;
  named_stack const device_only("device");
  CHECK_THROWS_AS(static_cast<void>(stack_from_environment<any_host_resource>("pinned")), config_error);
  CHECK_THROWS_WITH(static_cast<void>(stack_from_environment<any_host_resource>("pinned")),
                    doctest::Contains("WEIR_STACK"));
}

TEST_CASE("a privileged program does not read it") {
  test::fresh_world const world;
  named_stack const files("device | logging(/tmp/weir-nobody-writes-this)");
  is_privileged = true;
  CHECK(chain_of(stack_from_environment("device")) == "device(0)");
  is_privileged = false;
}
