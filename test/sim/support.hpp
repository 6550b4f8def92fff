#pragma once
// What the simulated runtime's own tests share.

#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/sim_fixture.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace sim_test {

namespace sim = weir::sim;

using fresh = weir::test::fresh_world;
using fresh_and_lazy = weir::test::lazy_world;

inline void ok(cudaError_t code) { REQUIRE_EQ(code, cudaSuccess); }

inline cudaStream_t make_stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t stream = nullptr;
  ok(cudaStreamCreateWithFlags(&stream, flags));
  return stream;
}

inline cudaEvent_t make_event() {
  cudaEvent_t event = nullptr;
  ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

inline unsigned long long id_of(cudaStream_t stream) {
  unsigned long long id = 0;
  ok(cudaStreamGetId(stream, &id));
  return id;
}

/// Writes down in which order its marks were reached.
class diary {
 public:
  void mark(cudaStream_t stream, int number) {
    notes_.push_back(std::make_unique<note>(note{this, number}));
    ok(cudaLaunchHostFunc(stream, &write, notes_.back().get()));
  }
  std::vector<int> const& reached() const { return reached_; }

 private:
  struct note {
    diary* in;
    int number;
  };
  static void write(void* data) {
    auto const* const n = static_cast<note const*>(data);
    n->in->reached_.push_back(n->number);
  }

  std::vector<std::unique_ptr<note>> notes_;
  std::vector<int> reached_;
};

using numbers = std::vector<int>;

}  // namespace sim_test
