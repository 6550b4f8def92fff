// Pools that move what a stream freed before its work is done (`pool::move_pending`): on the simulated runtime, whose
// work does not run until somebody waits for it, and whose check of order knows views of one memory.
#include <weir/pool/pending_move.hpp>

#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/core/error.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/numbers.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/host.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>

#include "support/captures.hpp"
#include "support/streams_at_work.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

constexpr std::size_t chunk = std::size_t{2} << 20;
constexpr pool moving{.max_waste = 0, .move_pending = true, .synchronize = false};

/// A pool whose five chunks are all in blocks of their own with work, the first, third and last of them freed. The
/// stream is of the device that is current.
template <class Memory>
struct comb {
  explicit comb(Memory& m) : memory(m) {
    for (void*& p : blocks) {
      p = memory.allocate(work, chunk);
      fill(work, p, chunk, 1);
    }
    for (int i : {0, 2, 4}) memory.deallocate(work, blocks[i], chunk);
  }
  ~comb() {
    for (int i : {1, 3})
      if (blocks[i] != nullptr) memory.deallocate(work, blocks[i], chunk);
  }
  void give(stream_ref on, void* p, std::size_t bytes) { memory.deallocate(on, p, bytes); }

  Memory& memory;
  stream const work{};
  void* blocks[5] = {};
};

/// Takes nothing away so many times, as a driver whose context an error ended.
class refusing {
 public:
  static constexpr bool host_ordered = true;

  explicit refusing(virtual_memory_resource& to) : to_(to) {}
  void* allocate(stream_ref s, std::size_t n, std::size_t a = default_alignment) { return to_.allocate(s, n, a); }
  void deallocate(stream_ref s, void* p, std::size_t n, std::size_t a = default_alignment) noexcept {
    to_.deallocate(s, p, n, a);
  }
  std::size_t chunk_bytes() const noexcept { return to_.chunk_bytes(); }
  address_range reserve_range(std::size_t most) { return to_.reserve_range(most); }
  void release_range(address_range range) noexcept { to_.release_range(range); }
  bool map(void* p, std::size_t n) { return to_.map(p, n); }
  bool unmap(void* p, std::size_t n) noexcept {
    if (times == 0) return to_.unmap(p, n);
    return --times, false;
  }
  bool alias(void* to, void* from, std::size_t n) { return to_.alias(to, from, n); }

  int times = 0;

 private:
  virtual_memory_resource& to_;
};

auto five_chunks() { return virtual_memory{.max_bytes = 5 * chunk}; }

std::size_t mapped(virtual_memory_resource const& pages) { return pages.numbers().allocated.current; }

}  // namespace

TEST_CASE("without being asked a pool moves nothing whose work is not done") {
  watched_world const world;
  auto memory = make(five_chunks() | pool{.max_waste = 0, .synchronize = false});
  comb c(memory);
  CHECK_THROWS_AS(static_cast<void>(memory.allocate(c.work, 3 * chunk)), out_of_memory);
}

TEST_CASE("a stream has what it freed in another place at once, behind the work that still uses it") {
  watched_world const world;
  auto memory = make(five_chunks() | moving);
  auto const& pages = find<virtual_memory_resource>(memory);
  comb c(memory);
  sim::reset_counters();
  void* const large = memory.allocate(c.work, 3 * chunk);
  CHECK(sim::calls("cudaEventSynchronize") + sim::calls("cudaStreamSynchronize") == 0);
  CHECK(memory.numbers().moved >= 2 * chunk);
  CHECK(memory.numbers().reserved.current == 5 * chunk);
  CHECK(memory.numbers().pending == 0);
  CHECK(mapped(pages) == 5 * chunk);
  queued_checks checks;
  fill(c.work, large, 3 * chunk, 7);
  checks.expect(c.work, large, 3 * chunk, 7);
  c.work.synchronize();
  CHECK(checks.wrong() == 0);
  CHECK(checks.done() == 1);
  c.give(c.work, large, 3 * chunk);
  memory.synchronize();
  CHECK(memory.trim() == 3 * chunk);  // with the old views, else the chunks would stay mapped
  CHECK(mapped(pages) == 2 * chunk);
  CHECK(pages.numbers().reserved.current == 2 * chunk);
}

TEST_CASE("a stream of another device has what it freed in another place too") {
  watched_world const world;
  auto memory = make(five_chunks() | moving);
  cudaSetDevice(1);
  {
    comb c(memory);
    void* const large = memory.allocate(c.work, 3 * chunk);
    CHECK(memory.numbers().moved >= 2 * chunk);
    fill(c.work, large, 3 * chunk, 7);
    c.give(c.work, large, 3 * chunk);
  }
  cudaSetDevice(0);
}

TEST_CASE("no other stream gets what a stream may use already, nor what is left over of it") {
  watched_world const world;
  auto memory = make(five_chunks() | moving);
  comb c(memory);
  stream const other;
  CHECK_THROWS_AS(static_cast<void>(memory.allocate(other, 3 * chunk)), out_of_memory);
  void* const large = memory.allocate(c.work, 3 * chunk - 1000);
  void* const rest = memory.allocate(other, 700);  // behind the large one: once `other` waits for `work`
  fill(c.work, large, 3 * chunk - 1000, 7);
  fill(other, rest, 700, 8);
  cudaDeviceSynchronize();
  c.give(other, rest, 700);
  c.give(c.work, large, 3 * chunk - 1000);
}

TEST_CASE("what was moved can be moved again before its first work is done, and by another stream after it") {
  watched_world const world;
  auto memory = make(virtual_memory{.max_bytes = 8 * chunk} | moving);
  auto const& pages = find<virtual_memory_resource>(memory);
  stream const work;
  void* blocks[8];
  for (void*& p : blocks) fill(work, p = memory.allocate(work, chunk), chunk, 1);
  for (int i : {0, 2, 4, 6}) memory.deallocate(work, blocks[i], chunk);
  for (unsigned const chunks : {2u, 3u, 4u, 2u, 3u}) {
    void* const p = memory.allocate(work, chunks * chunk);
    fill(work, p, chunks * chunk, static_cast<unsigned char>(chunks));
    memory.deallocate(work, p, chunks * chunk);
  }
  CHECK(mapped(pages) <= 8 * chunk);
  work.synchronize();
  stream const other;
  void* const p = memory.allocate(other, 4 * chunk);
  fill(other, p, 4 * chunk, 9);
  memory.deallocate(other, p, 4 * chunk);
  for (int i : {1, 3, 5, 7}) memory.deallocate(work, blocks[i], chunk);
  memory.synchronize();
  CHECK(memory.trim() == 8 * chunk);
  CHECK(pages.numbers().reserved.current == 0);
}

TEST_CASE("where a view cannot be had all is as before") {
  watched_world const world;
  auto memory = make(virtual_memory{} | limit{5 * chunk} | moving);  // a view counts as a chunk while there are two
  comb c(memory);
  CHECK_THROWS_AS(static_cast<void>(memory.allocate(c.work, 3 * chunk)), out_of_memory);
  CHECK(find_limit(memory).used() == 5 * chunk);
  CHECK(memory.numbers().pending == 3 * chunk);
  void* const p = memory.allocate(c.work, chunk);
  fill(c.work, p, chunk, 3);
  find_limit(memory).set_max_bytes(8 * chunk);
  void* const large = memory.allocate(c.work, 2 * chunk);
  fill(c.work, large, 2 * chunk, 4);
  c.give(c.work, p, chunk);
  c.give(c.work, large, 2 * chunk);
  memory.synchronize();
  memory.trim();
  CHECK(find_limit(memory).used() == 2 * chunk);
}

TEST_CASE("each call of CUDA that fails once while pending chunks move leaves the pool as it was") {
  std::uint64_t calls = 1;
  for (std::uint64_t k = 0; k <= calls; ++k) {  // 0: none, to count them
    CAPTURE(k);
    watched_world const world;
    auto memory = make(five_chunks() | moving);
    comb c(memory);
    sim::reset_counters();
    if (k != 0) sim::fail_call(k, cudaErrorUnknown);
    void* large = nullptr;
    try {
      large = memory.allocate(c.work, 3 * chunk);
    } catch (std::exception const&) {
      CHECK(memory.numbers().reserved.current == 5 * chunk);
    }
    if (k == 0) calls = sim::calls();
    sim::clear_failure();
    if (large == nullptr) large = memory.allocate(c.work, 3 * chunk);
    fill(c.work, large, 3 * chunk, 5);
    c.give(c.work, large, 3 * chunk);
    memory.synchronize();
    memory.trim();
    CHECK(mapped(find<virtual_memory_resource>(memory)) == 2 * chunk);
  }
  CHECK(calls > 5);
}

TEST_CASE("a pool is parked when what was moved is at one place again") {
  watched_world const world;
  auto memory = make(five_chunks() | moving);
  auto host_memory = make(host{});
  comb c(memory);
  void* const large = memory.allocate(c.work, 3 * chunk);
  fill(c.work, large, 3 * chunk, 7);
  cudaDeviceSynchronize();
  memory.park(share(host_memory));
  CHECK(mapped(find<virtual_memory_resource>(memory)) == 0);
  memory.unpark();
  queued_checks checks;
  checks.expect(c.work, large, 3 * chunk, 7);
  checks.expect(c.work, c.blocks[1], chunk, 1);
  c.work.synchronize();
  CHECK(checks.wrong() == 0);
  c.give(c.work, large, 3 * chunk);
}

TEST_CASE("park waits for work on freed blocks, also where their chunks were moved to a live one") {
  watched_world const world;
  auto memory = make(virtual_memory{.max_bytes = 3 * chunk} | moving);
  stream const work;
  void* const first = memory.allocate(work, chunk);
  void* const unused = memory.allocate(work, chunk);
  void* const last = memory.allocate(work, chunk);
  for (void* const p : {first, last}) {
    fill(work, p, chunk, 1);
    memory.deallocate(work, p, chunk);
  }
  void* const large = memory.allocate(work, 2 * chunk);
  memory.park(drop_contents);
  CHECK(mapped(find<virtual_memory_resource>(memory)) == 0);
  memory.unpark();
  CHECK(memory.numbers().reserved.current == 3 * chunk);
  CHECK(mapped(find<virtual_memory_resource>(memory)) == 3 * chunk);
  memory.deallocate(work, unused, chunk);
  memory.deallocate(work, large, 2 * chunk);
}

TEST_CASE("a pool whose old views cannot be taken away is not parked") {
  watched_world const world;
  auto pages = make(five_chunks());
  refusing layer(pages);
  auto memory = make(share(layer) | moving);
  comb c(memory);
  void* const large = memory.allocate(c.work, 3 * chunk);
  fill(c.work, large, 3 * chunk, 7);
  c.work.synchronize();
  layer.times = 1000;  // would it be asked without end
  CHECK_THROWS_WITH_AS(memory.park(drop_contents), doctest::Contains("unmapping moved chunks where they were"),
                       cuda_error);
  CHECK_FALSE(memory.is_parked());
  CHECK(layer.times > 900);
  layer.times = 0;
  memory.park(drop_contents);
  CHECK(memory.is_parked());
  CHECK(mapped(pages) == 0);
  memory.unpark();
  c.give(c.work, large, 3 * chunk);
}

TEST_CASE("a pool is parked though the driver tells of earlier work once, when old views are taken away") {
  watched_world const world;
  auto pages = make(five_chunks());
  refusing layer(pages);
  auto memory = make(share(layer) | moving);
  comb c(memory);
  void* const large = memory.allocate(c.work, 3 * chunk);
  layer.times = 2;  // there are two pieces
  memory.park(drop_contents);
  CHECK(layer.times == 0);
  CHECK(mapped(pages) == 0);
  memory.unpark();
  c.give(c.work, large, 3 * chunk);
}

TEST_CASE("a pool that ends waits for the work that uses what it moved where it was") {
  watched_world const world;
  stream const work;
  auto pages = make(five_chunks());
  {
    auto memory = make(share(pages) | moving);
    comb c(memory);
    c.give(c.work, memory.allocate(c.work, 3 * chunk), 3 * chunk);
  }
  CHECK(mapped(pages) == 0);
}

TEST_CASE("a pool ends where the driver took away a part of what was moved before it refused everything") {
  watched_world const world;
  static int misused = 0;
  misused = 0;
  misuse_handler const before = set_misuse_handler([](char const*) noexcept { ++misused; });
  for (std::uint64_t k = 1; k <= 12; ++k) {
    auto pages = make(five_chunks());
    {
      auto memory = make(share(pages) | moving);
      comb c(memory);
      void* const large = memory.allocate(c.work, 3 * chunk);  // shows two pieces that lie apart
      c.work.synchronize();
      memory.deallocate(host_order, large, 3 * chunk);
      sim::fail_from(k, cudaErrorLaunchFailure);
      memory.trim();
      sim::clear_failure();
      for (int i : {1, 3}) memory.deallocate(host_order, std::exchange(c.blocks[i], nullptr), chunk);
      sim::fail_from(1, cudaErrorLaunchFailure);
    }
    sim::clear_failure();
    CAPTURE(k);
    CHECK(misused == 0);
  }
  set_misuse_handler(before);
}

TEST_CASE("a capture moves nothing that is pending") {
  watched_world const world;
  auto memory = make(five_chunks() | moving);
  comb c(memory);
  begin_capture(c.work);
  CHECK_THROWS_AS(static_cast<void>(memory.allocate(c.work, 3 * chunk)), out_of_memory);
  captured_graph const graph(c.work);
}
