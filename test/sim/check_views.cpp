// The check of order and virtual memory: unmapping is a free by the host, and two views of one memory are the same
// memory.

#include "driver.hpp"
#include "support.hpp"

#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>

#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>

#include <sys/mman.h>

using namespace sim_test;
using sim::access;
using sim::order_problem;

namespace {

bool has(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

std::string hex(CUdeviceptr p) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", p);
  return text;
}

/// `after` comes after all that `before` has now.
void order(cudaStream_t before, cudaStream_t after) {
  cudaEvent_t const e = make_event();
  ok(cudaEventRecord(e, before));
  ok(cudaStreamWaitEvent(after, e, 0));
  ok(cudaEventDestroy(e));
}

/// Two streams, and one physical memory with two views, at `one` and at `other`.
struct two_views : fresh {
  driver cu;
  cudaStream_t a = make_stream(), b = make_stream();
  CUdeviceptr const base = cu.reserve(32 * MiB), one = base, other = base + 16 * MiB;
  CUmemGenericAllocationHandle memory = 0;

  two_views() {
    sim::check_order(true);
    memory = cu.create(4 * MiB);
    map(one, memory, 4 * MiB);
    map(other, memory, 4 * MiB);
  }

  void map(CUdeviceptr at, CUmemGenericAllocationHandle what, std::size_t bytes = chunk) const {
    ok(cu.map(at, bytes, 0, what, 0));
    cu.open(at, bytes);
  }

  static void write(cudaStream_t s, CUdeviceptr p, std::size_t bytes = MiB) {
    sim::touch(s, pointer(p), bytes, access::write);
  }
  static void read(cudaStream_t s, CUdeviceptr p, std::size_t bytes = MiB) {
    sim::touch(s, pointer(p), bytes, access::read);
  }

  /// The only violation so far, which then is forgotten.
  static sim::order_report the_report() {
    auto const all = sim::reports();
    for (std::size_t i = 1; i < all.size(); ++i) MESSAGE(all[i].text);
    REQUIRE_EQ(all.size(), 1);
    sim::clear_reports();
    return all.front();
  }
};

}  // namespace

TEST_CASE_FIXTURE(two_views, "a view is unmapped when the host comes after its uses") {
  write(a, one);
  SUBCASE("not before") {
    ok(cu.unmap(one, 4 * MiB));
    auto const report = the_report();
    CHECK_EQ(report.kind, order_problem::free_not_after_use);
    CHECK(has(report.text, hex(one)));
    CHECK(has(report.text, "sim::touch"));
    CHECK(has(report.text, "is unmapped by the host's cuMemUnmap"));
    CHECK(has(report.text, "stream " + std::to_string(id_of(a))));
  }
  SUBCASE("nor after another stream's") {
    ok(cudaStreamSynchronize(b));
    ok(cu.unmap(one, 4 * MiB));
    CHECK_EQ(the_report().kind, order_problem::free_not_after_use);
  }
  SUBCASE("after a synchronise") {
    ok(cudaStreamSynchronize(a));
    ok(cu.unmap(one, 4 * MiB));
  }
  SUBCASE("and the uses of another view do not matter") { ok(cu.unmap(other, 4 * MiB)); }
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(two_views, "an unmapping waits for nothing that is queued") {
  sim::set_mode(sim::mode::lazy);
  ok(cudaLaunchHostFunc(
      a, [](void*) {}, nullptr));
  write(a, one);
  ok(cu.unmap(one, 4 * MiB));
  CHECK_EQ(the_report().kind, order_problem::free_not_after_use);
  CHECK_EQ(cudaStreamQuery(a), cudaErrorNotReady);
}  // the write never runs: it would crash, as on a GPU

TEST_CASE_FIXTURE(two_views, "each of several views that are unmapped at once is looked at") {
  map(base + 4 * MiB, cu.create(chunk));
  write(a, base + 4 * MiB);
  ok(cu.unmap(base, 6 * MiB));
  CHECK(has(the_report().text, hex(base + 4 * MiB) + " of 2097152 B"));
}

TEST_CASE_FIXTURE(two_views, "what was unmapped cannot be used") {
  ok(cu.unmap(one, 4 * MiB));
  CHECK_THROWS_AS(write(a, one), std::invalid_argument);
  auto const report = the_report();
  CHECK_EQ(report.kind, order_problem::use_after_free);
  CHECK(has(report.text, "cuMemUnmap"));
  map(one, cu.create(chunk));
  write(a, one);
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(two_views, "where nothing was ever mapped is no memory of CUDA's") {
  CHECK_THROWS_AS(write(a, base + 8 * MiB), std::invalid_argument);
  auto const report = the_report();
  CHECK_EQ(report.kind, order_problem::out_of_bounds);
  CHECK(has(report.text, "where nothing is mapped"));
  CHECK_THROWS_AS(write(a, one + 3 * MiB, 2 * MiB), std::invalid_argument);
  CHECK(has(the_report().text, "leaves it by 1048576 B"));
}

TEST_CASE_FIXTURE(two_views, "two views of one memory are used in order") {
  write(a, one);
  SUBCASE("or not") {
    write(b, other);
    auto const report = the_report();
    CHECK_EQ(report.kind, order_problem::unordered_views);
    CHECK(has(report.text, hex(one)));
    CHECK(has(report.text, hex(other)));
    CHECK(has(report.text, "stream " + std::to_string(id_of(a))));
    CHECK(has(report.text, "stream " + std::to_string(id_of(b))));
  }
  SUBCASE("or not, to read what was written") {
    read(b, other);
    CHECK_EQ(the_report().kind, order_problem::unordered_views);
  }
  SUBCASE("by an event") { order(a, b), write(b, other); }
  SUBCASE("by the host") { ok(cudaStreamSynchronize(a)), write(b, other); }
  SUBCASE("by being one stream's") { write(a, other); }
  SUBCASE("or in other parts") { write(b, other + MiB); }
  SUBCASE("or partly in other parts, which is not enough") {
    write(b, other + MiB - 1);
    CHECK_EQ(the_report().kind, order_problem::unordered_views);
  }
  SUBCASE("copies are uses too") {
    ok(cudaMemsetAsync(pointer(other), 0, 16, b));
    CHECK(has(the_report().text, "cudaMemsetAsync"));
  }
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(two_views, "two reads need no order, a write after them needs it to both") {
  write(a, one);
  order(a, b);
  read(a, one);
  read(b, other);
  CHECK_EQ(sim::report_count(), 0);
  write(b, other);
  CHECK_EQ(the_report().kind, order_problem::unordered_views);
}

TEST_CASE_FIXTURE(two_views, "uses through one view need no order, a use through another needs it to each of them") {
  write(a, one);
  write(b, one);  // halves, perhaps
  CHECK_EQ(sim::report_count(), 0);
  cudaStream_t const c = make_stream();
  order(b, c);
  write(c, other);  // comes after one of them
  CHECK(has(the_report().text, "on stream " + std::to_string(id_of(a))));
}

TEST_CASE_FIXTURE(two_views, "uses through a view count after it is unmapped, as its memory is still there") {
  write(a, one);
  write(b, one + MiB);
  ok(cudaStreamSynchronize(a));
  ok(cudaStreamSynchronize(b));
  ok(cu.unmap(one, 4 * MiB));
  write(b, other, 2 * MiB);
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(two_views, "a range may reach over several views, of which each is checked") {
  map(one + 4 * MiB, cu.create(chunk));
  write(a, one + 3 * MiB, 2 * MiB);
  CHECK_EQ(sim::report_count(), 0);
  write(b, other + 3 * MiB);
  CHECK_EQ(the_report().kind, order_problem::unordered_views);
  ok(cu.unmap(one + 4 * MiB, chunk));
  CHECK(has(the_report().text, "is unmapped"));
}

TEST_CASE("what was written belongs to the memory, not to the view") {
  two_views const world;
  sim::check_order(true, {.uninitialised = true});
  driver const& cu = world.cu;
  CUdeviceptr const p = world.base + 8 * MiB, q = p + 4 * MiB;
  auto const memory = cu.create(chunk);
  world.map(p, memory);
  world.map(q, memory);
  world.write(world.a, p);
  world.read(world.a, q);
  CHECK_EQ(sim::report_count(), 0);
  world.read(world.a, q + MiB);
  CHECK_EQ(world.the_report().kind, order_problem::uninitialised_read);
  world.map(world.base + 24 * MiB, world.memory, 4 * MiB);
  world.read(world.a, world.base + 24 * MiB);  // written before the check began, perhaps
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(two_views, "a handle that was released cannot be released again") {
  ok(cu.release(memory));
  CHECK_EQ(cu.release(memory), CUDA_ERROR_INVALID_VALUE);
  auto const report = the_report();
  CHECK_EQ(report.kind, order_problem::double_free);
  CHECK(has(report.text, hex(memory)));
  CHECK(has(report.text, "the host's cuMemRelease"));
}

TEST_CASE_FIXTURE(two_views, "a graph's uses are those of its launch") {
  ok(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
  write(a, one);
  cudaGraph_t graph = nullptr;
  ok(cudaStreamEndCapture(a, &graph));
  cudaGraphExec_t run = nullptr;
  ok(cudaGraphInstantiate(&run, graph, 0));
  write(b, other);
  CHECK_EQ(sim::report_count(), 0);
  ok(cudaGraphLaunch(run, a));
  auto const report = the_report();
  CHECK_EQ(report.kind, order_problem::unordered_views);
  CHECK(has(report.text, "a graph launched by"));
  ok(cu.unmap(one, 4 * MiB));
  CHECK(has(the_report().text, "cudaGraphLaunch"));
}

TEST_CASE_FIXTURE(two_views, "addresses that were freed may be anybody's") {
  CUdeviceptr const at = cu.reserve(chunk);
  map(at, cu.create(chunk));
  ok(cu.unmap(at, chunk));
  ok(cu.free(at, chunk));
  void* const host = mmap(pointer(at), chunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE_EQ(host, pointer(at));
  CHECK_EQ(cudaMemcpyAsync(pointer(one), host, 64, cudaMemcpyHostToDevice, a), cudaSuccess);
  CHECK_EQ(sim::report_count(), 0);
  munmap(host, chunk);
}

// ---- blocks cut from mapped memory

TEST_CASE_FIXTURE(two_views, "a block may reach over several views, but into no hole") {
  map(one + 4 * MiB, cu.create(chunk));
  sim::checked_blocks pool("the pool");
  pool.allocated(a, pointer(one + 3 * MiB), 2 * MiB, 256);
  write(a, one + 3 * MiB, 2 * MiB);
  CHECK_EQ(sim::report_count(), 0);
  pool.allocated(a, pointer(one + 5 * MiB), 2 * MiB, 256);
  CHECK_EQ(the_report().kind, order_problem::outside_memory);
  pool.allocated(a, pointer(one + 8 * MiB), MiB, 256);
  auto const report = the_report();
  CHECK_EQ(report.kind, order_problem::outside_memory);
  CHECK(has(report.text, "where nothing is mapped"));
}

TEST_CASE_FIXTURE(two_views, "a block is handed out over no live block, at whichever address that is") {
  sim::checked_blocks pool("the pool");
  pool.allocated(a, pointer(one + MiB), MiB, 256);
  pool.allocated(a, pointer(other), MiB, 256);
  CHECK_EQ(sim::report_count(), 0);
  pool.allocated(a, pointer(other + 2 * MiB - 256), 256, 256);
  auto const report = the_report();
  CHECK_EQ(report.kind, order_problem::overlap);
  CHECK(has(report.text, hex(one + MiB)));
}

TEST_CASE_FIXTURE(two_views, "an address at which the memory lies no more does not matter") {
  sim::checked_blocks pool("the pool");
  ok(cu.unmap(one, 4 * MiB));
  map(one, cu.create(chunk));
  pool.allocated(a, pointer(one), MiB, 256);
  pool.allocated(a, pointer(other), MiB, 256);
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(two_views, "a block is handed out after the last free of its memory, at whichever address") {
  sim::checked_blocks pool("the pool");
  pool.allocated(a, pointer(one), MiB, 256);
  write(a, one);
  pool.freed(a, pointer(one), MiB, 256);
  SUBCASE("in order") {
    order(a, b);
    pool.allocated(b, pointer(other), MiB, 256);
    write(b, other);
  }
  SUBCASE("or not") {
    pool.allocated(b, pointer(other), MiB, 256);
    CHECK_EQ(the_report().kind, order_problem::unordered_reuse);
  }
  SUBCASE("the old block is still freed") {
    pool.allocated(a, pointer(other), MiB, 256);
    read(a, one);
    CHECK_EQ(the_report().kind, order_problem::use_after_free);
  }
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(two_views, "a view is unmapped once the work on freed blocks in it is done") {
  sim::checked_blocks pool("the pool");
  pool.allocated(a, pointer(one), MiB, 256);
  pool.freed(a, pointer(one), MiB, 256);
  SUBCASE("which the host knows") { ok(cudaStreamSynchronize(a)), ok(cu.unmap(one, 4 * MiB)); }
  SUBCASE("or does not") {
    ok(cu.unmap(one, 4 * MiB));
    auto const report = the_report();
    CHECK_EQ(report.kind, order_problem::freed_under_pending_work);
    CHECK(has(report.text, "is unmapped by the host's cuMemUnmap"));
  }
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(two_views, "other memory may come under a live block while nobody uses it") {
  sim::checked_blocks pool("the pool");
  pool.allocated(a, pointer(one), MiB, 256);
  write(a, one);
  ok(cudaStreamSynchronize(a));
  ok(cu.unmap(one, 4 * MiB));
  CHECK_EQ(sim::report_count(), 0);
  CHECK_THROWS_AS(write(a, one), std::invalid_argument);
  CHECK_EQ(the_report().kind, order_problem::use_after_free);
  map(one, cu.create(chunk));
  write(a, one);
  pool.freed(a, pointer(one), MiB, 256);
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(two_views, "a block that was freed is forgotten where other memory comes") {
  sim::checked_blocks pool("the pool");
  pool.allocated(a, pointer(one), MiB, 256);
  write(a, one);
  pool.freed(a, pointer(one), MiB, 256);
  ok(cudaStreamSynchronize(a));
  write(b, one);
  CHECK_EQ(the_report().kind, order_problem::use_after_free);
  ok(cudaStreamSynchronize(b));
  ok(cu.unmap(one, 4 * MiB));
  map(one, cu.create(chunk));
  write(b, one);  // say whoever gives the memory zeroes it
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(two_views, "a graph's addresses may have other memory at its next launch") {
  ok(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
  write(a, one);
  cudaGraph_t graph = nullptr;
  ok(cudaStreamEndCapture(a, &graph));
  cudaGraphExec_t run = nullptr;
  ok(cudaGraphInstantiate(&run, graph, 0));
  ok(cudaGraphLaunch(run, a));
  ok(cudaStreamSynchronize(a));
  ok(cu.unmap(one, 4 * MiB));
  map(one, cu.create(chunk));
  ok(cudaGraphLaunch(run, a));
  CHECK_EQ(sim::report_count(), 0);
  ok(cu.unmap(one, chunk));
  CHECK(has(the_report().text, "cudaGraphLaunch"));  // it counts as a use of what lies there now
}
