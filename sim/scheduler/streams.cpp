#include "scheduler/streams.hpp"

#include "checker/checker.hpp"
#include "scheduler/capture.hpp"

#include <utility>

namespace weir::sim::detail {
namespace {

// Ends the per-thread streams of a thread that ends.
struct thread_end {
  ~thread_end() {
    runtime& r = state();
    std::lock_guard const lock(r.mutex);
    for (std::uint64_t& id : this_thread().default_stream) {
      timeline* const t = find_timeline(r, std::exchange(id, 0));
      if (t != nullptr) end_stream(r, t);
    }
  }
};

timeline* per_thread_stream(runtime& r) {
  thread_state& me = this_thread();
  std::uint64_t& id = me.default_stream[static_cast<std::size_t>(me.device)];
  if (id == 0) {
    id = make_timeline(r, me.device, cudaStreamDefault, 0)->id;
    static thread_local thread_end end;
    static_cast<void>(end);
  }
  return find_timeline(r, id);
}

}  // namespace

timeline* find_stream(runtime& r, cudaStream_t handle) {
  if (handle == cudaStreamLegacy) return r.current_device().legacy;
  if (handle == cudaStreamPerThread) return per_thread_stream(r);
  timeline** const found = r.streams.find(handle);
  return found == nullptr ? nullptr : *found;
}

void end_stream(runtime& r, timeline* t) {
  leave_capture(r, *t);
  if (r.check != nullptr) [[unlikely]]
    r.check->stream_ended(*t);
  t->destroyed = true;
  retire_if_over(r, t);
}

}  // namespace weir::sim::detail
