// The check of order: every rule fires on a program that breaks it, and is silent on the nearest one that does not.

#include "support.hpp"

#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace sim_test;
using sim::access;
using sim::order_problem;

namespace {

struct checking : fresh {
  checking() { sim::check_order(true); }
};

/// The only violation so far, which then is forgotten.
sim::order_report the_report() {
  auto const all = sim::reports();
  for (std::size_t i = 1; i < all.size(); ++i) MESSAGE(all[i].text);
  REQUIRE_EQ(all.size(), 1);
  sim::clear_reports();
  return all.front();
}

bool has(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

void* take(cudaStream_t s, std::size_t bytes = 4096) {
  void* p = nullptr;
  ok(cudaMallocAsync(&p, bytes, s));
  return p;
}

/// `after` comes after all that `before` has now.
void order(cudaStream_t before, cudaStream_t after) {
  cudaEvent_t const e = make_event();
  ok(cudaEventRecord(e, before));
  ok(cudaStreamWaitEvent(after, e, 0));
  ok(cudaEventDestroy(e));
}

void write(cudaStream_t s, void* p, std::size_t bytes = 4096) { sim::touch(s, p, bytes, access::write); }

std::string stream_name(cudaStream_t s) { return "stream " + std::to_string(id_of(s)); }

}  // namespace

TEST_CASE_FIXTURE(fresh, "nothing is checked unless asked for, and no more after a reset") {
  cudaStream_t const a = make_stream(), b = make_stream();
  auto const wrong = [&] { write(b, take(a)); };
  wrong();
  CHECK_EQ(sim::report_count(), 0);
  sim::check_order(true);
  wrong();
  CHECK_EQ(sim::report_count(), 1);
  sim::reset();
  wrong();
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(checking, "a use on the stream of the allocation is in order") {
  cudaStream_t const a = make_stream();
  void* const p = take(a);
  write(a, p);
  ok(cudaMemsetAsync(p, 0, 4096, a));
  ok(cudaFreeAsync(p, a));
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(checking, "a use on another stream needs an event, a synchronise, or a query that says done") {
  cudaStream_t const a = make_stream(), b = make_stream();
  void* const p = take(a);
  SUBCASE("nothing") {
    write(b, p);
    auto const report = the_report();
    CHECK_EQ(report.kind, order_problem::use_before_allocation);
    CHECK(has(report.text, stream_name(a)));
    CHECK(has(report.text, stream_name(b)));
    CHECK(has(report.text, "no event was ever recorded"));
  }
  SUBCASE("an event") { order(a, b), write(b, p); }
  SUBCASE("a synchronise") { ok(cudaStreamSynchronize(a)), write(b, p); }
  SUBCASE("a synchronise of the device") { ok(cudaDeviceSynchronize()), write(b, p); }
  SUBCASE("a query") { ok(cudaStreamQuery(a)), write(b, p); }
  SUBCASE("a synchronise of the wrong stream") {
    ok(cudaStreamSynchronize(b)), write(b, p);
    CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
  }
  SUBCASE("an event that was recorded too early") {
    cudaEvent_t const e = make_event();
    ok(cudaEventRecord(e, a));
    void* const later = take(a);
    ok(cudaStreamWaitEvent(b, e, 0));
    write(b, later);
    CHECK(has(the_report().text, "is too early"));
  }
  SUBCASE("an event that nobody waited for") {
    ok(cudaEventRecord(make_event(), a));
    write(b, p);
    CHECK(has(the_report().text, "never waited for that"));
  }
  SUBCASE("an event that was never recorded") {
    ok(cudaStreamWaitEvent(b, make_event(), 0));
    ok(cudaEventSynchronize(make_event()));
    write(b, p);
    CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
  }
  SUBCASE("the wait comes before the record") {
    cudaEvent_t const e = make_event();
    ok(cudaStreamWaitEvent(b, e, 0));
    ok(cudaEventRecord(e, a));
    write(b, p);
    CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
  }
  SUBCASE("an event that is recorded anew after the wait") {
    cudaEvent_t const e = make_event();
    ok(cudaEventRecord(e, a));
    ok(cudaStreamWaitEvent(b, e, 0));
    ok(cudaEventRecord(e, b));
    write(b, p);
  }
  SUBCASE("over a third stream") {
    cudaStream_t const c = make_stream();
    order(a, c), order(c, b), write(b, p);
  }
  SUBCASE("over a third stream, in the wrong order") {
    cudaStream_t const c = make_stream();
    order(c, b), order(a, c), write(b, p);
    CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
  }
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(checking, "in lazy mode a query that says no gives no order") {
  sim::set_mode(sim::mode::lazy);
  cudaStream_t const a = make_stream(), b = make_stream();
  void* const p = take(a);
  cudaEvent_t const e = make_event();
  ok(cudaEventRecord(e, a));
  CHECK_EQ(cudaStreamQuery(a), cudaErrorNotReady);
  CHECK_EQ(cudaEventQuery(e), cudaErrorNotReady);
  write(b, p);
  CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
  sim::run_all();
  ok(cudaEventQuery(e));
  write(b, p);
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(checking, "the legacy stream comes after blocking streams, and they after it; others do not") {
  cudaStream_t const blocking = make_stream(cudaStreamDefault), free = make_stream(cudaStreamNonBlocking);
  SUBCASE("blocking, legacy") { write(cudaStreamLegacy, take(blocking)); }
  SUBCASE("legacy, blocking") { write(blocking, take(cudaStreamLegacy)); }
  SUBCASE("blocking, legacy's operation, blocking") {
    cudaStream_t const other = make_stream(cudaStreamDefault);
    void* const p = take(blocking);
    void* const q = take(cudaStreamLegacy);
    write(other, p), write(other, q);
  }
  SUBCASE("blocking, blocking") {
    write(make_stream(cudaStreamDefault), take(blocking));
    CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
  }
  SUBCASE("non-blocking, legacy") {
    write(cudaStreamLegacy, take(free));
    CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
  }
  SUBCASE("legacy, non-blocking") {
    write(free, take(cudaStreamLegacy));
    CHECK(has(the_report().text, "the legacy stream of device 0"));
  }
  SUBCASE("the per-thread stream is a blocking one") { write(cudaStreamLegacy, take(cudaStreamPerThread)); }
  SUBCASE("a synchronise with the legacy stream is one with every blocking stream") {
    void* const p = take(blocking);
    ok(cudaStreamSynchronize(cudaStreamLegacy));
    write(free, p);
  }
  SUBCASE("but not with others") {
    void* const p = take(free);
    ok(cudaStreamSynchronize(cudaStreamLegacy));
    write(blocking, p);
    CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
  }
  SUBCASE("a wait in the legacy stream is a barrier") {
    cudaStream_t const other = make_stream(cudaStreamNonBlocking);
    void* const p = take(other);
    cudaEvent_t const e = make_event();
    ok(cudaEventRecord(e, other));
    ok(cudaStreamWaitEvent(cudaStreamLegacy, e, 0));
    write(blocking, p);
  }
  SUBCASE("the legacy stream of another device is another stream") {
    void* const p = take(blocking);
    ok(cudaSetDevice(1));
    write(cudaStreamLegacy, p);
    CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
  }
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(checking,
                  "a destroyed stream's work is not forgotten, and its handle's next owner is another stream") {
  cudaStream_t const a = make_stream(), b = make_stream();
  void* const p = take(a);
  write(a, p);
  auto const old_name = stream_name(a);
  ok(cudaStreamDestroy(a));
  SUBCASE("the same handle") {
    cudaStream_t const again = make_stream();
    REQUIRE_EQ(again, a);
    write(again, p);
    CHECK(has(the_report().text, old_name));
  }
  SUBCASE("freed elsewhere") {
    ok(cudaFreeAsync(p, b));
    CHECK_EQ(the_report().kind, order_problem::free_not_after_use);
  }
  SUBCASE("the device was waited for") {
    ok(cudaDeviceSynchronize());
    write(make_stream(), p);
    ok(cudaDeviceSynchronize());
    ok(cudaFreeAsync(p, b));
  }
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(checking, "a free comes after every use") {
  cudaStream_t const a = make_stream(), b = make_stream();
  void* const p = take(a);
  order(a, b);
  write(b, p);
  SUBCASE("no edge back") {
    ok(cudaFreeAsync(p, a));
    auto const report = the_report();
    CHECK_EQ(report.kind, order_problem::free_not_after_use);
    CHECK(has(report.text, "used by sim::touch (operation 4) on " + stream_name(b)));
    CHECK(has(report.text, "freed by cudaFreeAsync (operation 5) on " + stream_name(a)));
  }
  SUBCASE("an event back") { order(b, a), ok(cudaFreeAsync(p, a)); }
  SUBCASE("on the user's stream") { ok(cudaFreeAsync(p, b)); }
  SUBCASE("another use after the event") {
    order(b, a), write(b, p), ok(cudaFreeAsync(p, a));
    CHECK_EQ(the_report().kind, order_problem::free_not_after_use);
  }
  SUBCASE("cudaFree trusts the caller") {
    ok(cudaFree(p));
    CHECK_EQ(the_report().kind, order_problem::free_not_after_use);
  }
  SUBCASE("a caller to be trusted") { ok(cudaStreamSynchronize(b)), ok(cudaFree(p)); }
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(checking, "cudaFree waits for work on what cudaMalloc gave, cudaFreeHost does not wait") {
  cudaStream_t const a = make_stream();
  void *device = nullptr, *host = nullptr;
  ok(cudaMalloc(&device, 64));
  ok(cudaHostAlloc(&host, 64, 0));
  ok(cudaMemcpyAsync(host, device, 64, cudaMemcpyDeviceToHost, a));
  ok(cudaFree(device));
  CHECK_EQ(sim::report_count(), 0);
  SUBCASE("at once") {
    ok(cudaFreeHost(host));
    CHECK_EQ(the_report().kind, order_problem::free_not_after_use);
  }
  SUBCASE("after a wait") {
    ok(cudaStreamSynchronize(a));
    ok(cudaFreeHost(host));
    CHECK_EQ(sim::report_count(), 0);
  }
}

TEST_CASE_FIXTURE(checking, "what cudaDeviceReset took back is used and freed no more") {
  void *p = nullptr, *q = nullptr;
  ok(cudaMalloc(&p, 4096));
  ok(cudaMallocHost(&q, 4096));
  sim::touch(nullptr, p, 4096, access::write);
  ok(cudaDeviceReset());
  CHECK_EQ(sim::report_count(), 0);
  for (void* const each : {p, q}) {
    CHECK_EQ(cudaMemset(each, 0, 4096), cudaErrorInvalidValue);
    CHECK_EQ(the_report().kind, order_problem::use_after_free);
  }
  CHECK_EQ(cudaFree(p), cudaErrorInvalidValue);
  CHECK_EQ(the_report().kind, order_problem::double_free);
}

TEST_CASE_FIXTURE(checking, "a copy that the host waits for orders what comes after it") {
  cudaStream_t const a = make_stream(cudaStreamDefault), b = make_stream();
  void* const p = take(a);
  int here = 0;
  SUBCASE("to the host") {
    ok(cudaMemcpy(&here, p, sizeof here, cudaMemcpyDeviceToHost));
    write(b, p);
    CHECK_EQ(sim::report_count(), 0);
  }
  SUBCASE("but an asynchronous one does not") {
    void* pinned = nullptr;
    ok(cudaHostAlloc(&pinned, 64, 0));
    ok(cudaMemcpyAsync(pinned, p, 64, cudaMemcpyDeviceToHost, a));
    write(b, p);
    CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
  }
}

TEST_CASE_FIXTURE(checking,
                  "a call made after the free was called may not use the memory, whatever the stream's order") {
  sim::set_mode(sim::mode::lazy);
  cudaStream_t const a = make_stream(), b = make_stream();
  void* const p = take(a);
  ok(cudaFreeAsync(p, a));
  CHECK_EQ(cudaMemsetAsync(p, 0, 16, b), cudaErrorInvalidValue);
  auto const report = the_report();
  CHECK_EQ(report.kind, order_problem::use_after_free);
  CHECK(has(report.text, "used by cudaMemsetAsync (operation 3) on " + stream_name(b)));
  CHECK(has(report.text, "freed by cudaFreeAsync (operation 2) on " + stream_name(a)));
  CHECK_THROWS(write(a, p));
  CHECK_EQ(the_report().kind, order_problem::use_after_free);
}

TEST_CASE_FIXTURE(checking, "a use after the free is one whatever the mode, and long after the free has executed") {
  cudaStream_t const a = make_stream(), b = make_stream();
  void* p = nullptr;
  SUBCASE("at once") {
    p = take(a);
    ok(cudaFreeAsync(p, a));
  }
  SUBCASE("lazily, and then waited for; the pool keeps none of it") {
    sim::set_mode(sim::mode::lazy);
    p = take(a);
    ok(cudaFreeAsync(p, a));
    ok(cudaDeviceSynchronize());
  }
  SUBCASE("by the host") {
    ok(cudaMalloc(&p, 4096));
    ok(cudaFree(p));
  }
  SUBCASE("pinned memory") {
    ok(cudaMallocHost(&p, 4096));
    ok(cudaFreeHost(p));
  }
  auto const reported = [&] {
    auto const report = the_report();
    CHECK_EQ(report.kind, order_problem::use_after_free);
    CHECK(has(report.text, "lies in memory that was freed by"));
  };
  int here = 0;
  CHECK_THROWS_AS(write(b, p), std::invalid_argument);
  reported();
  CHECK_EQ(cudaMemsetAsync(p, 0, 16, b), cudaErrorInvalidValue);
  reported();
  CHECK_EQ(cudaMemcpyAsync(&here, p, sizeof here, cudaMemcpyDeviceToHost, b), cudaErrorInvalidValue);
  reported();
  CHECK_EQ(cudaMemcpyAsync(p, &here, sizeof here, cudaMemcpyDefault, b), cudaErrorInvalidValue);
  reported();
  sim::host_access(static_cast<char*>(p) + 4095, 1, access::read);
  reported();
  static_cast<void>(cudaGetLastError());
}

TEST_CASE_FIXTURE(checking, "memory that the heap may hand out again is nobody's") {
  void *p = nullptr, *other = nullptr;
  bool many = false;
  SUBCASE("one of many blocks") { many = true; }
  SUBCASE("a block of more than is held back") {}
  ok(cudaMalloc(&p, many ? 64 : std::size_t{128} << 20));
  ok(cudaFree(p));
  if (many) {
    sim::host_access(p, 64, access::write);
    CHECK_EQ(the_report().kind, order_problem::use_after_free);
    for (int i = 0; i < 10'000; ++i) ok(cudaMalloc(&other, 64)), ok(cudaFree(other));
  }
  sim::host_access(p, 64, access::write);
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(checking, "a range stays inside its allocation") {
  cudaStream_t const a = make_stream();
  void* const p = take(a, 4096);
  write(a, static_cast<char*>(p) + 96, 4000);
  CHECK_EQ(sim::report_count(), 0);
  CHECK_THROWS(write(a, static_cast<char*>(p) + 97, 4000));
  auto const report = the_report();
  CHECK_EQ(report.kind, order_problem::out_of_bounds);
  CHECK(has(report.text, "leaves it by 1 B"));
}

TEST_CASE_FIXTURE(checking, "memory is freed once, by the pointer that was given") {
  cudaStream_t const a = make_stream();
  void* const p = take(a);
  CHECK_EQ(cudaFreeAsync(static_cast<char*>(p) + 256, a), cudaErrorInvalidValue);
  CHECK_EQ(the_report().kind, order_problem::foreign_free);
  ok(cudaFreeAsync(p, a));
  CHECK_EQ(sim::report_count(), 0);
  CHECK_EQ(cudaFreeAsync(p, a), cudaErrorInvalidValue);
  CHECK_EQ(the_report().kind, order_problem::double_free);
  int here = 0;
  CHECK_EQ(cudaFree(&here), cudaErrorInvalidValue);
  CHECK_EQ(the_report().kind, order_problem::foreign_free);
}

TEST_CASE_FIXTURE(checking, "of many frees the latest are remembered, wherever the memory lies") {
  std::vector<void*> all(11'000);
  for (void*& p : all) ok(cudaMalloc(&p, 64));
  std::sort(all.begin(), all.end(), std::greater<>());  // so that the latest free is that of the lowest address
  for (void* const p : all) ok(cudaFree(p));
  CHECK_EQ(cudaFree(all[all.size() - 2]), cudaErrorInvalidValue);
  CHECK_EQ(the_report().kind, order_problem::double_free);
  CHECK_EQ(cudaFree(all.front()), cudaErrorInvalidValue);
  CHECK_EQ(the_report().kind, order_problem::foreign_free);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE_FIXTURE(checking, "a thousand streams that end need few slots, and are still told apart") {
  void* last = nullptr;
  for (int i = 0; i < 1000; ++i) {
    cudaStream_t const s = make_stream();
    if (i % 10 == 0) ok(cudaDeviceSynchronize());
    if (last != nullptr && i % 10 == 0) write(s, last);
    last = take(s);
    ok(cudaStreamDestroy(s));
  }
  CHECK_EQ(sim::report_count(), 0);
  write(make_stream(), last);
  CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
}

TEST_CASE_FIXTURE(fresh, "calls that order nothing are warned of, if asked for") {
  bool asked = true;
  SUBCASE("asked") {}
  SUBCASE("not asked") { asked = false; }
  sim::check_order(true, {.warnings = asked});
  cudaStream_t const a = make_stream(), b = make_stream();
  cudaEvent_t const e = make_event();
  auto const warned = [&](order_problem kind, std::string const& text) {
    CHECK_EQ(sim::report_count(), asked);
    if (!asked) return;
    auto const report = the_report();
    CHECK_EQ(report.kind, kind);
    CHECK(has(report.text, text));
  };
  ok(cudaStreamWaitEvent(b, e, 0));
  warned(order_problem::wait_for_nothing, "was never recorded: cudaStreamWaitEvent (operation 1) on " + stream_name(b));
  ok(cudaEventSynchronize(e));
  warned(order_problem::wait_for_nothing, "the host's cudaEventSynchronize");
  ok(cudaEventQuery(e));
  warned(order_problem::wait_for_nothing, "the host's cudaEventQuery");

  void* const p = take(a);
  ok(cudaEventRecord(e, a));
  ok(cudaEventRecord(e, a));  // comes after the first record
  ok(cudaStreamWaitEvent(b, e, 0));
  ok(cudaEventRecord(e, b));  // somebody waited for the last one
  ok(cudaEventRecord(e, a));
  CHECK_EQ(sim::report_count(), asked);
  warned(order_problem::record_lost, "is recorded anew by cudaEventRecord (operation ");

  ok(cudaStreamWaitEvent(b, e, 0));  // adds nothing, but there is nothing newer
  CHECK_EQ(sim::report_count(), 0);
  write(a, p);
  ok(cudaStreamWaitEvent(b, e, 0));
  warned(order_problem::stale_wait, stream_name(a) + " has had more work since");
}

TEST_CASE_FIXTURE(fresh, "no warning takes a new stream for the one that recorded and is gone") {
  sim::check_order(true, {.warnings = true});
  cudaStream_t const a = make_stream(), c = make_stream();
  cudaEvent_t const e = make_event();
  void* const p = take(a);
  ok(cudaEventRecord(e, a));
  ok(cudaStreamSynchronize(a));
  ok(cudaStreamDestroy(a));
  write(make_stream(), p);
  ok(cudaStreamWaitEvent(c, e, 0));
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(checking, "a handler hears of a violation at once") {
  static std::string heard;
  heard.clear();
  sim::set_report_handler([](sim::order_report const& r) { heard = r.text; });
  cudaStream_t const a = make_stream(), b = make_stream();
  write(b, take(a));
  sim::set_report_handler(nullptr);
  CHECK_EQ(heard, the_report().text);
}

// ---- blocks that others hand out ------------------------------------------------------------------------------------

namespace {

/// Cuts blocks from one allocation, and lets each test say what it does with them.
struct cutting : checking {
  void* memory = nullptr;
  sim::checked_blocks blocks{"cutter"};
  cudaStream_t a = make_stream(), b = make_stream();
  cutting() { ok(cudaMalloc(&memory, 1 << 20)); }
  char* at(std::size_t offset) const { return static_cast<char*>(memory) + offset; }
  void take(cudaStream_t s, std::size_t offset, std::size_t bytes = 4096) {
    blocks.allocated(s, at(offset), bytes, 256);
  }
  void give(cudaStream_t s, std::size_t offset, std::size_t bytes = 4096) { blocks.freed(s, at(offset), bytes, 256); }
};

}  // namespace

TEST_CASE_FIXTURE(cutting, "a block is reused in order") {
  take(a, 0), write(a, memory), give(a, 0);
  SUBCASE("on the same stream") { take(a, 0); }
  SUBCASE("elsewhere, with an event") { order(a, b), take(b, 0); }
  SUBCASE("elsewhere, after a synchronise") { ok(cudaStreamSynchronize(a)), take(b, 0); }
  SUBCASE("elsewhere, without order") {
    take(b, 0);
    auto const report = the_report();
    CHECK_EQ(report.kind, order_problem::unordered_reuse);
    CHECK(has(report.text, "of cutter, handed out by checked_blocks::allocated (operation "));
    CHECK(has(report.text, "freed by checked_blocks::freed (operation "));
    CHECK(has(report.text, stream_name(b) + " knows " + stream_name(a) + " not at all"));
  }
  SUBCASE("by a block that is only partly the same") {
    take(b, 3840, 512);
    CHECK_EQ(the_report().kind, order_problem::unordered_reuse);
    take(b, 8192);
  }
  SUBCASE("for all, without order") {
    blocks.allocated_for_all(memory, 4096, 256);
    CHECK_EQ(the_report().kind, order_problem::unordered_reuse);
  }
  SUBCASE("by another owner, without order") {
    sim::checked_blocks other("other");
    other.allocated(b, memory, 4096, 256);
    CHECK_EQ(the_report().kind, order_problem::unordered_reuse);
    write(b, memory);
  }
  SUBCASE("freed after the work of two streams") {
    take(a, 8192), write(a, at(8192)), order(a, b), write(b, at(8192));
    blocks.freed_after({a, b}, at(8192), 4096, 256);
    CHECK_EQ(sim::report_count(), 0);
    take(a, 8192);
    CHECK_EQ(the_report().kind, order_problem::unordered_reuse);
    blocks.freed_after({a, b}, at(8192), 4096, 256);
    order(b, a), take(a, 8192);
  }
  SUBCASE("freed by the host, who waited") {
    take(a, 0), write(a, memory), ok(cudaStreamSynchronize(a));
    blocks.freed_by_host(memory, 4096, 256);
    take(b, 0);
  }
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(cutting, "an event that is recorded one use too early does not order the reuse") {
  take(a, 0);
  cudaEvent_t const e = make_event();
  ok(cudaEventRecord(e, a));
  write(a, memory);
  give(a, 0);
  ok(cudaStreamWaitEvent(b, e, 0));
  take(b, 0);
  CHECK(has(the_report().text, "is too early"));
}

TEST_CASE_FIXTURE(cutting, "a free in the legacy stream orders no blocking stream after what others did before") {
  cudaStream_t const c = make_stream(cudaStreamDefault), d = make_stream(cudaStreamDefault);
  take(c, 0), write(c, memory), give(cudaStreamLegacy, 0);
  CHECK_EQ(sim::report_count(), 0);
  SUBCASE("reuse in the legacy stream") { take(cudaStreamLegacy, 0); }
  SUBCASE("reuse by one that did not use it") {
    take(d, 0);
    CHECK_EQ(the_report().kind, order_problem::unordered_reuse);
  }
  SUBCASE("the same, after the legacy stream really had some work") {
    ok(cudaMemsetAsync(at(65536), 0, 16, cudaStreamLegacy));
    take(d, 0);
  }
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(cutting, "blocks do not overlap") {
  take(a, 0);
  take(a, 4096);
  CHECK_EQ(sim::report_count(), 0);
  take(a, 3840, 256);
  CHECK_EQ(the_report().kind, order_problem::overlap);
}

TEST_CASE_FIXTURE(cutting, "a block lies in one live allocation, which its stream comes after") {
  take(a, (1 << 20) - 4096);
  CHECK_EQ(sim::report_count(), 0);
  take(a, (1 << 20) - 256, 512);
  CHECK_EQ(sim::reports().front().kind, order_problem::overlap);
  CHECK_EQ(sim::reports().back().kind, order_problem::outside_memory);
  sim::clear_reports();
  void* p = nullptr;
  ok(cudaMallocAsync(&p, 4096, a));
  blocks.allocated(b, p, 256, 256);
  CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
}

TEST_CASE_FIXTURE(cutting, "a block is given back once, whole, and as it was handed out") {
  take(a, 0);
  SUBCASE("right") { give(a, 0); }
  SUBCASE("twice") {
    give(a, 0), give(a, 0);
    CHECK_EQ(the_report().kind, order_problem::double_free);
  }
  SUBCASE("another size") {
    give(a, 0, 4095);
    CHECK_EQ(the_report().kind, order_problem::wrong_size);
  }
  SUBCASE("another alignment") {
    blocks.freed(a, memory, 4096, 512);
    CHECK_EQ(the_report().kind, order_problem::wrong_size);
  }
  SUBCASE("a pointer into it") {
    give(a, 256);
    CHECK_EQ(the_report().kind, order_problem::foreign_free);
  }
  SUBCASE("a pointer from elsewhere") {
    give(a, 8192);
    CHECK_EQ(the_report().kind, order_problem::foreign_free);
  }
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(cutting, "a block that is freed on a stream that is gone is free, and its next owner is not blamed") {
  take(a, 0), write(a, memory);
  ok(cudaStreamDestroy(a));
  give(a, 0);
  auto const report = the_report();
  CHECK_EQ(report.kind, order_problem::free_on_no_stream);
  CHECK(has(report.text, "of cutter"));
  take(b, 0);
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(cutting, "a block is used inside its bounds, after its allocation and before its free") {
  take(a, 0);
  write(a, memory);
  CHECK_EQ(sim::report_count(), 0);
  write(a, memory, 4097);
  CHECK_EQ(the_report().kind, order_problem::out_of_bounds);
  write(b, memory);
  CHECK_EQ(the_report().kind, order_problem::use_before_allocation);
  give(a, 0);
  CHECK_EQ(the_report().kind, order_problem::free_not_after_use);
  write(a, memory);
  CHECK_EQ(the_report().kind, order_problem::use_after_free);
  {
    sim::checked_blocks::inside const own_work(blocks);
    write(a, memory);
  }
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(cutting, "memory goes back when no block cut from it is live or has work to come") {
  void* p = nullptr;
  ok(cudaMallocAsync(&p, 4096, a));
  blocks.allocated(a, p, 1024, 256);
  write(a, p, 1024);
  SUBCASE("live") {
    ok(cudaFreeAsync(p, a));
    CHECK_EQ(the_report().kind, order_problem::freed_under_live_block);
  }
  SUBCASE("freed on the same stream") {
    blocks.freed(a, p, 1024, 256);
    ok(cudaFreeAsync(p, a));
  }
  SUBCASE("freed on another one, never used there") {
    order(a, b);
    blocks.freed(b, p, 1024, 256);
    ok(cudaFreeAsync(p, a));
    CHECK_EQ(the_report().kind, order_problem::freed_under_pending_work);
  }
  SUBCASE("its owner is gone") {
    { sim::checked_blocks const other("other"); }
    blocks.freed(a, p, 1024, 256);
    ok(cudaFreeAsync(p, a));
    void* q = nullptr;
    ok(cudaMalloc(&q, 4096));  // may be the same address
    write(a, q);
  }
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(cutting, "blocks that others cut from blocks are checked with them") {
  sim::checked_blocks upper("upper");
  take(a, 0);
  upper.allocated(a, at(0), 1024, 256);
  write(a, at(0), 1024);
  SUBCASE("in order") {
    upper.freed(a, at(0), 1024, 256);
    give(a, 0);
  }
  SUBCASE("live") {
    give(a, 0);
    CHECK_EQ(the_report().kind, order_problem::freed_under_live_block);
  }
  SUBCASE("pending") {
    order(a, b);
    upper.freed(b, at(0), 1024, 256);
    give(a, 0);
    CHECK_EQ(the_report().kind, order_problem::freed_under_pending_work);
  }
  SUBCASE("of the same size, which the lower owner keeps when the upper has it back") {
    upper.freed(a, at(0), 1024, 256);
    upper.allocated(a, at(0), 4096, 256);
    upper.freed(a, at(0), 4096, 256);
    give(a, 0);
  }
  CHECK_EQ(sim::report_count(), 0);
}

TEST_CASE_FIXTURE(fresh, "blocks older than the check may be freed under it") {
  sim::checked_blocks blocks("old");
  void* p = nullptr;
  ok(cudaMalloc(&p, 4096));
  blocks.allocated(cudaStreamLegacy, p, 4096, 256);
  sim::check_order(true);
  blocks.freed(cudaStreamLegacy, p, 4096, 256);
  ok(cudaFree(p));
  CHECK_EQ(sim::report_count(), 0);
}
