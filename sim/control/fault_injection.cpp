#include "control/fault_injection.hpp"

#include "control/refuse.hpp"
#include "scheduler/schedule.hpp"

#include <weir/sim/sim.hpp>

#include <algorithm>
#include <array>
#include <mutex>
#include <string>

namespace weir::sim {
namespace detail {

std::atomic<bool> faults_are_set;
std::atomic<std::uint64_t> simulated_nanoseconds;

namespace {

struct failure {
  std::uint64_t calls_until = 0;  // 0: none to come
  cudaError_t code = cudaSuccess;

  /// Counts a call; whether it is the one.
  bool is_due() { return calls_until != 0 && --calls_until == 0; }
};

// Guarded by a mutex of its own: a call looks here before it waits for the state.
struct all_faults {
  std::mutex mutex;
  failure once, sticky;
  std::array<failure, call_count> by_name{};
  std::array<std::uint64_t, call_count> latency{};

  bool any() const {
    auto const to_come = [](failure const& f) { return f.calls_until != 0; };
    return to_come(once) || to_come(sticky) || std::any_of(by_name.begin(), by_name.end(), to_come) ||
           std::any_of(latency.begin(), latency.end(), [](std::uint64_t cost) { return cost != 0; });
  }
};

constinit all_faults faults{};

void look_for_faults() {
  faults_are_set.store(faults.any() || sticky_error() != cudaSuccess, std::memory_order_relaxed);
}

template <class Change>
void change_faults(Change change) {
  std::lock_guard const lock(faults.mutex);
  change();
  look_for_faults();
}

void refuse_zero(char const* who, std::uint64_t k) {
  if (k == 0) refuse(std::string(who) + ": the next call is number 1, there is no number 0");
}

// Success, or the code that the call must return; `begins_sticky` if all later ones must, too.
cudaError_t fault_of(call which, bool& begins_sticky) {
  std::lock_guard const lock(faults.mutex);
  simulated_nanoseconds.fetch_add(faults.latency[which.index()], std::memory_order_relaxed);
  failure& named = faults.by_name[which.index()];
  begins_sticky = faults.sticky.is_due();
  if (begins_sticky) sticky_code.store(faults.sticky.code, std::memory_order_relaxed);
  // Every failure to come counts every call, whichever of them it fails by.
  bool const once = faults.once.is_due();
  bool const by_name = named.is_due();
  if (once || by_name) look_for_faults();  // the last one may be over
  if (cudaError_t const sticky = sticky_error(); sticky != cudaSuccess) return sticky;
  return once ? faults.once.code : by_name ? named.code : cudaSuccess;
}

}  // namespace

cudaError_t inject_fault(call which) {
  bool begins_sticky = false;
  cudaError_t const code = fault_of(which, begins_sticky);
  if (begins_sticky) {
    in_call const own_work(this_thread());
    runtime& r = state();
    held_lock const held(r.mutex);
    abandon_work(r);
  }
  return code;
}

void forget_latencies() {
  change_faults([] { faults.latency = {}; });
}

std::size_t index_of(char const* who, char const* name) {
  std::size_t const index = call::find(name);
  if (index == call_count) refuse(std::string(who) + ": there is no call \"" + name + '"');
  return index;
}

}  // namespace detail

void fail_call(std::uint64_t k, cudaError_t code) {
  detail::refuse_zero("fail_call", k);
  detail::change_faults([&] { detail::faults.once = {k, code}; });
}

void fail_call(char const* name, std::uint64_t k, cudaError_t code) {
  std::size_t const index = detail::index_of("fail_call", name);
  detail::refuse_zero("fail_call", k);
  detail::change_faults([&] { detail::faults.by_name[index] = {k, code}; });
}

void fail_from(std::uint64_t k, cudaError_t code) {
  detail::refuse_zero("fail_from", k);
  detail::change_faults([&] { detail::faults.sticky = {k, code}; });
}

void clear_failure() {
  detail::change_faults([] {
    detail::faults.once = detail::faults.sticky = {};
    detail::faults.by_name = {};
    detail::sticky_code.store(cudaSuccess, std::memory_order_relaxed);
  });
}

void set_latency(char const* name, std::uint64_t nanoseconds) {
  std::size_t const index = detail::index_of("set_latency", name);
  detail::change_faults([&] { detail::faults.latency[index] = nanoseconds; });
}

void set_latency(std::uint64_t nanoseconds) {
  detail::change_faults([&] { detail::faults.latency.fill(nanoseconds); });
}

std::uint64_t simulated_time() { return detail::simulated_nanoseconds.load(std::memory_order_relaxed); }

}  // namespace weir::sim
