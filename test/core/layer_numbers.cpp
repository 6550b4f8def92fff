#include <weir/core/layer_numbers.hpp>

#include <weir/core/any_resource.hpp>
#include <weir/core/numbers.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/async.hpp>

#include <doctest/doctest.h>
#include <core/recorder.hpp>
#include <support/sim_fixture.hpp>

#include <string>
#include <vector>

using namespace weir;
using weir::test::fresh_world;

namespace {

/// A layer of the user's own that knows some things about itself.
template <resource Upstream>
class quota_resource : public passing_resource<Upstream> {
 public:
  template <class F, class Options>
  quota_resource(F const& upstream, Options const&) : passing_resource<Upstream>(upstream, {"quota(of 7)"}) {}

  struct known {
    struct level {
      int current, peak;
    };
    level requested{3, 5};
    std::size_t pending = 2;
    int live() const { return 1; }
  };
  known numbers() const { return {}; }
  std::string name() const { return "mine"; }
  std::size_t used() const { return 4; }
  std::size_t max_bytes() const { return 7; }
  std::size_t peak() const { return 6; }
  std::uint64_t refused() const { return 9; }
  std::size_t captured() const { return 1; }
};
struct quota {
  template <resource Upstream>
  using on = quota_resource<Upstream>;
};

}  // namespace

TEST_CASE("layers of the user's own take part by what they have") {
  auto memory = make(recorder<>{} | quota{} | passing{"plain(with settings)"});
  std::vector<layer_numbers> const known{{.layer = "plain"},
                                         {.layer = "quota",
                                          .name = "mine",
                                          .requested = 3,
                                          .requested_peak = 5,
                                          .pending = 2,
                                          .captured = 1,
                                          .charged = 4,
                                          .charged_peak = 6,
                                          .max_bytes = 7,
                                          .live = 1,
                                          .refused = 9},
                                         {.layer = "recorder"}};
  CHECK(numbers(memory) == known);
  any_resource const erased(recorder<>{} | quota{} | passing{"plain(with settings)"});
  CHECK(numbers(erased) == known);
  limit_ref const found = find_limit(erased, "mine");
  CHECK(found.used() == 4);
  CHECK(found.max_bytes() == 7);
  CHECK(found.peak() == 6);
  CHECK(found.refused() == 9);
}

TEST_CASE_FIXTURE(fresh_world, "where CUDA does not answer, nothing is known") {
  auto memory = make(async{});
  sim::fail_call("cudaMemPoolGetAttribute", 2, cudaErrorUnknown);
  CHECK(numbers(memory)[0] == layer_numbers{.layer = "async", .device = 0});
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(numbers(memory)[0].reserved == 0);
}
