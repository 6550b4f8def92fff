// `touch`: work that stands for a kernel.

#include "allocations/blocks.hpp"
#include "checker/checker.hpp"
#include "control/refuse.hpp"
#include "model/call.hpp"
#include "scheduler/capture.hpp"
#include "scheduler/random.hpp"
#include "scheduler/schedule.hpp"
#include "scheduler/streams.hpp"

#include <weir/sim/sim.hpp>

#include <atomic>
#include <cstring>
#include <string>

namespace weir::sim {
namespace {

using detail::held_lock;
using detail::refuse;
using detail::runtime;
using detail::timeline;

// A kernel on a GPU crashes at memory that its device cannot reach.
void require_access(runtime& r, int device, void const* p, std::size_t bytes) {
  detail::allocation const* const a = detail::look_up(r, p, bytes).in;
  if (a == nullptr || detail::reaches(r, device, *a)) return;
  refuse("touch: device " + std::to_string(device) + " has no access to this memory of device " +
         std::to_string(a->device) +
         "; give it access with cudaDeviceEnablePeerAccess, or for a pool's memory with cudaMemPoolSetAccess, or for "
         "mapped memory with cuMemSetAccess");
}

// Reads every byte, in a way that is not optimised away and that the sanitizers see.
void read_all(unsigned char const* first, std::size_t bytes) {
  unsigned sum = 0;
  for (std::size_t i = 0; i < bytes; ++i) sum += first[i];
  static std::atomic<unsigned> sink;
  sink.store(sum, std::memory_order_relaxed);
}

// A kernel that runs when `t` gets there.
void submit_use(runtime& r, held_lock& held, timeline& t, void const* p, std::size_t bytes, access what) {
  if (what == access::read) {
    detail::submit(r, held, t, [p, bytes](held_lock& lock) {
      detail::unlocked(lock, [p, bytes] { read_all(static_cast<unsigned char const*>(p), bytes); });
    });
  } else {
    auto* const first = const_cast<void*>(p);
    detail::submit(r, held, t, [first, bytes, pattern = detail::next_pattern(r)](held_lock& lock) {
      detail::unlocked(lock, [first, bytes, pattern] { std::memset(first, pattern, bytes); });
    });
  }
}

}  // namespace

void touch(cudaStream_t stream, void const* p, std::size_t bytes, access what) {
  runtime& r = detail::state();
  held_lock held(r.mutex);
  if (detail::time_passes(r.how)) detail::let_time_pass(r, held, detail::host_functions::may_run);
  timeline* const t = detail::find_stream(r, stream == nullptr ? cudaStreamLegacy : stream);
  if (t == nullptr) refuse("touch: not a valid stream");
  if (detail::admit_work(r, *t) != cudaSuccess)
    refuse("touch: a stream capture was invalidated, or is by this use of the legacy stream");
  if (bytes == 0) return;
  detail::acting_as const named(detail::number_of("sim::touch"));
  bool const valid = detail::look_up(r, p, bytes, t->capture != nullptr).valid;
  if (r.check != nullptr)
    r.check->access(*t, valid ? r.check->operate(*t) : r.check->act(t), p, bytes, valid,
                    what == access::read ? detail::use::read : detail::use::write);
  if (!valid)
    refuse(
        "touch: the range leaves its allocation, or that is freed; or it lies in reserved addresses, and not all of it "
        "is mapped (cuMemMap) and open to a device (cuMemSetAccess)");
  if (r.access_checked) require_access(r, t->device, p, bytes);
  submit_use(r, held, *t, p, bytes, what);
}

}  // namespace weir::sim
