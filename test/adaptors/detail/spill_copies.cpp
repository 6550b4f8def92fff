#include <weir/adaptors/detail/spill_copies.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <cstddef>

#include "support/captures.hpp"
#include "support/spilling.hpp"
#include "support/streams_at_work.hpp"

using namespace weir;
using namespace weir::test;
using detail::spill_block, detail::spill_copies;

namespace {

auto device_stack() { return device{} | pool{.initial_bytes = 1_MiB, .max_bytes = 1_MiB} | checked{"device"}; }

/// What a use by a program would leave behind.
void use(spill_copies& copies, spill_block& b, stream_ref stream, unsigned char value) {
  detail::hold_back(stream, b.uses);
  fill(stream, b.on_device, b.bytes, value);
  detail::stream_marks mark = copies.marks().take();
  REQUIRE(detail::set_mark(mark.front(), stream, 0));
  b.uses.splice(b.uses.end(), mark);
}

}  // namespace

TEST_CASE("a block goes to the host behind its last use, and comes back on another stream") {
  for (sim::mode const mode : every_sim_mode) {
    watched_world const world(mode);
    queued_checks checks;
    {
      auto memory = make(device_stack());
      auto host = make(host_stack());
      spill_copies copies(memory, host, 0);
      stream const a, b, c;
      spill_block block(512_KiB, 256);
      copies.allocate(block, a);
      use(copies, block, b, 5);
      CHECK(copies.copy_out(block));
      CHECK(block.on_device == nullptr);
      CHECK(block.on_host != nullptr);
      void* const others = memory.allocate(a, 1_MiB);
      fill(a, others, 1_MiB, 9);
      memory.deallocate(a, others, 1_MiB);
      copies.copy_in(block, c);
      CHECK(block.on_host == nullptr);
      checks.expect(c, block.on_device, block.bytes, 5);
      use(copies, block, c, 6);
      copies.free(block);
    }
    sim::run_all();
    CHECK(checks.done() == 1);
    CHECK(checks.wrong() == 0);
    CHECK(sim::live_allocations() == 0);
  }
}

TEST_CASE("a block that is on the host is freed there, behind the copy") {
  watched_world const world(sim::mode::lazy);
  auto memory = make(device_stack());
  auto host = make(host_stack());
  spill_copies copies(memory, host, 0);
  stream const a;
  spill_block block(512_KiB, 256);
  copies.allocate(block, a);
  use(copies, block, a, 5);
  CHECK(copies.copy_out(block));
  copies.free(block);
  void* const p = host.allocate(a, 512_KiB);
  fill(a, p, 512_KiB, 1);
  host.deallocate(a, p, 512_KiB);
}

TEST_CASE("any call that fails leaves the block where it was, or moves it; its contents stay") {
  for (std::uint64_t k = 1;; ++k) {
    CAPTURE(k);
    watched_world const world(sim::mode::lazy);
    auto memory = make(device_stack());
    auto host = make(host_stack());
    spill_copies copies(memory, host, 0);
    stream const a, b;
    queued_checks checks;
    spill_block block(512_KiB, 256);
    copies.allocate(block, a);
    use(copies, block, a, 5);
    sim::reset_counters();
    sim::fail_call(k, cudaErrorUnknown);
    bool const out = copies.copy_out(block);
    CHECK(out == (block.on_device == nullptr));
    CHECK(out == (block.on_host != nullptr));
    if (out) try {
        copies.copy_in(block, b);
      } catch (cuda_error const&) {
        CHECK(block.on_device == nullptr);
        sim::clear_failure();
        copies.copy_in(block, b);
      }
    bool const all_worked = sim::calls() < k;
    sim::clear_failure();
    detail::hold_back(b, block.uses);
    checks.expect(b, block.on_device, block.bytes, 5);
    use(copies, block, b, 6);
    copies.free(block);
    b.synchronize();
    CHECK(checks.done() == 1);
    CHECK(checks.wrong() == 0);
    CHECK_FALSE(block.kept);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    if (all_worked) break;
    REQUIRE(k < 100);
  }
}

TEST_CASE("a block of which nobody knows when its work is done is kept") {
  watched_world const world(sim::mode::lazy);
  auto memory = make(device_stack());
  auto host = make(host_stack());
  spill_copies copies(memory, host, 0);
  stream const a;
  spill_block block(512_KiB, 256);
  copies.allocate(block, a);
  for (char const* const call : {"cudaEventRecord", "cudaStreamSynchronize", "cudaDeviceSynchronize"})
    sim::fail_call(call, 1, cudaErrorUnknown);
  CHECK_FALSE(copies.copy_out(block));
  CHECK(block.kept);
  CHECK(block.on_device != nullptr);
  copies.free(block);
  sim::clear_failure();
  CHECK_THROWS_AS(memory.allocate(a, 1_MiB), out_of_memory);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);  // before the stacks end
}

TEST_CASE("where a stream cannot be made to wait, a free waits on the host") {
  watched_world const world(sim::mode::lazy);
  auto memory = make(device_stack());
  auto host = make(host_stack());
  spill_copies copies(memory, host, 0);
  stream const a, b;
  spill_block block(1_MiB, 256);
  copies.allocate(block, a);
  use(copies, block, b, 5);
  sim::fail_call("cudaStreamWaitEvent", 1, cudaErrorUnknown);
  copies.free(block);
  void* const p = memory.allocate(host_order, 1_MiB);
  memory.deallocate(host_order, p, 1_MiB);
}
