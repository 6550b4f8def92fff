// needs: tsan
#include <weir/pool/segment_source.hpp>

#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/device.hpp>
#include <weir/support/spin_lock.hpp>

#include <doctest/doctest.h>

#include <functional>
#include <stdexcept>

#include "support/captures.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;
using detail::segment_source;
using detail::spin_guard;
using detail::spin_lock;

namespace {

/// Does not mind captures.
struct careless {
  void* allocate(stream_ref, std::size_t bytes, std::size_t) {
    void* p = nullptr;
    REQUIRE(cudaMalloc(&p, bytes) == cudaSuccess);
    return p;
  }
  void deallocate(stream_ref, void* p, std::size_t, std::size_t) noexcept { cudaFree(p); }
  static constexpr bool host_ordered = true;
};

}  // namespace

TEST_CASE("what is on its way counts against the limit, and the lock is free meanwhile") {
  source_state state;
  source_resource upstream(state);
  segment_source<source_resource> source(upstream);
  spin_lock mutex;
  CHECK(source.room(300, 1000) == 700);
  CHECK(source.room(2000, 1000) == 0);
  void* p = nullptr;
  {
    spin_guard const lock(mutex);
    p = source.take(mutex, 512);
  }
  REQUIRE(p != nullptr);
  CHECK(source.room(0, 1000) == 1000);
  bool asked = false;
  state.on_deallocate = [&] {
    spin_guard const lock(mutex);
    CHECK(source.calls().bytes() == 512);
    CHECK(source.room(300, 1000) == 188);
    asked = true;
  };
  spin_guard const lock(mutex);
  source.give(mutex, p, 512);
  CHECK(asked);
  CHECK(source.calls().bytes() == 0);
  CHECK(state.live_bytes == 0);
}

TEST_CASE("too little memory is an answer, what else fails is passed on, and nothing is left on its way") {
  source_state state;
  source_resource upstream(state);
  segment_source<source_resource> source(upstream);
  spin_lock mutex;
  {
    spin_guard const lock(mutex);
    state.fail = failing::out_of_memory;
    CHECK(source.take(mutex, 512) == nullptr);
    state.fail = failing::other;
    CHECK_THROWS_AS(source.take(mutex, 512), std::logic_error);
    CHECK(source.room(0, 1000) == 1000);
  }
  spin_guard const taken_again(mutex);  // who throws holds no lock
}

TEST_CASE("neither way breaks a capture, whatever the upstream calls") {
  watched_world const world;
  careless upstream;
  segment_source<careless> source(upstream);
  spin_lock mutex;
  weir::stream const s;
  begin_capture(s);
  {
    spin_guard const lock(mutex);
    source.give(mutex, source.take(mutex, 512), 512);
    source.give(source.take(mutex, 512), 512);
  }
  captured_graph const graph(s);
}
