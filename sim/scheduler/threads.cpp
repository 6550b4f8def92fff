#include "scheduler/threads.hpp"

#include "scheduler/schedule.hpp"

#include <utility>

namespace weir::sim::detail {
namespace {

// As many streams as this can call host functions or touch memory at once.
constexpr int worker_count = 4;

// Of the streams that may go on, the one whose operation was queued first: so none waits for ever.
timeline* first_that_may_run(runtime& r) {
  timeline* first = nullptr;
  for (auto const& device : r.devices)
    for (timeline* const t : device.timelines)
      if (may_run(r, *t) && (first == nullptr || t->waiting.front().order < first->waiting.front().order)) first = t;
  return first;
}

void work_until_told(runtime& r) {
  in_call const own_work(this_thread());
  begin_worker();
  held_lock held(r.mutex);
  // An operation under way may wait for a queued one: two host functions that wait for each other.
  while (!r.workers_end || r.under_way != 0) {
    if (timeline* const t = first_that_may_run(r); t != nullptr) {
      r.queued.notify_one();  // for another thread; what comes after this operation this thread finds itself
      run_front(r, held, t);
      r.finished.notify_all();
      if (r.workers_end) r.queued.notify_all();
    } else {
      r.queued.wait(held);
    }
  }
}

}  // namespace

void start_workers(runtime& r, held_lock& held) {
  r.finished.wait(held, [&] { return !r.running && !r.workers_end; });
  if (!r.workers.empty()) return;
  try {
    for (int i = 0; i < worker_count; ++i) r.workers.emplace_back([&r] { work_until_told(r); });
  } catch (...) {
    stop_workers(r, held);
    throw;
  }
}

void stop_workers(runtime& r, held_lock& held) {
  if (std::exchange(r.workers_end, true)) return r.finished.wait(held, [&] { return !r.workers_end; });
  r.queued.notify_all();
  held.unlock();
  for (std::thread& worker : r.workers) worker.join();  // as long as there are some, no other thread changes `workers`
  held.lock();
  r.workers.clear();
  r.workers_end = false;
  r.finished.notify_all();
}

}  // namespace weir::sim::detail
