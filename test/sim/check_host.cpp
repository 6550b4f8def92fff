// needs: tsan
// The check of order where the host takes part: threads that know different things, plain accesses, and reads of memory
// that nobody wrote.

#include "support.hpp"

#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>

#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

using namespace sim_test;
using sim::access;
using sim::order_problem;

namespace {

sim::order_report the_report() {
  auto const all = sim::reports();
  for (std::size_t i = 1; i < all.size(); ++i) MESSAGE(all[i].text);
  REQUIRE_EQ(all.size(), 1);
  sim::clear_reports();
  return all.front();
}

bool has(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

void in_thread(std::function<void()> const& work) { std::thread(work).join(); }

/// One device block that stream `a` wrote, and another stream.
struct two_streams : fresh {
  cudaStream_t a = make_stream(), b = make_stream();
  void* p = nullptr;
  int flag = 0;

  void check(sim::order_options options) {
    sim::check_order(true, options);
    ok(cudaMallocAsync(&p, 4096, a));
    sim::touch(a, p, 4096, access::write);
  }
  void use_on_b() { sim::touch(b, p, 4096, access::write); }
};

/// Pinned memory and what is queued on it.
struct pinned_memory : fresh {
  cudaStream_t a = make_stream(), b = make_stream();
  void* p = nullptr;
  pinned_memory() {
    sim::check_order(true);
    ok(cudaMallocHost(&p, 4096));
  }
  void host(sim::access what) { sim::host_access(p, 4096, what); }
};

constexpr sim::order_options per_thread{.host = sim::host_clocks::per_thread};

}  // namespace

TEST_CASE_FIXTURE(two_streams, "what one thread waited for is no news to another, unless each has its own clock") {
  sim::order_options options;
  bool reported = false;
  SUBCASE("one clock") {}
  SUBCASE("a clock each") { options = per_thread, reported = true; }
  check(options);
  ok(cudaStreamSynchronize(a));
  in_thread([&] { use_on_b(); });
  CHECK_EQ(sim::report_count(), reported);
  if (!reported) return;
  auto const report = the_report();
  CHECK_EQ(report.kind, order_problem::use_before_allocation);
  CHECK(has(report.text, "host thread 1 comes after it, but did not pass that on"));
}

TEST_CASE_FIXTURE(two_streams, "a thread comes after another by what that released and this acquired") {
  check(per_thread);
  SUBCASE("before the thread was created") {
    ok(cudaStreamSynchronize(a));
    sim::host_release(&flag);
    in_thread([&] { sim::host_acquire(&flag), use_on_b(); });
    CHECK_EQ(sim::report_count(), 0);
  }
  SUBCASE("after a join, by the thread that waited") {
    in_thread([&] { ok(cudaStreamSynchronize(a)), sim::host_release(&flag); });
    sim::host_acquire(&flag);
    use_on_b();
    CHECK_EQ(sim::report_count(), 0);
  }
  SUBCASE("over a third thread") {
    int other = 0;
    ok(cudaStreamSynchronize(a));
    sim::host_release(&flag);
    in_thread([&] { sim::host_acquire(&flag), sim::host_release(&other); });
    in_thread([&] { sim::host_acquire(&other), use_on_b(); });
    CHECK_EQ(sim::report_count(), 0);
  }
  SUBCASE("not by what was released too early") {
    sim::host_release(&flag);
    ok(cudaStreamSynchronize(a));
    in_thread([&] { sim::host_acquire(&flag), use_on_b(); });
    CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
  }
  SUBCASE("not by another place") {
    int other = 0;
    ok(cudaStreamSynchronize(a));
    sim::host_release(&flag);
    in_thread([&] { sim::host_acquire(&other), use_on_b(); });
    CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
  }
  SUBCASE("not by acquiring alone") {
    ok(cudaStreamSynchronize(a));
    in_thread([&] { sim::host_acquire(&flag), use_on_b(); });
    CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
  }
}

TEST_CASE_FIXTURE(two_streams, "with a clock each, an event still orders streams, whoever waits for it") {
  check(per_thread);
  cudaEvent_t const e = make_event();
  ok(cudaEventRecord(e, a));
  in_thread([&] {
    ok(cudaStreamWaitEvent(b, e, 0));
    use_on_b();
    ok(cudaStreamSynchronize(b));
    ok(cudaFree(p));
  });
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(two_streams, "with a clock each, memory for all is for those who come after its allocation") {
  sim::check_order(true, per_thread);
  ok(cudaMalloc(&p, 4096));
  SUBCASE("passed on") {
    sim::host_release(&flag);
    in_thread([&] { sim::host_acquire(&flag), use_on_b(); });
    CHECK_EQ(sim::report_count(), 0);
  }
  SUBCASE("not passed on") {
    in_thread([&] { use_on_b(); });
    CHECK(has(the_report().text, "was allocated by host thread 1's cudaMalloc (operation 1), "));
  }
  SUBCASE("not passed on by asking a stream, which is no work of that") {
    SUBCASE("one that did nothing yet") {}
    SUBCASE("a legacy stream") { b = cudaStreamLegacy; }
    SUBCASE("a legacy stream, after others have ended") {
      b = cudaStreamLegacy;
      cudaStream_t const gone = make_stream();
      ok(cudaMemsetAsync(p, 0, 4096, gone));
      ok(cudaStreamSynchronize(gone));
      ok(cudaStreamDestroy(gone));
    }
    ok(cudaStreamQuery(b));
    in_thread([&] { use_on_b(); });
    CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
  }
}

TEST_CASE_FIXTURE(fresh, "what a thread saw inside a stack, the stack knows in every thread, and its callers do not") {
  cudaStream_t const a = make_stream(), b = make_stream();
  int flag = 0;
  void* memory = nullptr;
  sim::check_order(true, per_thread);
  ok(cudaMalloc(&memory, 8192));
  sim::checked_blocks blocks("stack");
  sim::host_release(&flag);
  blocks.allocated(a, memory, 4096, 256);
  blocks.freed(a, memory, 4096, 256);
  auto* const other = static_cast<char*>(memory) + 4096;
  blocks.allocated(a, other, 4096, 256);
  {
    sim::checked_blocks::inside const own_work(blocks);
    ok(cudaStreamSynchronize(a));
  }
  in_thread([&] {
    sim::host_acquire(&flag);
    blocks.allocated(b, memory, 4096, 256);
    CHECK_EQ(sim::report_count(), 0);
    sim::touch(b, other, 4096, access::write);
    CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
  });
}

TEST_CASE_FIXTURE(fresh, "a block that a thread of the host freed may be handed out by every thread") {
  cudaStream_t const a = make_stream(), b = make_stream();
  int flag = 0;
  void* memory = nullptr;
  sim::check_order(true, per_thread);
  ok(cudaMalloc(&memory, 4096));
  sim::checked_blocks blocks("stack");
  sim::host_release(&flag);
  blocks.allocated(a, memory, 4096, 256);
  ok(cudaStreamSynchronize(a));
  blocks.freed_by_host(memory, 4096, 256);
  in_thread([&] {
    sim::host_acquire(&flag);
    blocks.allocated(b, memory, 4096, 256);
  });
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(fresh, "what a stack uses itself may be what it took, or saw done, in another thread") {
  cudaStream_t const a = make_stream();
  void* memory = nullptr;
  sim::check_order(true, per_thread);
  sim::checked_blocks blocks("stack");
  in_thread([&] {
    sim::checked_blocks::inside const own_work(blocks);
    ok(cudaMalloc(&memory, 4096));
  });
  {
    sim::checked_blocks::inside const own_work(blocks);
    ok(cudaMemsetAsync(memory, 0, 4096, a));
  }
  CHECK_EQ(sim::report_count(), 0);
  ok(cudaMemsetAsync(memory, 0, 4096, a));
  CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
}

TEST_CASE_FIXTURE(fresh, "a graph uses what its stack hands out, whichever thread the stack took memory in") {
  cudaStream_t const a = make_stream();
  void *memory = nullptr, *bare = nullptr;
  sim::check_order(true, per_thread);
  sim::checked_blocks blocks("stack");
  in_thread([&] {
    sim::checked_blocks::inside const own_work(blocks);
    ok(cudaMalloc(&memory, 4096));
  });
  in_thread([&] { ok(cudaMalloc(&bare, 4096)); });
  blocks.allocated(a, memory, 4096, 256);
  bool told = true;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ok(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
  sim::touch(a, memory, 4096, access::write);
  SUBCASE("a block") {}
  SUBCASE("and memory from elsewhere, of which nobody told") {
    sim::touch(a, bare, 4096, access::write);
    told = false;
  }
  ok(cudaStreamEndCapture(a, &graph));
  ok(cudaGraphInstantiate(&exec, graph, 0));
  ok(cudaGraphDestroy(graph));
  ok(cudaGraphLaunch(exec, a));
  if (told)
    CHECK_EQ(sim::report_count(), 0);
  else
    CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
  ok(cudaGraphExecDestroy(exec));
  blocks.freed(a, memory, 4096, 256);
}

TEST_CASE_FIXTURE(pinned_memory, "the host waits for writes before it reads, and for all uses before it writes") {
  SUBCASE("before anything is queued") { host(access::read), host(access::write); }
  SUBCASE("a read while it is written") {
    sim::touch(a, p, 4096, access::write);
    host(access::read);
    auto const report = the_report();
    CHECK_EQ(report.kind, order_problem::host_access_not_after_use);
    CHECK(has(report.text, "is still written by sim::touch (operation 2) on stream " + std::to_string(id_of(a))));
  }
  SUBCASE("a read while it is read") { sim::touch(a, p, 4096, access::read), host(access::read); }
  SUBCASE("a write while it is read") {
    sim::touch(a, p, 4096, access::read);
    host(access::write);
    CHECK(has(the_report().text, "is still read by sim::touch (operation 2) on stream " + std::to_string(id_of(a))));
  }
  SUBCASE("after a wait") {
    sim::touch(a, p, 4096, access::write);
    ok(cudaStreamSynchronize(a));
    host(access::write);
  }
  SUBCASE("after a wait for another stream") {
    sim::touch(a, p, 4096, access::write);
    ok(cudaStreamSynchronize(b));
    host(access::write);
    CHECK_EQ(the_report().kind, order_problem::host_access_not_after_use);
  }
  SUBCASE("a copy from it counts as a read, one to it as a write") {
    void* d = nullptr;
    ok(cudaMalloc(&d, 4096));
    ok(cudaMemcpyAsync(d, p, 4096, cudaMemcpyHostToDevice, a));
    host(access::read);
    CHECK_EQ(sim::report_count(), 0);
    host(access::write);
    CHECK_EQ(the_report().kind, order_problem::host_access_not_after_use);
    ok(cudaStreamSynchronize(a));
    ok(cudaMemcpyAsync(p, d, 4096, cudaMemcpyDeviceToHost, a));
    host(access::read);
    CHECK_EQ(the_report().kind, order_problem::host_access_not_after_use);
  }
  SUBCASE("what is queued after an access comes after it") {
    host(access::write);
    sim::touch(a, p, 4096, access::read);
  }
  SUBCASE("nothing is no access") { sim::host_access(p, 0, access::write); }
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(pinned_memory, "a host function's accesses have its place in the stream") {
  auto const write = [](void* at) { sim::host_access(at, 4096, access::write); };
  sim::set_mode(sim::mode::lazy);
  sim::touch(a, p, 4096, access::write);
  SUBCASE("in the stream") {
    ok(cudaLaunchHostFunc(a, write, p));
    sim::touch(a, p, 4096, access::read);
    ok(cudaStreamSynchronize(a));
    CHECK_EQ(sim::report_count(), 0);
    host(access::read);
  }
  SUBCASE("in the stream, seen after the memory went to others") {
    void* m = nullptr;
    ok(cudaMallocManaged(&m, 4096, cudaMemAttachGlobal));
    sim::checked_blocks blocks("cutter");
    blocks.allocated(a, m, 4096, 256);
    ok(cudaLaunchHostFunc(a, write, m));
    blocks.freed(a, m, 4096, 256);
    SUBCASE("freed") {}
    SUBCASE("handed out anew") { blocks.allocated(a, m, 4096, 256), sim::touch(a, m, 4096, access::write); }
    ok(cudaStreamSynchronize(a));
  }
  SUBCASE("in the stream, seen by the free that waits for it") {
    void* m = nullptr;
    ok(cudaMallocManaged(&m, 4096, cudaMemAttachGlobal));
    ok(cudaLaunchHostFunc(a, write, m));
    ok(cudaFree(m));
  }
  SUBCASE("in another stream") {
    ok(cudaLaunchHostFunc(b, write, p));
    ok(cudaStreamSynchronize(b));
    CHECK(has(the_report().text, "used by cudaLaunchHostFunc (operation 3) on stream " + std::to_string(id_of(b))));
  }
  SUBCASE("not waited for") {
    ok(cudaLaunchHostFunc(a, write, p));
    host(access::read);
    CHECK_EQ(the_report().kind, order_problem::host_access_not_after_use);
  }
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(fresh, "the host's accesses are checked in blocks too, and refused in device memory") {
  cudaStream_t const a = make_stream();
  void *device = nullptr, *managed = nullptr;
  sim::check_order(true);
  ok(cudaMalloc(&device, 64));
  CHECK_THROWS_AS(sim::host_access(device, 64, access::read), std::invalid_argument);
  ok(cudaMallocManaged(&managed, 4096, cudaMemAttachGlobal));
  sim::checked_blocks blocks("cutter");
  auto* const second = static_cast<char*>(managed) + 1024;
  blocks.allocated(a, managed, 1024, 256);
  blocks.allocated_for_all(second, 1024, 256);
  sim::touch(a, managed, 1024, access::write);
  sim::host_access(second, 1024, access::write);
  CHECK_EQ(sim::report_count(), 0);
  sim::host_access(second, 1025, access::write);
  CHECK_EQ(the_report().kind, order_problem::out_of_bounds);
  sim::host_access(managed, 1024, access::write);
  REQUIRE_EQ(sim::report_count(), 2);
  CHECK_EQ(sim::reports().front().kind, order_problem::use_before_allocation);
  CHECK_EQ(sim::reports().back().kind, order_problem::host_access_not_after_use);
}

TEST_CASE_FIXTURE(fresh, "reads of memory that nobody wrote are reported if asked for") {
  cudaStream_t const a = make_stream();
  void *p = nullptr, *q = nullptr;
  char here[4096] = {};
  bool asked = true;
  SUBCASE("asked") {}
  SUBCASE("not asked") { asked = false; }
  sim::check_order(true, {.uninitialised = asked});
  ok(cudaMallocAsync(&p, 4096, a));
  ok(cudaMallocAsync(&q, 4096, a));
  auto const reported = [&] {
    CHECK_EQ(sim::report_count(), asked);
    if (asked) CHECK_EQ(the_report().kind, order_problem::uninitialised_read);
  };
  sim::touch(a, p, 4096, access::read);
  reported();
  ok(cudaMallocAsync(&p, 4096, a));
  auto* const at = static_cast<char*>(p);
  ok(cudaMemsetAsync(at, 0, 1000, a));
  ok(cudaMemcpyAsync(at + 2000, here, 2096, cudaMemcpyHostToDevice, a));
  sim::touch(a, at, 1000, access::read);
  sim::touch(a, at + 2000, 2096, access::read);
  CHECK_EQ(sim::report_count(), 0);
  ok(cudaMemcpyAsync(q, at, 2001, cudaMemcpyDeviceToDevice, a));
  if (asked) CHECK(has(sim::reports().front().text, "wrote what lies 1000 B into the allocation"));
  reported();
  sim::touch(a, q, 2001, access::read);
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(fresh,
                  "a block is unwritten when it is handed out, whatever its memory held; the host's is not asked") {
  cudaStream_t const a = make_stream();
  void *p = nullptr, *pinned = nullptr;
  sim::check_order(true, {.uninitialised = true});
  ok(cudaMalloc(&p, 4096));
  ok(cudaMallocHost(&pinned, 4096));
  sim::checked_blocks blocks("cutter");
  for (int round = 0; round < 2; ++round) {
    blocks.allocated(a, p, 1024, 256);
    sim::touch(a, p, 1024, access::read);
    CHECK_EQ(the_report().kind, order_problem::uninitialised_read);
    sim::touch(a, p, 1024, access::write);
    sim::touch(a, p, 1024, access::read);
    blocks.freed(a, p, 1024, 256);
  }
  blocks.allocated(a, pinned, 1024, 256);
  sim::touch(a, pinned, 1024, access::read);
  sim::touch(a, static_cast<char*>(pinned) + 1024, 1024, access::read);
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(fresh, "rows that lie apart are written and read as rows") {
  cudaStream_t const a = make_stream();
  void *p = nullptr, *q = nullptr;
  sim::check_order(true, {.uninitialised = true});
  ok(cudaMalloc(&p, 4 * 64));
  ok(cudaMalloc(&q, 4 * 32));
  ok(cudaMemset2DAsync(p, 64, 0, 32, 4, a));
  ok(cudaMemcpy2DAsync(q, 32, p, 64, 32, 4, cudaMemcpyDeviceToDevice, a));
  sim::touch(a, q, 4 * 32, access::read);
  CHECK_EQ(sim::report_count(), 0);
  sim::touch(a, p, 64, access::read);
  CHECK_EQ(the_report().kind, order_problem::uninitialised_read);
}

TEST_CASE_FIXTURE(fresh, "a host function tells the host what it came after, if that is asked for") {
  bool asked = false;
  SUBCASE("asked") { asked = true; }
  SUBCASE("not asked") {}
  sim::check_order(true, {.host_functions_tell = asked});
  cudaStream_t const s = make_stream();
  void* p = nullptr;
  ok(cudaMallocHost(&p, 64));
  sim::touch(s, p, 64, access::write);
  ok(cudaLaunchHostFunc(
      s, [](void*) {}, nullptr));  // sets a flag, say, for which the host waits
  sim::host_access(p, 64, access::read);
  CHECK_EQ(sim::report_count(), asked ? 0 : 1);
  ok(cudaStreamSynchronize(s));
  ok(cudaFreeHost(p));
}

TEST_CASE_FIXTURE(fresh, "a host function tells every thread, and from when it begins") {
  sim::check_order(true, {.host = sim::host_clocks::per_thread, .host_functions_tell = true});
  sim::set_mode(sim::mode::threads);
  cudaStream_t const s = make_stream();
  struct {
    std::atomic<bool> thread_is_there{false}, is_done{false}, was_read{false};
    void* p = nullptr;
  } shared;
  ok(cudaMallocHost(&shared.p, 64));
  sim::host_release(&shared);
  bool is_known_before = false;
  SUBCASE("one that the check knows") { is_known_before = true; }
  SUBCASE("one that it does not know yet") {}
  std::thread reader([&] {
    if (is_known_before) sim::host_acquire(&shared);
    shared.thread_is_there = true;
    while (!shared.is_done) std::this_thread::yield();
    sim::host_acquire(&shared);
    sim::host_access(shared.p, 64, access::read);
    shared.was_read = true;
  });
  while (!shared.thread_is_there) std::this_thread::yield();
  sim::touch(s, shared.p, 64, access::write);
  auto const tell = [](void* data) {
    auto& all = *static_cast<decltype(shared)*>(data);
    all.is_done = true;
    while (!all.was_read) std::this_thread::yield();
  };
  ok(cudaLaunchHostFunc(s, tell, &shared));
  reader.join();
  for (auto const& r : sim::reports()) MESSAGE(r.text);
  CHECK_EQ(sim::report_count(), 0);
  ok(cudaStreamSynchronize(s));
  ok(cudaFreeHost(shared.p));
}

TEST_CASE_FIXTURE(fresh, "what a skipped kernel would have written is reported when the host copies it") {
  sim::check_order(true, {.read_back = true});
  cudaStream_t const s = make_stream();
  char on_host[64] = {};
  void *written = nullptr, *unwritten = nullptr, *copy = nullptr;
  for (void** p : {&written, &unwritten, &copy}) ok(cudaMalloc(p, 64));
  ok(cudaMemcpyAsync(written, on_host, 64, cudaMemcpyHostToDevice, s));
  ok(cudaMemsetAsync(copy, 1, 64, s));
  ok(cudaMemcpyAsync(on_host, written, 64, cudaMemcpyDeviceToHost, s));
  ok(cudaStreamSynchronize(s));
  SUBCASE("itself") {
    ok(cudaMemcpyAsync(on_host, unwritten, 64, cudaMemcpyDeviceToHost, s));
    CHECK_EQ(the_report().kind, order_problem::uninitialised_read);
  }
  SUBCASE("or a copy of it, of the part that was copied") {
    auto* const middle = static_cast<char*>(copy) + 16;
    ok(cudaMemcpyAsync(middle, unwritten, 16, cudaMemcpyDeviceToDevice, s));
    ok(cudaMemcpyAsync(on_host, copy, 16, cudaMemcpyDeviceToHost, s));
    ok(cudaMemcpyAsync(on_host, middle + 16, 32, cudaMemcpyDeviceToHost, s));
    CHECK_EQ(sim::report_count(), 0);
    ok(cudaMemcpyAsync(on_host, middle + 15, 1, cudaMemcpyDeviceToHost, s));
    CHECK_EQ(the_report().kind, order_problem::uninitialised_read);
  }
  SUBCASE("but not where the copy is part of a capture, and did not run") {
    cudaGraph_t graph = nullptr;
    ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    ok(cudaMemcpyAsync(copy, unwritten, 64, cudaMemcpyDeviceToDevice, s));
    ok(cudaStreamEndCapture(s, &graph));
    ok(cudaGraphDestroy(graph));
    ok(cudaMemcpyAsync(on_host, copy, 64, cudaMemcpyDeviceToHost, s));
    CHECK_EQ(sim::report_count(), 0);
  }
  SUBCASE("or a copy of it within the memory of a graph") {
    cudaGraph_t graph = nullptr;
    void *own = nullptr, *own_copy = nullptr;
    ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    ok(cudaMallocAsync(&own, 64, s));
    ok(cudaMallocAsync(&own_copy, 64, s));
    ok(cudaMemsetAsync(own_copy, 1, 64, s));
    ok(cudaMemcpyAsync(own_copy, own, 64, cudaMemcpyDeviceToDevice, s));
    ok(cudaMemcpyAsync(on_host, own_copy, 64, cudaMemcpyDeviceToHost, s));
    ok(cudaStreamEndCapture(s, &graph));
    ok(cudaGraphDestroy(graph));
    CHECK_EQ(the_report().kind, order_problem::uninitialised_read);
  }
  SUBCASE("but not what is copied over it") {
    ok(cudaMemcpyAsync(copy, unwritten, 64, cudaMemcpyDeviceToDevice, s));
    ok(cudaMemcpyAsync(copy, written, 64, cudaMemcpyDeviceToDevice, s));
    ok(cudaMemcpyAsync(on_host, copy, 64, cudaMemcpyDeviceToHost, s));
    CHECK_EQ(sim::report_count(), 0);
  }
  ok(cudaStreamSynchronize(s));
  for (void* p : {written, unwritten, copy}) ok(cudaFree(p));
}
