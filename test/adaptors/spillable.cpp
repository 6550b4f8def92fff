// needs: tsan
#include <weir/adaptors/spillable.hpp>
#include <weir/core/error.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/host.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/captures.hpp"
#include "support/spilling.hpp"
#include "support/streams_at_work.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

using bytes_handle = spillable<unsigned char>;
static_assert(!std::is_copy_constructible_v<bytes_handle> && std::is_nothrow_move_constructible_v<bytes_handle>);
static_assert(!std::is_copy_constructible_v<spill_pin<float>> &&
              std::is_nothrow_move_constructible_v<spill_pin<float>>);

/// Queues a look at all elements, by a pin that ends at once.
void expect_pinned(queued_checks& checks, bytes_handle& x, stream_ref stream, unsigned char value) {
  auto const p = x.pin(stream);
  sim::touch(stream.get(), p.data(), p.size(), sim::access::read);
  checks.expect(stream, p.data(), p.size(), value);
}

/// Three handles of 2 MiB for a memory of 5 MiB, the first of them spilled.
template <class Memory>
std::list<bytes_handle> three_handles(Memory& memory, stream_ref stream) {
  std::list<bytes_handle> handles;
  for (unsigned char value = 1; value <= 3; ++value) {
    handles.emplace_back(memory, stream, 2_MiB);
    fill_pinned(handles.back(), stream, value);
  }
  return handles;
}

}  // namespace

TEST_CASE("contents survive the way to the host and back, in every mode") {
  for (sim::mode const mode : every_sim_mode) {
    CAPTURE(static_cast<int>(mode));
    watched_world const world(mode);
    queued_checks checks;
    {
      auto host = make(host_stack());
      auto memory = make(spilling_stack(host, 5_MiB));
      stream const a, b;
      auto handles = three_handles(memory, a);
      CHECK_FALSE(handles.front().is_on_device());
      for (int round = 0; round < 3; ++round) {
        unsigned char value = 1;
        for (auto& x : handles) expect_pinned(checks, x, round == 1 ? b : a, value++);
      }
      a.synchronize();
      b.synchronize();
      CHECK(memory.numbers().returns >= 6);
    }
    sim::run_all();
    CHECK(checks.done() == 9);
    CHECK(checks.wrong() == 0);
    CHECK(sim::live_allocations() == 0);
  }
}

// CUDA may read memory that is not page-locked when a copy from it is queued, and write it when a copy to it runs.
TEST_CASE("contents come back from host memory that is not page-locked") {
  watched_world const world(sim::mode::lazy);
  auto host = make(weir::host{} | pool{});
  auto memory = make(spilling_stack(host, 5_MiB));
  stream const a;
  queued_checks checks;
  auto handles = three_handles(memory, a);
  expect_pinned(checks, handles.front(), a, 1);
  a.synchronize();
  CHECK(checks.done() == 1);
  CHECK(checks.wrong() == 0);
}

TEST_CASE("a pin comes after all pins that ended before, on whatever stream") {
  watched_world const world(sim::mode::lazy);
  auto host = make(host_stack());
  auto memory = make(spilling_stack(host, 4_MiB));
  stream const a, b;
  destroyable_stream const c;
  queued_checks checks;
  bytes_handle x(memory, a, 1_MiB);
  fill_pinned(x, a, 1);
  expect_pinned(checks, x, b, 1);  // the check of order would report it too
  fill_pinned(x, c, 2);
  expect_pinned(checks, x, a, 2);
  a.synchronize();
  CHECK(checks.done() == 2);
  CHECK(checks.wrong() == 0);
}

TEST_CASE("pins overlap; what comes next waits for all of them") {
  for (sim::mode const mode : every_sim_mode) {
    watched_world const world(mode);
    auto host = make(host_stack());
    auto memory = make(spilling_stack(host, 3_MiB));
    stream const a, b;
    {
      bytes_handle x(memory, a, 2_MiB);
      fill_pinned(x, a, 7);
      {
        auto const first = x.pin(a);
        auto second = std::make_unique<spill_pin<unsigned char>>(x.pin(b));
        CHECK(second->data() == first.data());
        sim::touch(b.get(), second->data(), second->size(), sim::access::read);
        second.reset();
        sim::touch(a.get(), first.data(), first.size(), sim::access::read);
      }
      bytes_handle const y(memory, b, 2_MiB);  // spills x, behind the reads of both streams
      CHECK_FALSE(x.is_on_device());
    }
    sim::run_all();
  }
}

TEST_CASE("a pin that ends earlier does not stand for one that began before it and goes on") {
  watched_world const world(sim::mode::lazy);
  auto host = make(host_stack());
  auto memory = make(spilling_stack(host, 3_MiB));
  stream const a, b;
  bytes_handle x(memory, a, 2_MiB);
  {
    auto late = std::make_unique<spill_pin<unsigned char>>(x.pin(b));
    {
      auto const early = x.pin(a);
      sim::touch(a.get(), early.data(), early.size(), sim::access::write);
    }
    late.reset();  // b did not wait for what a did meanwhile
  }
  bytes_handle const y(memory, b, 2_MiB);
  CHECK_FALSE(x.is_on_device());
}

TEST_CASE("contents come back behind their copy to the host, wherever the memory for them comes from") {
  for (sim::mode const mode : every_sim_mode) {
    watched_world const world(mode);
    queued_checks checks;
    {
      auto host = make(host_stack());
      auto memory = make(spilling_stack(host, 4_MiB));
      stream const a, b;
      bytes_handle x(memory, a, 2_MiB);
      fill_pinned(x, a, 1);
      void* const p = memory.allocate(b, 2_MiB);
      void* const q = memory.allocate(a, 2_MiB);  // in place of x
      CHECK_FALSE(x.is_on_device());
      memory.deallocate(b, p, 2_MiB);
      expect_pinned(checks, x, b, 1);  // in place of p, which b need not wait for
      memory.deallocate(a, q, 2_MiB);
    }
    sim::run_all();
    CHECK(checks.done() == 1);
    CHECK(checks.wrong() == 0);
  }
}

TEST_CASE("neither spilling nor bringing back lets the host wait") {
  watched_world const world(sim::mode::lazy);
  auto host = make(host_stack());
  auto memory = make(spilling_stack(host, 5_MiB));
  stream const a, b;
  queued_checks checks;
  std::list<bytes_handle> handles;
  for (unsigned char value = 1; value <= 2; ++value) {
    handles.emplace_back(memory, a, 2_MiB);
    fill_pinned(handles.back(), a, value);
  }
  sim::reset_counters();
  handles.emplace_back(memory, b, 2_MiB);
  fill_pinned(handles.back(), b, 3);
  expect_pinned(checks, handles.front(), a, 1);
  CHECK(memory.numbers().spills == 2);
  CHECK(memory.numbers().returns == 1);
  for (char const* const wait : {"cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize"})
    CHECK(sim::calls(wait) == 0);
  CHECK(checks.done() == 0);  // nothing has run yet
  a.synchronize();
  CHECK(checks.wrong() == 0);
}

TEST_CASE("a pin of what is there costs one call on a persistent stream, and creates no event") {
  fresh_world const world;
  auto host = make(host_stack());
  auto memory = make(spilling_stack(host, 4_MiB));
  stream const a, b;
  bytes_handle x(memory, a, 1_MiB);
  fill_pinned(x, a, 1);
  fill_pinned(x, b, 1);
  sim::reset_counters();
  for (int i = 0; i < 10; ++i) static_cast<void>(x.pin(b));
  CHECK(sim::calls() == 10);
  CHECK(sim::calls("cudaEventRecord") == 10);
  for (int i = 0; i < 10; ++i) static_cast<void>(x.pin(i % 2 == 0 ? a : b));
  CHECK(sim::calls("cudaEventCreateWithFlags") == 0);
}

TEST_CASE("a handle is freed in stream order, on the device and on the host") {
  for (sim::mode const mode : every_sim_mode) {
    watched_world const world(mode);
    {
      auto host = make(host_stack());
      auto memory = make(spilling_stack(host, 5_MiB));
      stream const a;
      std::optional<destroyable_stream> ends(std::in_place);
      {
        auto handles = three_handles(memory, a);
        fill_pinned(handles.back(), cudaStreamLegacy, 1);
        fill_pinned(handles.back(), cudaStreamPerThread, 1);
        fill_pinned(handles.back(), *ends, 1);
        ends.reset();
        sim::reset_counters();
      }
      CHECK(sim::calls("cudaEventSynchronize") == 0);
      CHECK(memory.numbers().handles == 0);
      CHECK(memory.numbers().device_bytes == 0);
      CHECK(memory.numbers().host_bytes == 0);
      void* const all = memory.allocate(a, 5_MiB);  // joins what was freed elsewhere
      write(a, all, 5_MiB);
      memory.deallocate(a, all, 5_MiB);
    }
    sim::run_all();
    CHECK(sim::live_allocations() == 0);
  }
}

TEST_CASE("a handle that nobody pinned is freed where it was made") {
  watched_world const world(sim::mode::lazy);
  auto host = make(host_stack());
  auto memory = make(spilling_stack(host, 2_MiB));
  stream const a;
  { bytes_handle const x(memory, a, 2_MiB); }
  sim::reset_counters();
  { bytes_handle const x(memory, a, 2_MiB); }
  CHECK(sim::calls("cudaStreamWaitEvent") == 0);
}

TEST_CASE("no elements need no memory") {
  fresh_world const world;
  auto host = make(host_stack());
  auto memory = make(spilling_stack(host, 2_MiB));
  stream const a;
  spillable<float> x(memory, a, 0);
  auto const p = x.pin(a);
  CHECK(p.data() == nullptr);
  CHECK(p.size() == 0);
  CHECK(p.begin() == p.end());
  CHECK(memory.numbers().handles == 0);
}

TEST_CASE("too many elements to count are refused") {
  fresh_world const world;
  auto host = make(host_stack());
  auto memory = make(spilling_stack(host, 2_MiB));
  stream const a;
  CHECK_THROWS_AS(spillable<double>(memory, a, SIZE_MAX / 4), std::bad_array_new_length);
}

TEST_CASE("a handle moves; the one that was moved from is empty") {
  watched_world const world;
  auto host = make(host_stack());
  auto memory = make(spilling_stack(host, 4_MiB));
  stream const a;
  spillable<int> x(memory, a, 100), y(memory, a, 50);
  void* const at = x.pin(a).data();
  y = std::move(x);
  CHECK(x.size() == 0);  // NOLINT(bugprone-use-after-move)
  CHECK(y.size() == 100);
  CHECK(memory.numbers().handles == 1);
  auto p = y.pin(a);
  CHECK(p.data() == at);
  CHECK(p.end() - p.begin() == 100);
  auto const q = std::move(p);
  CHECK(q.data() == at);
  CHECK(p.data() == nullptr);  // NOLINT(bugprone-use-after-move)
  CHECK(memory.numbers().pinned == 1);
}

TEST_CASE("a handle works through handles to its memory, and on top of other layers") {
  watched_world const world;
  auto host = make(host_stack());
  auto memory = make(spilling_stack(host, 4_MiB));
  auto above = make(share(memory) | checked{"above"});
  stream const a;
  spillable<int> x(share(memory), a, 100), y(above, a, 100);
  CHECK(memory.numbers().handles == 2);
}

TEST_CASE("in host order nothing is made or pinned") {
  fresh_world const world;
  auto host = make(host_stack());
  auto memory = make(spilling_stack(host, 2_MiB));
  stream const a;
  CHECK(contains(message_of<std::invalid_argument>([&] { bytes_handle const x(memory, host_order, 10); }),
                 "made in host order"));
  bytes_handle x(memory, a, 10);
  CHECK(contains(message_of<std::invalid_argument>([&] { static_cast<void>(x.pin(host_order)); }),
                 "pinned in host order"));
}

TEST_CASE("a handle that ends while it is pinned is misuse, and keeps its memory") {
  fresh_world const world;
  caught_misuse const misuse;
  auto host = make(host_stack());
  auto memory = make(spilling_stack(host, 2_MiB));
  stream const a;
  std::optional<bytes_handle> x(std::in_place, memory, a, 1_MiB);
  {
    auto const p = x->pin(a);
    x.reset();
    CHECK(misuse.count() == 1);
    CHECK(contains(misuse.last(), "1.00 MiB ended while it was pinned"));
    write(a, p.data(), p.size());
  }
  CHECK(memory.numbers().device_bytes == 1_MiB);
}

TEST_CASE("a stack for another device than the current one spills there") {
  for (sim::mode const mode : {sim::mode::immediate, sim::mode::lazy}) {
    watched_world const world(mode);
    queued_checks checks;
    {
      auto host = make(host_stack());
      device_guard const other(1);
      auto memory = make(spilling_stack(host, 5_MiB));
      stream const a;
      {
        device_guard const back(0);
        auto handles = three_handles(memory, a);
        unsigned char value = 1;
        for (auto& x : handles) expect_pinned(checks, x, a, value++);
        CHECK(current_device() == 0);
      }
      a.synchronize();
    }
    CHECK(checks.done() == 3);
    CHECK(checks.wrong() == 0);
  }
}

// ---- captures

TEST_CASE("in a capture nothing is made or pinned, and the capture goes on") {
  for (auto const mode : all_capture_modes) {
    watched_world const world;
    auto host = make(host_stack());
    auto memory = make(spilling_stack(host, 5_MiB));
    stream const a;
    auto handles = three_handles(memory, a);
    capture_scope const declared;
    begin_capture(a, mode);
    for (auto& x : handles)
      CHECK(contains(message_of<std::logic_error>([&] { static_cast<void>(x.pin(a)); }), "being captured"));
    CHECK_THROWS_AS(bytes_handle(memory, a, 10), std::logic_error);
    captured_graph const graph(a);
    graph.launch(a);
  }
}

TEST_CASE("handles are spilled and brought back beside a capture, which goes on") {
  for (auto const mode : all_capture_modes) {
    watched_world const world(sim::mode::lazy);
    queued_checks checks;
    auto host = make(host_stack());
    auto memory = make(spilling_stack(host, 5_MiB));
    stream const a, captured;
    capture_scope const declared;
    begin_capture(captured, mode);
    auto handles = three_handles(memory, a);
    unsigned char value = 1;
    for (auto& x : handles) expect_pinned(checks, x, a, value++);
    handles.clear();
    captured_graph const graph(captured);
    a.synchronize();
    CHECK(checks.done() == 3);
    CHECK(checks.wrong() == 0);
  }
}

TEST_CASE("a graph uses what is pinned for as long as it may run") {
  watched_world const world(sim::mode::lazy);
  auto host = make(host_stack());
  auto memory = make(spilling_stack(host, 3_MiB));
  stream const a;
  bytes_handle x(memory, a, 2_MiB);
  {
    auto const p = x.pin(a);
    auto declared = std::make_unique<capture_scope>();
    begin_capture(a);
    write(a, p.data(), p.size());
    captured_graph const graph(a);
    declared.reset();
    CHECK_THROWS_AS(bytes_handle(memory, a, 2_MiB), out_of_memory);
    graph.launch(a);
  }
  bytes_handle const y(memory, a, 2_MiB);
  CHECK_FALSE(x.is_on_device());
}

TEST_CASE("a pin that ends in a capture is misuse; its memory stays, and the capture goes on") {
  watched_world const world;
  caught_misuse const misuse;
  auto host = make(host_stack());
  auto memory = make(spilling_stack(host, 3_MiB));
  stream const a, b;
  bytes_handle x(memory, a, 2_MiB);
  capture_scope const declared;
  {
    auto const p = x.pin(a);
    begin_capture(a);
    write(a, p.data(), p.size());
  }
  CHECK(misuse.count() == 1);
  CHECK(contains(misuse.last(), "2.00 MiB ended while its stream was being captured"));
  captured_graph const graph(a);
  CHECK_THROWS_AS(bytes_handle(memory, b, 2_MiB), out_of_memory);  // x is not spilled
  graph.launch(a);
}

// ---- threads

TEST_CASE("threads that want one spilled handle get it once, and each its order") {
  for (sim::mode const mode : {sim::mode::immediate, sim::mode::threads}) {
    watched_world const world(mode);
    auto host = make(host_stack());
    auto memory = make(spilling_stack(host, 5_MiB));
    stream const a;
    auto handles = three_handles(memory, a);
    auto const use_all = [&] {
      stream const own;
      for (int round = 0; round < 20; ++round)
        for (auto& x : handles) {
          auto const p = x.pin(own);
          sim::touch(own.get(), p.data(), p.size(), sim::access::read);
        }
      own.synchronize();
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) threads.emplace_back(use_all);  // two pins at once fit, of three handles
    for (auto& thread : threads) thread.join();
    CHECK(memory.numbers().pinned == 0);
    CHECK(memory.numbers().device_bytes + memory.numbers().host_bytes == 6_MiB);
  }
}
