// Copies and sets: the bytes really move, at the operation's place in its stream.

#include <weir/sim/capture.hpp>
#include <weir/sim/checker.hpp>
#include <weir/sim/memory.hpp>
#include <weir/sim/schedule.hpp>
#include <weir/sim/stream_calls.hpp>

#include <cstring>
#include <utility>

namespace weir::sim::detail {
namespace {

bool device_side(cudaMemcpyKind kind, bool source) {
  return kind == cudaMemcpyDeviceToDevice || kind == (source ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice);
}

// CUDA leaves a direction that does not fit the pointers undefined; here it is refused.
bool fits(cudaMemcpyKind kind, bool source, range const& what) {
  if (kind == cudaMemcpyDefault) return true;
  return device_side(kind, source) ? what.reached_by_devices() : !what.device_only();
}

// A call that makes the host wait is none that a capture can record.
cudaError_t admit(runtime& r, timeline const& t, host_waits waits) {
  if (waits == host_waits::no) return admit_work(r, t);
  cudaError_t const code = admit_wait(r, t);
  return code != cudaSuccess ? code : admit_unsafe(r);
}

// Before a copy from pageable memory the driver takes the bytes to memory of its own. So the program may change them
// as soon as the call is over.
std::shared_ptr<std::vector<unsigned char>> staged(void const* from, std::size_t bytes) {
  auto const* const first = static_cast<unsigned char const*>(from);
  return std::make_shared<std::vector<unsigned char>>(first, first + bytes);
}

}  // namespace

cudaError_t copy(call which, void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream,
                 host_waits waits) {
  return api(which, [&](runtime& r, held_lock& held) {
    timeline* t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    if (cudaError_t const code = admit(r, *t, waits); code != cudaSuccess) return code;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    if (bytes == 0) return cudaSuccess;
    if (to == nullptr || from == nullptr) return cudaErrorInvalidValue;
    range const target = look_up(r, to, bytes);
    range const source = look_up(r, from, bytes);
    if (!target.valid || !source.valid) {
      if (r.check != nullptr) {
        mark const m = r.check->act(t);
        if (!target.valid) r.check->access(*t, m, to, bytes, false);
        if (!source.valid) r.check->access(*t, m, from, bytes, false);
      }
      return cudaErrorInvalidValue;
    }
    if (!fits(kind, false, target) || !fits(kind, true, source)) return cudaErrorInvalidValue;

    bool const on_host = !target.device_only() && !source.device_only();
    bool const captured = t->capture != nullptr;  // then the bytes are read by each launch
    bool const from_pageable = source.pageable() && !on_host && !captured;
    bool const waits_for_end = !captured && (on_host || (waits == host_waits::as_documented && !from_pageable &&
                                                         !(target.device_only() && source.device_only())));
    std::uint64_t const id = t->id;
    if (from_pageable && waits == host_waits::as_documented) {
      seeing(
          r, [&](order_checker& check) { return check.end_of(*t); }, [&] { force(r, held, *t); });
      t = find_timeline(r, id);
      if (t == nullptr) return cudaErrorInvalidResourceHandle;
    }
    vector_clock end;
    if (r.check != nullptr) [[unlikely]] {
      mark const m = r.check->operate(*t);
      r.check->access(*t, m, to, bytes, true);
      r.check->access(*t, m, from, bytes, true);
      end = r.check->end_of(*t);
    }
    if (from_pageable && r.how != mode::immediate) {
      submit(r, held, *t, [to, data = staged(from, bytes)](held_lock& lock) {
        lock.unlock();
        std::memcpy(to, data->data(), data->size());
        lock.lock();
      });
    } else {
      submit(r, held, *t, [to, from, bytes](held_lock& lock) {
        lock.unlock();
        std::memmove(to, from, bytes);
        lock.lock();
      });
    }
    timeline const* const used = find_timeline(r, id);
    if (waits_for_end && used != nullptr) force(r, held, *used);
    if (waits_for_end && r.check != nullptr) [[unlikely]]
      r.check->host_saw(end);
    return cudaSuccess;
  });
}

cudaError_t set(call which, void* to, int value, std::size_t bytes, cudaStream_t stream, host_waits waits) {
  return api(which, [&](runtime& r, held_lock& held) {
    timeline* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    if (cudaError_t const code = admit(r, *t, waits); code != cudaSuccess) return code;
    if (bytes == 0) return cudaSuccess;
    range const target = look_up(r, to, bytes);
    if (!target.valid && r.check != nullptr) r.check->access(*t, r.check->act(t), to, bytes, false);
    if (!target.valid || !target.reached_by_devices()) return cudaErrorInvalidValue;
    bool const waits_for_end = waits == host_waits::as_documented && !target.device_only();
    std::uint64_t const id = t->id;
    vector_clock end;
    if (r.check != nullptr) [[unlikely]] {
      r.check->access(*t, r.check->operate(*t), to, bytes, true);
      end = r.check->end_of(*t);
    }
    submit(r, held, *t, [to, value, bytes](held_lock& lock) {
      lock.unlock();
      std::memset(to, value, bytes);
      lock.lock();
    });
    timeline const* const used = find_timeline(r, id);
    if (waits_for_end && used != nullptr) force(r, held, *used);
    if (waits_for_end && r.check != nullptr) [[unlikely]]
      r.check->host_saw(end);
    return cudaSuccess;
  });
}

}  // namespace weir::sim::detail
