// Threads mode: what is queued runs on threads of the stand-in's, while the program goes on.

#include <weir/sim/call.hpp>
#include <weir/sim/schedule.hpp>

#include <utility>

namespace weir::sim::detail {
namespace {

// As many streams as this are at work at once, where they run host functions or touch memory.
constexpr int worker_count = 4;

// What was queued first, so that no stream waits for ever.
timeline* first_that_may_run(runtime& r) {
  timeline* first = nullptr;
  for (auto const& device : r.devices)
    for (timeline* const t : device.timelines)
      if (may_run(r, *t) && (first == nullptr || t->waiting.front().order < first->waiting.front().order)) first = t;
  return first;
}

void work_until_told(runtime& r) {
  in_call const own_work(this_thread());
  held_lock held(r.mutex);
  while (!r.workers_end) {
    if (timeline* const t = first_that_may_run(r); t != nullptr) {
      r.queued.notify_one();  // there may be more; what comes after this one the thread finds itself
      run_front(r, held, t);
      r.finished.notify_all();
    } else {
      r.queued.wait(held);
    }
  }
}

}  // namespace

void start_workers(runtime& r) {
  for (int i = 0; i < worker_count; ++i) r.workers.emplace_back([&r] { work_until_told(r); });
}

void stop_workers(runtime& r, held_lock& held) {
  std::vector<std::thread> all = std::exchange(r.workers, {});
  if (all.empty()) return;
  r.workers_end = true;
  r.queued.notify_all();
  held.unlock();
  for (std::thread& worker : all) worker.join();
  held.lock();
  r.workers_end = false;
}

}  // namespace weir::sim::detail
