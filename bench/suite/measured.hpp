#pragma once
// A bench of a peer: registered by workload and peer, measured by operation.

#include "../support/null_runtime.hpp"

#include <benchmark/benchmark.h>

#include <cstddef>
#include <memory>
#include <string>

namespace bench {

/// Reports time and CUDA calls per operation over the measured loop.
class measured {
 public:
  explicit measured(benchmark::State& state, double operations_each) : state_(state), operations_(operations_each) {}
  ~measured() {
    if (state_.thread_index() != 0) return;
    call_counts const made = cuda_calls() - before_;
    double const all = static_cast<double>(state_.iterations()) * state_.threads() * operations_;
    state_.counters["operations"] = operations_;
    state_.counters["cuda_calls"] = static_cast<double>(made.total()) / all;
    for (std::size_t k = 0; k < call_kinds; ++k)
      if (made.by_kind[k] != 0)
        state_.counters[std::string("cuda: ") + call_names[k]] = static_cast<double>(made.by_kind[k]) / all;
  }
  measured(measured const&) = delete;
  measured& operator=(measured const&) = delete;

 private:
  benchmark::State& state_;
  double operations_;
  call_counts before_ = cuda_calls();
};

/// Says in the figures that a peer is not measured, and why; `bench/run` prints that.
inline void leave_out(std::string const& peer, std::string const& why) {
  benchmark::AddCustomContext("left out: " + peer, why);
}

inline std::string named(std::string workload, char const* peer) { return workload + "|" + peer; }

/// A bench of `Peer` on one that lives from the bench's first run to the end of the program.
template <class Peer, class Run>
benchmark::internal::Benchmark* add(std::string const& workload, Run run) {
  auto const peer = std::make_shared<std::unique_ptr<Peer>>();
  return benchmark::RegisterBenchmark(named(workload, Peer::name).c_str(), [=](benchmark::State& state) {
    if (state.thread_index() == 0 && !*peer) *peer = std::make_unique<Peer>();
    run(state, *peer);
  });
}

}  // namespace bench
