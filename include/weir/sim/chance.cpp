// Schedules by chance: what of the queued work runs while the host is busy with something else.

#include <weir/sim/call.hpp>
#include <weir/sim/schedule.hpp>

#include <algorithm>

namespace weir::sim::detail {
namespace {

// SplitMix64: any seed is as good as any other.
std::uint64_t next_chance(runtime& r) {
  std::uint64_t x = r.chance += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

bool gets_on(runtime& r, timeline const& t) { return t.id != r.starved && may_run(r, t); }

std::vector<timeline*> all_that_may_run(runtime& r) {
  std::vector<timeline*> ready;
  for (auto const& device : r.devices)
    for (timeline* t : device.timelines)
      if (gets_on(r, *t)) ready.push_back(t);
  return ready;
}

// ---- pct: ranks that are drawn stand above all that the changes give

std::uint64_t draw_rank(runtime& r) { return next_chance(r) | std::uint64_t{1} << 63; }

void draw_ranks(runtime& r) {
  ranks& by = r.by_rank;
  by.drawn = true;
  by.taken = 0;
  by.host = draw_rank(r);
  by.changes.clear();
  for (unsigned i = 1; i < by.depth; ++i) by.changes.push_back(1 + next_chance(r) % by.steps);
  for (auto const& device : r.devices)
    for (timeline* t : device.timelines) t->rank = 0;
}

void take_step(ranks& by, std::uint64_t& rank) {
  auto const change = std::find(by.changes.begin(), by.changes.end(), ++by.taken);
  if (change != by.changes.end()) rank = static_cast<std::uint64_t>(change - by.changes.begin()) + 1;
}

timeline* first_by_rank(runtime& r) {
  timeline* first = nullptr;
  for (auto const& device : r.devices)
    for (timeline* const t : device.timelines) {
      if (!gets_on(r, *t)) continue;
      if (t->rank == 0) t->rank = draw_rank(r);
      if (first == nullptr || t->rank > first->rank) first = t;
    }
  return first;
}

void run_one(runtime& r, held_lock& held, timeline* t) {
  take_step(r.by_rank, t->rank);
  run_front(r, held, t);
}

void pass_by_rank(runtime& r, held_lock& held) {
  if (!r.by_rank.drawn) draw_ranks(r);
  take_step(r.by_rank, r.by_rank.host);
  for (timeline* t = first_by_rank(r); t != nullptr && t->rank > r.by_rank.host; t = first_by_rank(r))
    run_one(r, held, t);
}

void pass_by_chance(runtime& r, held_lock& held) {
  for (std::uint64_t steps = next_chance(r) % 8; steps > 0; --steps) {
    auto const ready = all_that_may_run(r);
    if (ready.empty()) return;
    run_front(r, held, ready[next_chance(r) % ready.size()]);
  }
}

}  // namespace

bool run_by_rank(runtime& r, held_lock& held, std::vector<point> const& wanted) {
  while (std::any_of(wanted.begin(), wanted.end(), [&](point p) { return !done(r, p); })) {
    timeline* const t = first_by_rank(r);
    if (t == nullptr) return false;
    run_one(r, held, t);
  }
  return true;
}

void let_time_pass(runtime& r, held_lock& held) {
  if (r.running || !r.workers.empty()) return;
  // In random mode nothing happens at most calls, so that work piles up.
  if (r.how == mode::random && next_chance(r) % 4 != 0) return;
  runs_operations const alone(r);
  r.how == mode::pct ? pass_by_rank(r, held) : pass_by_chance(r, held);
}

}  // namespace weir::sim::detail
