#pragma once
// The workloads of one thread, as templates over a peer.

#include "../support/random_numbers.hpp"
#include "measured.hpp"

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace bench {

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

/// RMM's own benchmark, from its description: allocations of random sizes until there were `n`, 73 of 100 steps as long
/// as no more than 16,000 MiB are live, and else the free of a random block; at last everything is freed.
template <class Peer>
void random_allocations(Peer& peer, std::size_t n, std::size_t most_bytes, std::vector<live_block>& live) {
  constexpr std::size_t most_live_bytes = std::size_t{16'000} << 20;
  random_numbers random(1);
  std::size_t live_bytes = 0;
  auto const free = [&](std::size_t i) {
    std::swap(live[i], live.back());
    peer.deallocate(0, live.back().address, live.back().bytes);
    live_bytes -= live.back().bytes;
    live.pop_back();
  };
  for (std::size_t made = 0; made < n;) {
    std::uint64_t const r = random.next();
    std::size_t const bytes = random_numbers::low(r, most_bytes) + 1;
    if (live.empty() || (random_numbers::high(r, 100) < 73 && live_bytes + bytes <= most_live_bytes)) {
      live.push_back({peer.allocate(0, bytes), bytes, 0});
      live_bytes += bytes;
      ++made;
    } else {
      free(random_numbers::high(random.next(), live.size()));
    }
  }
  while (!live.empty()) free(live.size() - 1);
}

/// What a vector holds here: its constructor writes nothing, since the null runtime's memory must not be touched.
struct untouched {
  float value;
  untouched() {}  // NOLINT(modernize-use-equals-default): a defaulted one would write zeros
};

/// A standard allocator straight on a peer.
template <class T, class Peer>
struct peer_allocator {
  using value_type = T;
  Peer* peer;
  T* allocate(std::size_t n) { return static_cast<T*>(peer->allocate(0, n * sizeof(T))); }
  void deallocate(T* p, std::size_t n) { peer->deallocate(0, p, n * sizeof(T)); }
  friend bool operator==(peer_allocator const&, peer_allocator const&) = default;
};

/// A vector is made and destroyed.
template <class Allocator>
void vectors(benchmark::State& state, Allocator const& allocator, std::size_t elements) {
  { std::vector<untouched, Allocator> const first(elements, allocator); }
  measured const m(state, 2);
  for (auto _ : state) {
    std::vector<untouched, Allocator> made(elements, allocator);
    benchmark::DoNotOptimize(made.data());
  }
}

}  // namespace bench
