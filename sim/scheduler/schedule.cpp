#include "scheduler/schedule.hpp"

#include "allocations/pools.hpp"
#include "scheduler/random.hpp"

#include <algorithm>
#include <utility>

namespace weir::sim::detail {
namespace {

// The legacy stream "encompasses" the blocking streams of its device.
std::vector<point> ends(runtime& r, timeline const& t) {
  std::vector<point> result{t.end()};
  if (!t.legacy) return result;
  for (timeline const* other : r.device(t.device).timelines) {
    if (other->blocking() && !other->idle()) result.push_back(other->end());
  }
  return result;
}

struct planned_operation {
  std::uint64_t order;
  timeline* in;
};

// Everything that must run before `wanted` is reached. An operation waits only for operations that were queued earlier,
// so the order of queueing keeps every order that CUDA promises.
std::vector<planned_operation> plan(runtime& r, std::vector<point> wanted) {
  std::vector<planned_operation> result;
  std::uint64_t const number = ++r.plans;
  while (!wanted.empty()) {
    point const p = wanted.back();
    wanted.pop_back();
    timeline* const t = find_timeline(r, p.stream);
    if (t == nullptr) continue;
    // An earlier plan may not have run to its end, if an operation threw: begin anew.
    if (std::exchange(t->plan, number) != number) t->planned = t->completed;
    std::uint64_t sequence = t->planned;
    for (; sequence < p.sequence; ++sequence) {
      operation const& op = t->waiting[static_cast<std::size_t>(sequence - t->completed)];
      result.push_back({op.order, t});
      wanted.insert(wanted.end(), op.after.begin(), op.after.end());
    }
    t->planned = sequence;
  }
  std::sort(result.begin(), result.end(), [](auto const& a, auto const& b) { return a.order < b.order; });
  return result;
}

// The operation that is executed stays in the queue until it is done, since others look there meanwhile.
class front_under_way {
 public:
  front_under_way(runtime& r, timeline* t) : r_(r), t_(t) {
    t_->busy = true;
    ++r_.under_way;
  }
  ~front_under_way() {
    t_->busy = false;
    --r_.under_way;
    t_->waiting.pop_front();
    ++t_->completed;
    retire_if_over(r_, t_);
  }
  front_under_way(front_under_way const&) = delete;
  front_under_way& operator=(front_under_way const&) = delete;

 private:
  runtime& r_;
  timeline* t_;
};

}  // namespace

void run_front(runtime& r, held_lock& held, timeline* t) {
  front_under_way const done_at_the_end(r, t);
  work const run = std::move(t->waiting.front().run);
  turn const its_turn(r, *t, t->waiting.front().handed_over);
  if (sticky_error() == cudaSuccess) run(held);
}

void abandon_work(runtime& r) {
  for (auto const& device : r.devices)
    for (timeline* const t : device.timelines)
      for (operation& op : t->waiting) op.run = [](held_lock&) {};
}

bool may_run(runtime& r, timeline const& t) {
  if (t.idle() || t.busy) return false;
  auto const& after = t.waiting.front().after;
  return std::all_of(after.begin(), after.end(), [&](point p) { return done(r, p); });
}

std::vector<point> implicit_order(runtime& r, timeline const& t) {
  std::vector<point> after;
  if (t.legacy) {
    after = ends(r, t);
  } else if (t.blocking()) {
    timeline const& legacy = *r.device(t.device).legacy;
    if (!legacy.idle()) after.push_back(legacy.end());
  }
  return after;
}

void enqueue(runtime& r, timeline& t, std::vector<point> after, work run, operation_kind kind) {
  if (sticky_error() != cudaSuccess) run = [](held_lock&) {};
  t.waiting.push_back({++r.operations, std::move(after), std::move(run), hand_over(t), kind});
  ++t.submitted;
  if (r.how == mode::threads) r.queued.notify_one();
}

point record(runtime& r, held_lock& held, timeline& t, std::shared_ptr<clock::time_point> time) {
  point end = t.end();
  ++end.sequence;
  end.reached = new_landmark();
  if (time == nullptr) {
    submit(r, held, t, [here = end.reached](held_lock&) { reach(here); });
  } else {
    submit(r, held, t, [here = end.reached, time = std::move(time)](held_lock&) {
      *time = clock::now();
      reach(here);
    });
  }
  return end;
}

void wait_for(runtime& r, timeline& t, point p) {
  if (r.how == mode::immediate) {
    t.completed = ++t.submitted;
    turn const its_turn(r, t);
    come_after(p.reached);
    return;
  }
  std::vector<point> after = implicit_order(r, t);
  after.push_back(p);
  enqueue(r, t, std::move(after), [reached = p.reached](held_lock&) { come_after(reached); });
}

// Each queued operation is looked at once, however often this is asked: it waits for the same as long as it is queued.
std::map<std::uint64_t, std::uint64_t> const& comes_after(runtime& r, timeline& t) {
  auto& known = t.comes_after;
  std::erase_if(known, [&](auto const& upto) { return done(r, point{upto.first, upto.second}); });
  std::vector<point> open = implicit_order(r, t);
  open.push_back(t.end());
  while (!open.empty()) {
    point const next = open.back();
    open.pop_back();
    timeline const* const in = find_timeline(r, next.stream);
    if (in == nullptr || in->completed >= next.sequence) continue;
    std::uint64_t& upto = known[next.stream];
    for (upto = std::max(upto, in->completed); upto < next.sequence; ++upto) {
      auto const& after = in->waiting[static_cast<std::size_t>(upto - in->completed)].after;
      open.insert(open.end(), after.begin(), after.end());
    }
  }
  return known;
}

bool done(runtime& r, point p) {
  timeline const* const t = find_timeline(r, p.stream);
  return t == nullptr || t->completed >= p.sequence;
}

bool done(runtime& r, timeline const& t) {
  if (!t.idle()) return false;
  if (!t.legacy) return true;
  auto const& all = r.device(t.device).timelines;
  return std::none_of(all.begin(), all.end(),
                      [](timeline const* other) { return other->blocking() && !other->idle(); });
}

void force(runtime& r, held_lock& held, std::vector<point> wanted) {
  while (std::any_of(wanted.begin(), wanted.end(), [&](point p) { return !done(r, p); })) {
    if (r.running || !r.workers.empty()) {
      r.finished.wait(held);
      continue;
    }
    runs_operations const alone(r);
    if (r.how != mode::pct || !run_by_rank(r, held, wanted))
      for (planned_operation const& next : plan(r, wanted)) run_front(r, held, next.in);
  }
  trim_pools(r);
}

void force(runtime& r, held_lock& held, timeline const& t) {
  if (done(r, t)) {
    trim_pools(r);
  } else {
    force(r, held, ends(r, t));
  }
}

void force_device(runtime& r, held_lock& held, int device) {
  std::vector<point> wanted;
  for (timeline const* t : r.device(device).timelines) {
    if (!t->idle()) wanted.push_back(t->end());
  }
  force(r, held, std::move(wanted));
}

void force_all(runtime& r, held_lock& held) {
  for (int device = 0; device < max_devices; ++device) force_device(r, held, device);
}

}  // namespace weir::sim::detail
