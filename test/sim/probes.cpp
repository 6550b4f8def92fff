// needs: tsan
// The probes of CUDA's behaviour, asked of the simulated runtime. test/gpu asks a GPU the same.

#include "probes/all.hpp"
#include "support.hpp"

#include <weir/sim/sim.hpp>

#include <string>

using namespace sim_test;

namespace {

void ask_all(sim::mode how, bool with_pending_work) {
  int asked = 0;
  probes::for_each([&](probes::probe const& p) {
    if (p.what == probes::needs::pending_work && !with_pending_work) return;
    sim::reset();
    sim::set_mode(how);
    for (std::string const& difference : probes::ask(p)) FAIL_CHECK(difference);
    CHECK_MESSAGE(sim::live_allocations() == 0, "probe ", p.name, " leaves memory behind");
    ++asked;
  });
  sim::reset();
  CHECK_GE(asked, 60);
}

}  // namespace

TEST_CASE("the simulated runtime answers every probe as CUDA does, when nothing runs early") {
  ask_all(sim::mode::lazy, true);
}

TEST_CASE("and the probes that need no pending work, when everything runs at once") {
  ask_all(sim::mode::immediate, false);
}

TEST_CASE("a difference says which probe, what was asked, what CUDA documents, and what came") {
  probes::verdict v("example");
  v.code("a call", cudaErrorUnknown, {cudaSuccess, cudaErrorNotReady});
  v.code("another call", cudaSuccess, cudaSuccess);
  v.fails("a failure", cudaSuccess);
  v.equal("a number", 1, 2);
  v.yes("a question", false);
  REQUIRE_EQ(v.differences().size(), 4);
  CHECK_EQ(v.differences()[0],
           "probe example: a call: expected cudaSuccess or cudaErrorNotReady, got cudaErrorUnknown");
  CHECK_EQ(v.differences()[1], "probe example: a failure: expected an error, got cudaSuccess");
  CHECK_EQ(v.differences()[2], "probe example: a number: expected 2, got 1");
  CHECK_EQ(v.differences()[3], "probe example: a question: expected yes, got no");
}
