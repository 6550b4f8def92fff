// What tests plan for calls: that they fail, and what they cost.

#include "model/call.hpp"
#include "scheduler/schedule.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

namespace weir::sim {
namespace detail {

std::atomic<bool> calls_have_plans;
std::atomic<std::uint64_t> simulated_nanoseconds;

namespace {

struct failure {
  std::uint64_t calls_until = 0;  // 0: none to come
  cudaError_t code = cudaSuccess;

  /// Counts a call; whether it is the one.
  bool is_due() { return calls_until != 0 && --calls_until == 0; }
};

// Guarded by a mutex of its own: a call follows its plans before it waits for the state.
struct all_plans {
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

constinit all_plans plans{};
std::atomic<cudaError_t> sticky_now{cudaSuccess};

void look_for_plans() {
  calls_have_plans.store(plans.any() || sticky_error() != cudaSuccess, std::memory_order_relaxed);
}

template <class Change>
void change_plans(Change change) {
  std::lock_guard const lock(plans.mutex);
  change();
  look_for_plans();
}

void refuse_zero(char const* who, std::uint64_t k) {
  if (k == 0)
    throw std::invalid_argument(std::string("weir::sim::") + who + ": the next call is number 1, there is no number 0");
}

}  // namespace

cudaError_t sticky_error() { return sticky_now.load(std::memory_order_relaxed); }

namespace {

// Success, or the code that the call must return; `all_is_lost` if all later ones must, too.
cudaError_t planned(call which, bool& all_is_lost) {
  std::lock_guard const lock(plans.mutex);
  simulated_nanoseconds.fetch_add(plans.latency[which.index()], std::memory_order_relaxed);
  failure& named = plans.by_name[which.index()];
  all_is_lost = plans.sticky.is_due();
  if (all_is_lost) sticky_now.store(plans.sticky.code, std::memory_order_relaxed);
  // Every plan counts every call, whichever of them it fails by.
  bool const once = plans.once.is_due();
  bool const by_name = named.is_due();
  if (once || by_name) look_for_plans();  // the last one may be over
  if (cudaError_t const sticky = sticky_error(); sticky != cudaSuccess) return sticky;
  return once ? plans.once.code : by_name ? named.code : cudaSuccess;
}

}  // namespace

cudaError_t follow_plans(call which) {
  bool all_is_lost = false;
  cudaError_t const code = planned(which, all_is_lost);
  if (all_is_lost) {
    in_call const own_work(this_thread());
    runtime& r = state();
    held_lock const held(r.mutex);
    abandon_work(r);
  }
  return code;
}

void forget_latencies() {
  change_plans([] { plans.latency = {}; });
}

std::size_t index_of(char const* who, char const* name) {
  std::size_t const index = call::find(name);
  if (index == call_count)
    throw std::invalid_argument(std::string("weir::sim::") + who + ": there is no call \"" + name + '"');
  return index;
}

}  // namespace detail

void fail_call(std::uint64_t k, cudaError_t code) {
  detail::refuse_zero("fail_call", k);
  detail::change_plans([&] { detail::plans.once = {k, code}; });
}

void fail_call(char const* name, std::uint64_t k, cudaError_t code) {
  std::size_t const index = detail::index_of("fail_call", name);
  detail::refuse_zero("fail_call", k);
  detail::change_plans([&] { detail::plans.by_name[index] = {k, code}; });
}

void fail_from(std::uint64_t k, cudaError_t code) {
  detail::refuse_zero("fail_from", k);
  detail::change_plans([&] { detail::plans.sticky = {k, code}; });
}

void clear_failure() {
  detail::change_plans([] {
    detail::plans.once = detail::plans.sticky = {};
    detail::plans.by_name = {};
    detail::sticky_now.store(cudaSuccess, std::memory_order_relaxed);
  });
}

void set_latency(char const* name, std::uint64_t nanoseconds) {
  std::size_t const index = detail::index_of("set_latency", name);
  detail::change_plans([&] { detail::plans.latency[index] = nanoseconds; });
}

void set_latency(std::uint64_t nanoseconds) {
  detail::change_plans([&] { detail::plans.latency.fill(nanoseconds); });
}

}  // namespace weir::sim
