#include "model/runtime.hpp"

#include <pthread.h>

#include <utility>

namespace weir::sim::detail {

namespace {

// A child has a copy of the runtime as it is between two calls.
void before_fork() { state().mutex.lock(); }
void after_fork() { state().mutex.unlock(); }

// What another thread was executing, which the child does not have, is done.
void in_child() {
  runtime& r = state();
  if (!this_thread().in_host_function) {
    for (auto const& t : r.timelines)
      if (t != nullptr && t->busy) {
        t->busy = false;
        t->waiting.front().run = [](held_lock&) {};
      }
    r.running = false;
    r.under_way = 0;
  }
  r.mutex.unlock();
}

runtime* make_runtime() {
  ::pthread_atfork(&before_fork, &after_fork, &in_child);
  return new runtime;
}

}  // namespace

runtime::runtime() {
  timelines.emplace_back();  // id 0 is no stream's
  for (int number = 0; number < max_devices; ++number) {
    timeline* const t = make_timeline(*this, number, cudaStreamDefault, 0);
    t->legacy = true;
    device_state& d = device(number);
    d.legacy = t;
    d.default_pool = d.current_pool = std::make_shared<pool_state>(pool_home{.id = number});
    d.default_pool->is_default = true;
    d.default_pool->handle = pools.add(d.default_pool);
  }
}

runtime& state() {
  static runtime* const the_runtime = make_runtime();
  return *the_runtime;
}

}  // namespace weir::sim::detail
