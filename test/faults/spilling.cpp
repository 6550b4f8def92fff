// Every CUDA call that a stack with `spill` makes fails once: contents stay, the same request succeeds when it is made
// again, and nothing is lost. From every call on all fail: all ends, and the next stack works.
#include <weir/core/error.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <new>
#include <optional>

#include "support/captures.hpp"
#include "support/spilling.hpp"
#include "support/streams_at_work.hpp"

using namespace weir;
using namespace weir::test;

namespace {

using byte_handle = spillable<unsigned char>;

enum class fault { none, unknown, out_of_memory, sticky };

/// Makes the stack's calls, of which one fails, or all from one on.
class caller {
 public:
  caller(fault kind, std::uint64_t k) : kind_(kind), left_(k) {}

  /// False if it failed, and, unless everything does from now on, again.
  template <class Action>
  bool operator()(Action action) {
    if (try_to(action)) return true;
    if (!was_hit()) return false;
    return !all_fail() && try_to(action);
  }
  bool was_hit() const { return kind_ != fault::none && left_ == 0; }
  bool all_fail() const { return kind_ == fault::sticky && was_hit(); }

 private:
  template <class Action>
  bool try_to(Action action) {
    std::uint64_t const before = sim::calls();
    if (kind_ == fault::sticky && left_ != 0) sim::fail_from(left_, cudaErrorIllegalAddress);
    if (kind_ == fault::unknown && left_ != 0) sim::fail_call(left_, cudaErrorUnknown);
    if (kind_ == fault::out_of_memory && left_ != 0) sim::fail_call(left_, cudaErrorMemoryAllocation);
    bool worked = true;
    try {
      action();
    } catch (std::bad_alloc const&) {
      worked = false;
    } catch (cuda_error const&) {
      worked = false;
    }
    std::uint64_t const made = sim::calls() - before;
    left_ = made < left_ ? left_ - made : 0;
    if (!all_fail()) {
      sim::clear_failure();
      CHECK(cudaPeekAtLastError() == cudaSuccess);
    }
    return worked;
  }

  fault kind_;
  std::uint64_t left_;
};

/// Three handles of 32 KiB in 80 KiB, filled, looked at on two streams, dropped. Says how many looks were queued.
template <class Memory>
int use_handles(Memory& memory, caller& call, queued_checks& checks, stream const& a, stream const& b) {
  int looks = 0;
  std::list<byte_handle> handles;
  bool const is_complete = [&] {
    for (unsigned char value = 1; value <= 3; ++value) {
      if (!call([&] { handles.emplace_back(memory, a, 32_KiB); })) return false;
      std::optional<spill_pin<unsigned char>> p;
      if (!call([&] { p.emplace(handles.back().pin(a)); })) return false;
      if (!call.all_fail()) fill(a, p->data(), p->size(), value);
      call([&] { p.reset(); });
    }
    for (stream_ref const s : {stream_ref(a), stream_ref(b)}) {
      unsigned char value = 1;
      for (auto& x : handles) {
        std::optional<spill_pin<unsigned char>> p;
        if (!call([&] { p.emplace(x.pin(s)); })) return false;
        if (!call.all_fail()) {
          checks.expect(s, p->data(), p->size(), value);
          ++looks;
        }
        ++value;
        call([&] { p.reset(); });
      }
    }
    return true;
  }();
  CHECK((is_complete || call.all_fail()));
  while (!handles.empty()) call([&] { handles.pop_front(); });
  return looks;
}

/// Whether there was such a call.
bool run(fault kind, std::uint64_t k, sim::mode mode) {
  CAPTURE(static_cast<int>(kind));
  CAPTURE(k);
  watched_world const world(mode);
  caller call(kind, k);
  queued_checks checks;
  int looks = 0;
  {
    auto host = make(host_stack());
    auto memory = make(spilling_stack(host, 80_KiB));
    stream const a, b;
    looks = use_handles(memory, call, checks, a, b);
    CHECK(memory.numbers().handles == 0);
    CHECK(memory.numbers().pinned == 0);
    if (!call.all_fail()) {
      void* const all = memory.allocate(host_order, 80_KiB);  // nothing is kept
      memory.deallocate(host_order, all, 80_KiB);
      CHECK(memory.numbers().device_bytes == 0);
    }
  }
  if (call.all_fail()) {
    sim::reset();
    sim::check_order(true);
    caller no_fault(fault::none, 0);
    auto host = make(host_stack());
    auto memory = make(spilling_stack(host, 80_KiB));
    stream const a, b;
    queued_checks again;
    CHECK(use_handles(memory, no_fault, again, a, b) == 6);
    sim::run_all();
    CHECK(again.wrong() == 0);
    return true;
  }
  sim::run_all();
  CHECK(looks == 6);
  CHECK(checks.done() == looks);
  CHECK(checks.wrong() == 0);
  CHECK(sim::live_allocations() == 0);
  return call.was_hit();
}

void each_call_fails(fault kind) {
  for (sim::mode const mode : {sim::mode::immediate, sim::mode::lazy}) {
    std::uint64_t k = 1;
    while (run(kind, k, mode)) ++k;
    CHECK(k > 20);
  }
}

}  // namespace

TEST_CASE("a call that fails for no known reason") { each_call_fails(fault::unknown); }

TEST_CASE("a call that is out of memory") { each_call_fails(fault::out_of_memory); }

TEST_CASE("from some call on all fail") { each_call_fails(fault::sticky); }
