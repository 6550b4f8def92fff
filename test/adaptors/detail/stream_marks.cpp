#include <weir/adaptors/detail/stream_marks.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include "support/streams_at_work.hpp"

using namespace weir;
using namespace weir::test;
using detail::mark_cache, detail::stream_marks;

namespace {

struct memory_of_one_byte {
  memory_of_one_byte() { REQUIRE(cudaMalloc(&p, 1) == cudaSuccess); }
  ~memory_of_one_byte() { cudaFree(p); }
  void* p = nullptr;
};

}  // namespace

TEST_CASE("a stream that is held back runs after what was marked, and the host does not wait") {
  lazy_world const world;
  mark_cache cache(0);
  stream const a, b;
  memory_of_one_byte const memory;
  queued_checks checks;
  fill(a, memory.p, 1, 1);
  stream_marks marks = cache.take();
  CHECK(detail::set_mark(marks.front(), a, 0));
  detail::hold_back(b, marks);
  checks.expect(b, memory.p, 1, 1);
  CHECK(checks.done() == 0);
  b.synchronize();
  CHECK(checks.wrong() == 0);
}

TEST_CASE("a known stream is not held back by itself; one that may end is, as nobody knows it again") {
  fresh_world const world;
  mark_cache cache(0);
  stream const known;
  destroyable_stream const ends;
  stream_marks marks = cache.take();
  CHECK(detail::set_mark(marks.front(), known, 0));
  sim::reset_counters();
  detail::hold_back(known, marks);
  CHECK(sim::calls() == 0);
  CHECK(detail::set_mark(marks.front(), ends, 0));
  sim::reset_counters();
  detail::hold_back(ends, marks);
  CHECK(sim::calls("cudaStreamWaitEvent") == 1);
}

TEST_CASE("marks that were given back are taken again, and cost nothing") {
  fresh_world const world;
  mark_cache cache(1);
  stream_marks one = cache.take(), other = cache.take();
  CHECK(current_device() == 0);
  one.splice(one.end(), other);
  cache.give_back(one);
  CHECK(one.empty());
  sim::reset_counters();
  stream_marks const again = cache.take(), and_again = cache.take();
  CHECK(sim::calls() == 0);
}

TEST_CASE("where CUDA does not record, the host waits") {
  lazy_world const world;
  mark_cache cache(0);
  stream const a;
  memory_of_one_byte const memory;
  queued_checks checks;
  stream_marks marks = cache.take();
  checks.write(a, memory.p, 1, 1);
  checks.expect(a, memory.p, 1, 1);
  sim::fail_call("cudaEventRecord", 1, cudaErrorUnknown);
  CHECK(detail::set_mark(marks.front(), a, 0));
  CHECK(checks.done() == 1);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("where the host cannot wait either, it says so") {
  lazy_world const world;
  mark_cache cache(0);
  stream const a;
  stream_marks marks = cache.take();
  for (char const* const call : {"cudaEventRecord", "cudaStreamSynchronize", "cudaDeviceSynchronize"})
    sim::fail_call(call, 1, cudaErrorUnknown);
  CHECK_FALSE(detail::set_mark(marks.front(), a, 0));
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("the host waits for all marks") {
  lazy_world const world;
  mark_cache cache(0);
  stream const a, b;
  memory_of_one_byte const memory;
  queued_checks checks;
  checks.expect(a, memory.p, 0, 0);
  checks.expect(b, memory.p, 0, 0);
  stream_marks marks = cache.take();
  marks.splice(marks.end(), cache.take());
  CHECK(detail::set_mark(marks.front(), a, 0));
  CHECK(detail::set_mark(marks.back(), b, 0));
  CHECK(detail::wait_for(marks));
  CHECK(checks.done() == 2);
  sim::fail_call("cudaEventSynchronize", 2, cudaErrorUnknown);
  CHECK_FALSE(detail::wait_for(marks));
}
