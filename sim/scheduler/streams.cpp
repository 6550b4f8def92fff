#include "scheduler/streams.hpp"

#include "checker/checker.hpp"
#include "scheduler/capture.hpp"

#include <pthread.h>

#include <utility>

namespace weir::sim::detail {
namespace {

void end_per_thread_streams(void*) {
  runtime& r = state();
  std::lock_guard const lock(r.mutex);
  for (std::uint64_t& id : this_thread().default_stream) {
    timeline* const t = find_timeline(r, std::exchange(id, 0));
    if (t != nullptr) end_stream(r, t);
  }
}

// Ends the per-thread streams of a thread that ends, for as long as the code of it is there. By a key: a `thread_local`
// object's destructor would come before those of the ones that were made earlier, which may use the stream still.
class end_of_threads {
 public:
  end_of_threads() : made_(::pthread_key_create(&key_, &end_per_thread_streams) == 0) {}
  ~end_of_threads() {
    if (std::exchange(made_, false)) ::pthread_key_delete(key_);
  }
  end_of_threads(end_of_threads const&) = delete;
  end_of_threads& operator=(end_of_threads const&) = delete;

  void watch_this_thread() const {
    if (made_) ::pthread_setspecific(key_, this);
  }

 private:
  pthread_key_t key_{};
  bool made_;
};

timeline* per_thread_stream(runtime& r) {
  thread_state& me = this_thread();
  std::uint64_t& id = me.default_stream[static_cast<std::size_t>(me.device)];
  if (id == 0) {
    id = make_timeline(r, me.device, cudaStreamDefault, 0)->id;
    static end_of_threads const at_end;
    at_end.watch_this_thread();
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
