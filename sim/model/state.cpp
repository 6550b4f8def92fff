#include "model/state.hpp"
#include "checker/checker.hpp"
#include "model/call.hpp"
#include "scheduler/capture.hpp"

#include <utility>

namespace weir::sim::detail {

std::atomic<std::uint64_t> call_counters[call_count];

namespace {

std::atomic<std::uint64_t> generation{1};
constinit thread_local thread_state current_thread{};

}  // namespace

runtime::runtime() {
  timelines.emplace_back();  // id 0 is no stream's
  for (int device = 0; device < max_devices; ++device) {
    timeline* const t = make_timeline(*this, device, cudaStreamDefault, 0);
    t->legacy = true;
    device_state& d = devices[static_cast<std::size_t>(device)];
    d.legacy = t;
    d.default_pool = d.current_pool = make_pool(device);
    d.default_pool->is_default = true;
    d.default_pool->handle = pools.add(d.default_pool);
  }
}

runtime::~runtime() = default;

runtime& state() {
  static runtime* const the_runtime = new runtime;
  return *the_runtime;
}

thread_state& this_thread() {
  thread_state& me = current_thread;
  std::uint64_t const now = generation.load(std::memory_order_relaxed);
  if (me.generation != now) [[unlikely]] {
    me.generation = now;
    me.device = 0;
    me.last_error = cudaSuccess;
    me.capture_mode = cudaStreamCaptureModeGlobal;
  }
  return me;
}

void forget_threads() { generation.fetch_add(1, std::memory_order_relaxed); }

}  // namespace weir::sim::detail
