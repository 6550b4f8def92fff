#include "scheduler/random.hpp"

#include "scheduler/schedule.hpp"

#include <algorithm>
#include <utility>

namespace weir::sim::detail {
namespace {

// SplitMix64: any seed is as good as any other.
std::uint64_t next_random(runtime& r) {
  std::uint64_t x = r.random_state += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// After so many questions about events, and no other call between them, a thread counts as waiting.
constexpr unsigned asked_often = 100;

bool gets_on(runtime& r, timeline const& t, host_functions theirs) {
  if (t.id == r.starved || !may_run(r, t)) return false;
  return theirs == host_functions::may_run || t.waiting.front().kind != operation_kind::host_function;
}

std::vector<timeline*> all_that_may_run(runtime& r, host_functions theirs) {
  std::vector<timeline*> ready;
  for (auto const& device : r.devices)
    for (timeline* t : device.timelines)
      if (gets_on(r, *t, theirs)) ready.push_back(t);
  return ready;
}

// ---- pct: drawn ranks are above those that the changes give

std::uint64_t draw_rank(runtime& r) { return next_random(r) | std::uint64_t{1} << 63; }

void draw_ranks(runtime& r) {
  ranks& by = r.by_rank;
  by.drawn = true;
  by.taken = 0;
  by.host = draw_rank(r);
  by.changes.clear();
  for (unsigned i = 1; i < by.depth; ++i) by.changes.push_back(1 + next_random(r) % by.steps);
  for (auto const& device : r.devices)
    for (timeline* t : device.timelines) t->rank = 0;
}

void take_step(ranks& by, std::uint64_t& rank) {
  auto const change = std::find(by.changes.begin(), by.changes.end(), ++by.taken);
  if (change != by.changes.end()) rank = static_cast<std::uint64_t>(change - by.changes.begin()) + 1;
}

timeline* first_by_rank(runtime& r, host_functions theirs) {
  timeline* first = nullptr;
  for (auto const& device : r.devices)
    for (timeline* const t : device.timelines) {
      if (!gets_on(r, *t, theirs)) continue;
      if (t->rank == 0) t->rank = draw_rank(r);
      if (first == nullptr || t->rank > first->rank) first = t;
    }
  return first;
}

void run_one(runtime& r, held_lock& held, timeline* t) {
  take_step(r.by_rank, t->rank);
  run_front(r, held, t);
}

void pass_by_rank(runtime& r, held_lock& held, host_functions theirs) {
  if (!r.by_rank.drawn) draw_ranks(r);
  take_step(r.by_rank, r.by_rank.host);
  for (timeline* t = nullptr; (t = first_by_rank(r, theirs)) != nullptr && t->rank > r.by_rank.host;)
    run_one(r, held, t);
}

void pass_at_random(runtime& r, held_lock& held, host_functions theirs) {
  for (std::uint64_t steps = next_random(r) % 8; steps > 0; --steps) {
    auto const ready = all_that_may_run(r, theirs);
    if (ready.empty()) return;
    run_front(r, held, ready[next_random(r) % ready.size()]);
  }
}

}  // namespace

bool run_by_rank(runtime& r, held_lock& held, std::vector<point> const& wanted) {
  while (std::any_of(wanted.begin(), wanted.end(), [&](point p) { return !done(r, p); })) {
    timeline* const t = first_by_rank(r, host_functions::may_run);
    if (t == nullptr) return false;
    run_one(r, held, t);
  }
  return true;
}

void let_time_pass(runtime& r, held_lock& held, host_functions theirs) {
  if (r.running || !r.workers.empty()) return;
  // In random mode most calls run nothing, so that work piles up.
  if (r.how == mode::random && next_random(r) % 4 != 0) return;
  runs_operations const alone(r);
  r.how == mode::pct ? pass_by_rank(r, held, theirs) : pass_at_random(r, held, theirs);
}

void let_time_pass(runtime& r, held_lock& held, call which) {
  constexpr call asks("cudaEventQuery"), gets("cudaGetDevice"), sets("cudaSetDevice");
  bool const asking = which.index() == asks.index() || which.index() == gets.index() || which.index() == sets.index();
  if (!asking) this_thread().times_asked = 0;
  let_time_pass(r, held, which.runs_host_functions() ? host_functions::may_run : host_functions::wait);
}

void let_asker_wait(runtime& r, held_lock& held) {
  if (++this_thread().times_asked > asked_often) let_time_pass(r, held, host_functions::may_run);
}

}  // namespace weir::sim::detail
