#pragma once
// The suite: every workload on a peer, as templates, so that no peer is called through anything that a user would not
// have.
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

#include "../support/random_numbers.hpp"
#include "measured.hpp"
#include "threads.hpp"
#include "workloads.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace bench {

using sizes = std::initializer_list<std::size_t>;

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

/// Also reports what the peer's bookkeeping takes of the host's memory for each live block, where the peer says so.
template <class Peer>
void add_churn(std::string const& workload, std::size_t live, std::size_t most_bytes, std::size_t streams = 1) {
  auto const blocks = std::make_shared<std::unique_ptr<churn<Peer>>>();
  add<Peer>(workload, [=](benchmark::State& state, std::unique_ptr<Peer>& peer) {
    if (!*blocks) *blocks = std::make_unique<churn<Peer>>(*peer, live, most_bytes, streams, 1);
    {
      measured const m(state, 2);
      for (auto _ : state) (*blocks)->step();
    }
    if constexpr (requires { peer->metadata_bytes(); })
      state.counters["metadata"] = static_cast<double>(peer->metadata_bytes()) / static_cast<double>(live);
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

template <class Peer>
void add_random_allocations() {
  for (std::size_t const n : sizes{1'000, 10'000, 100'000})
    for (std::size_t const mib : sizes{1, 4, 64}) {
      if (n > Peer::most_live) continue;
      auto const live = std::make_shared<std::vector<live_block>>();
      add<Peer>("RMM's random " + std::to_string(n) + " <= " + std::to_string(mib) + " MiB",
                [=](benchmark::State& state, std::unique_ptr<Peer>& peer) {
                  bool const is_first = live->capacity() == 0;
                  live->reserve(n);
                  if (is_first) random_allocations(*peer, n, mib << 20, *live);  // memory is there from here on
                  measured const m(state, 2 * static_cast<double>(n));
                  for (auto _ : state) random_allocations(*peer, n, mib << 20, *live);
                });
    }
}

/// Of a peer's own `allocator()` for standard containers, if it has one.
template <class Peer>
void add_vectors() {
  for (std::size_t const elements : sizes{10'000, 1'000'000})
    add<Peer>("vector of " + std::to_string(elements) + " floats",
              [=](benchmark::State& state, std::unique_ptr<Peer>& peer) {
                if constexpr (requires { peer->allocator(); })
                  vectors(state, peer->allocator(), elements);
                else
                  vectors(state, peer_allocator<untouched, Peer>{peer.get()}, elements);
              });
}

/// Everything that the peer can take.
template <class Peer>
void add_peer() {
  add_pairs<Peer>();
  add_churn<Peer>("random <= 1 MiB, 1000 live", 1000, 1 << 20);
  for (std::size_t live = 100; live <= Peer::most_live; live *= 10)
    add_churn<Peer>("random <= 64 KiB, " + std::to_string(live) + " live", live, 64 << 10);
  add_random_allocations<Peer>();
  add_orders<Peer>();
  if constexpr (Peer::streams) {
    for (std::size_t streams = 2; streams <= 8; streams *= 2)
      add_churn<Peer>("random <= 64 KiB, 1000 live, " + std::to_string(streams) + " streams", 1000, 64 << 10, streams);
    add<Peer>("allocated on one stream, freed on another",
              [](benchmark::State& state, std::unique_ptr<Peer>& peer) { hand_over(state, *peer); });
  }
  add_vectors<Peer>();
  if constexpr (Peer::threads) add_threads<Peer>();
}

}  // namespace bench
