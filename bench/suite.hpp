#pragma once
// The workloads, as templates over a peer, so that no peer is called through anything that a user would not have.
//
// A peer is a default-constructible class with
//   static constexpr char const* name;
//   static constexpr bool streams, threads;      may be used with several streams / from several threads
//   static constexpr std::size_t most_live;      larger workloads would take too long or too much memory
//   void* allocate(std::size_t stream, std::size_t bytes);              `stream` counts from 0, the default stream
//   void deallocate(std::size_t stream, void* p, std::size_t bytes);
//
// An operation is one call of either. Benches are named `workload|peer`. What a bench fills in advance is kept between
// repeats, so that these may be interleaved with those of other peers.

#include "null_runtime.hpp"
#include "random_numbers.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

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

struct live_block {
  void* address = nullptr;
  std::size_t bytes = 0;
  std::size_t stream = 0;
};

/// Blocks of random sizes, of which a random one is replaced at each step.
template <class Peer>
class churn {
 public:
  churn(Peer& peer, std::size_t live, std::size_t most_bytes, std::size_t streams, std::uint64_t seed)
      : peer_(peer), blocks_(live), most_bytes_(most_bytes), streams_(streams), random_(seed) {
    for (live_block& b : blocks_) fill(b, random_.next());
    // Until memory has the layout it keeps; slow peers need not get there.
    auto const started = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < 4 * live; ++i) {
      step();
      if (i % 64 == 0 && std::chrono::steady_clock::now() - started > std::chrono::seconds(1)) break;
    }
  }
  ~churn() {
    for (live_block& b : blocks_) peer_.deallocate(b.stream, b.address, b.bytes);
  }
  churn(churn const&) = delete;
  churn& operator=(churn const&) = delete;

  void step() {
    std::uint64_t const random = random_.next();
    live_block& b = blocks_[random_numbers::high(random, blocks_.size())];
    peer_.deallocate(b.stream, b.address, b.bytes);
    fill(b, random);
  }

 private:
  void fill(live_block& b, std::uint64_t random) {
    if (streams_ != 1) b.stream = random % streams_;
    b.bytes = random_numbers::low(random, most_bytes_) + 1;
    b.address = peer_.allocate(b.stream, b.bytes);
  }

  Peer& peer_;
  std::vector<live_block> blocks_;
  std::size_t most_bytes_;
  std::size_t streams_;
  random_numbers random_;
};

template <class Peer>
void pair(benchmark::State& state, Peer& peer, std::size_t stream, std::size_t bytes) {
  peer.deallocate(stream, peer.allocate(stream, bytes), bytes);
  measured const m(state, 2);
  for (auto _ : state) {
    void* p = peer.allocate(stream, bytes);
    benchmark::DoNotOptimize(p);
    peer.deallocate(stream, p, bytes);
  }
}

/// Allocates many, then frees them in an order.
template <class Peer>
void batch(benchmark::State& state, Peer& peer, std::vector<std::uint32_t> const& order) {
  std::vector<live_block> blocks(order.size());
  random_numbers random(7);
  measured const m(state, 2 * static_cast<double>(order.size()));
  for (auto _ : state) {
    for (live_block& b : blocks) {
      b.bytes = random_numbers::low(random.next(), 64 << 10) + 1;
      b.address = peer.allocate(0, b.bytes);
    }
    for (std::uint32_t i : order) peer.deallocate(0, blocks[i].address, blocks[i].bytes);
  }
}

/// One stream allocates, another frees, oldest first, with some blocks in between.
template <class Peer>
void hand_over(benchmark::State& state, Peer& peer) {
  std::vector<live_block> ring(100);
  random_numbers random(11);
  for (live_block& b : ring) b = {peer.allocate(1, 4096), 4096, 1};
  std::size_t at = 0;
  {
    measured const m(state, 2);
    for (auto _ : state) {
      live_block& b = ring[at];
      at = at + 1 == ring.size() ? 0 : at + 1;
      peer.deallocate(2, b.address, b.bytes);
      b.bytes = random_numbers::low(random.next(), 64 << 10) + 1;
      b.address = peer.allocate(1, b.bytes);
    }
  }
  for (live_block& b : ring) peer.deallocate(2, b.address, b.bytes);
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

template <class Peer>
void add_pairs() {
  struct size {
    char const* name;
    std::size_t bytes;
  };
  for (size const s : {size{"256 B", 256}, size{"4 KiB", 4096}, size{"1 MiB", 1 << 20}})
    add<Peer>(std::string("pair ") + s.name,
              [=](benchmark::State& state, std::unique_ptr<Peer>& peer) { pair(state, *peer, 0, s.bytes); });
}

template <class Peer>
void add_churn(std::string const& workload, std::size_t live, std::size_t most_bytes, std::size_t streams = 1) {
  auto const blocks = std::make_shared<std::unique_ptr<churn<Peer>>>();
  add<Peer>(workload, [=](benchmark::State& state, std::unique_ptr<Peer>& peer) {
    if (!*blocks) *blocks = std::make_unique<churn<Peer>>(*peer, live, most_bytes, streams, 1);
    measured const m(state, 2);
    for (auto _ : state) (*blocks)->step();
  });
}

template <class Peer>
void add_orders() {
  std::vector<std::uint32_t> order(1000);
  auto const add_order = [&](char const* workload) {
    add<Peer>(workload, [order](benchmark::State& state, std::unique_ptr<Peer>& peer) { batch(state, *peer, order); });
  };
  std::iota(order.begin(), order.end(), 0);
  add_order("free in order, 1000 at a time");
  std::reverse(order.begin(), order.end());
  add_order("free in reverse, 1000 at a time");
  random_numbers random(3);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_numbers::high(random.next(), i)]);
  add_order("free at random, 1000 at a time");
}

/// For one of several threads.
inline std::size_t own_stream(benchmark::State const& state) {
  return 1 + static_cast<std::size_t>(state.thread_index());
}

template <class Peer>
void threaded_pair(benchmark::State& state, Peer& peer, std::size_t stream) {
  measured const m(state, 2);
  for (auto _ : state) {
    void* p = peer.allocate(stream, 4096);
    benchmark::DoNotOptimize(p);
    peer.deallocate(stream, p, 4096);
  }
}

/// Also takes the time of every 64th step, for the 99th percentile of two operations.
template <class Peer>
void threaded_churn(benchmark::State& state, Peer& peer, std::size_t stream) {
  using clock = std::chrono::steady_clock;
  std::vector<live_block> blocks(1000);
  std::vector<double> times;
  times.reserve(1 << 20);
  random_numbers random(static_cast<std::uint64_t>(state.thread_index()) + 100);
  auto const step = [&] {
    std::uint64_t const r = random.next();
    live_block& b = blocks[random_numbers::high(r, blocks.size())];
    if (b.address != nullptr) peer.deallocate(stream, b.address, b.bytes);
    b.bytes = random_numbers::low(r, 64 << 10) + 1;
    b.address = peer.allocate(stream, b.bytes);
  };
  {
    measured const m(state, 2);
    std::size_t steps = 0;
    for (auto _ : state) {
      if (++steps % 64 != 0 || times.size() == times.capacity()) [[likely]] {
        step();
        continue;
      }
      auto const begin = clock::now();
      step();
      times.push_back(std::chrono::duration<double, std::nano>(clock::now() - begin).count());
    }
  }
  for (live_block& b : blocks)
    if (b.address != nullptr) peer.deallocate(stream, b.address, b.bytes);
  if (times.empty()) return;
  auto const at = times.begin() + static_cast<std::ptrdiff_t>(times.size() * 99 / 100);
  std::nth_element(times.begin(), at, times.end());
  state.counters["p99"] = benchmark::Counter(*at, benchmark::Counter::kAvgThreads);
}

template <class Peer>
void add_threads() {
  // Thread 0 has made the peer by the time that the others pass the barrier at the start of the loop: only then do they
  // look where it is.
  struct late {
    std::unique_ptr<Peer>& peer;
    void* allocate(std::size_t stream, std::size_t bytes) { return peer->allocate(stream, bytes); }
    void deallocate(std::size_t stream, void* p, std::size_t bytes) { peer->deallocate(stream, p, bytes); }
  };
  for (int const threads : {1, 2, 4, 8}) {
    std::string const many = std::to_string(threads) + (threads == 1 ? " thread" : " threads");
    auto const add_work = [&](std::string const& workload, auto work) {
      add<Peer>(workload + many, work)->Threads(threads)->UseRealTime();
    };
    add_work("pair 4 KiB, ", [](benchmark::State& state, std::unique_ptr<Peer>& peer) {
      late when_there{peer};
      threaded_pair(state, when_there, own_stream(state));
    });
    add_work("1000 live <= 64 KiB, ", [](benchmark::State& state, std::unique_ptr<Peer>& peer) {
      late when_there{peer};
      threaded_churn(state, when_there, own_stream(state));
    });
  }
  // All on one stream: the lock is the same, and so are the blocks.
  add<Peer>("1000 live <= 64 KiB, 2 threads on one stream",
            [](benchmark::State& state, std::unique_ptr<Peer>& peer) {
              late when_there{peer};
              threaded_churn(state, when_there, 1);
            })
      ->Threads(2)
      ->UseRealTime();
}

/// Everything that the peer can take.
template <class Peer>
void add_peer() {
  add_pairs<Peer>();
  add_churn<Peer>("random <= 1 MiB, 1000 live", 1000, 1 << 20);
  for (std::size_t live = 100; live <= Peer::most_live; live *= 10)
    add_churn<Peer>("random <= 64 KiB, " + std::to_string(live) + " live", live, 64 << 10);
  add_orders<Peer>();
  if constexpr (Peer::streams) {
    for (std::size_t streams = 2; streams <= 8; streams *= 2)
      add_churn<Peer>("random <= 64 KiB, 1000 live, " + std::to_string(streams) + " streams", 1000, 64 << 10, streams);
    add<Peer>("allocated on one stream, freed on another",
              [](benchmark::State& state, std::unique_ptr<Peer>& peer) { hand_over(state, *peer); });
  }
  if constexpr (Peer::threads) add_threads<Peer>();
}

}  // namespace bench
