#include "model/thread.hpp"

#include <atomic>

namespace weir::sim::detail {
namespace {

std::atomic<std::uint64_t> generation{1};
constinit thread_local thread_state current_thread{};

}  // namespace

thread_state& this_thread() {
  thread_state& me = current_thread;
  std::uint64_t const now = generation.load(std::memory_order_relaxed);
  if (me.generation != now) [[unlikely]] {
    me.generation = now;
    me.device = 0;
    me.contexts_below = 0;
    me.last_error = cudaSuccess;
    me.capture_mode = cudaStreamCaptureModeGlobal;
  }
  return me;
}

void forget_threads() { generation.fetch_add(1, std::memory_order_relaxed); }

}  // namespace weir::sim::detail
