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

bool fits(rows const& what, std::size_t pitch) { return what.width <= pitch && pitch <= max_pitch; }

// A call that makes the host wait is none that a capture can record.
cudaError_t admit(runtime& r, timeline const& t, host_waits waits) {
  if (waits == host_waits::no) return admit_work(r, t);
  cudaError_t const code = admit_wait(r, t);
  return code != cudaSuccess ? code : admit_unsafe(r);
}

// From the first byte of the first row to the last byte of the last one.
std::size_t span(rows const& what, std::size_t pitch) {
  constexpr std::size_t most = static_cast<std::size_t>(-1);
  if (what.empty()) return 0;
  std::size_t const steps = what.height - 1;
  if (steps != 0 && pitch > (most - what.width) / steps) return most;
  return steps * pitch + what.width;
}

void move(void* to, void const* from, rows const& what) {
  auto* target = static_cast<unsigned char*>(to);
  auto const* source = static_cast<unsigned char const*>(from);
  for (std::size_t row = 0; row < what.height; ++row)
    std::memmove(target + row * what.to_pitch, source + row * what.from_pitch, what.width);
}

// Before a copy from pageable memory the driver takes the bytes to memory of its own. So the program may change them
// as soon as the call is over.
std::shared_ptr<std::vector<unsigned char>> staged(void const* from, rows what) {
  auto copy = std::make_shared<std::vector<unsigned char>>(what.width * what.height);
  what.to_pitch = what.width;
  move(copy->data(), from, what);
  return copy;
}

// Rows that lie apart are told one by one: what lies between them is not used.
void check_rows(order_checker& check, timeline const& t, mark m, void const* first, std::size_t pitch, rows const& what,
                use how) {
  for (std::size_t row = 0; row < what.height; ++row)
    check.access(t, m, static_cast<unsigned char const*>(first) + row * pitch, what.width, true, how);
}

// What a call that copies does once it has the state.
auto copying(void* to, void const* from, rows what, cudaMemcpyKind kind, cudaStream_t stream, host_waits waits) {
  return [=](runtime& r, held_lock& held) -> cudaError_t {
    timeline* t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    if (cudaError_t const code = admit(r, *t, waits); code != cudaSuccess) return code;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    bool const pitched = what.height > 1;
    if (pitched && !(fits(what, what.to_pitch) && fits(what, what.from_pitch))) return cudaErrorInvalidPitchValue;
    if (what.empty()) return cudaSuccess;
    if (to == nullptr || from == nullptr) return cudaErrorInvalidValue;
    std::size_t const to_bytes = span(what, what.to_pitch);
    std::size_t const from_bytes = span(what, what.from_pitch);
    range const target = look_up(r, to, to_bytes);
    range const source = look_up(r, from, from_bytes);
    if (!target.valid || !source.valid) {
      if (r.check != nullptr) {
        mark const m = r.check->act(t);
        if (!target.valid) r.check->access(*t, m, to, to_bytes, false, use::write);
        if (!source.valid) r.check->access(*t, m, from, from_bytes, false, use::read);
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
      awaited const before = end_of(r, *t);
      seeing(
          r, [&](order_checker& check) { return check.end_of(*t); }, [&] { force(r, held, *t); });
      come_after(before);
      t = find_timeline(r, id);
      if (t == nullptr) return cudaErrorInvalidResourceHandle;
    }
    awaited const awaited_end = end_of(r, *t);
    vector_clock end;
    if (r.check != nullptr) [[unlikely]] {
      mark const m = r.check->operate(*t);
      check_rows(*r.check, *t, m, from, what.from_pitch, what, use::read);
      check_rows(*r.check, *t, m, to, what.to_pitch, what, use::write);
      end = r.check->end_of(*t);
    }
    if (from_pageable && (streams_are_fibers || r.how != mode::immediate)) {
      rows stored = what;
      stored.from_pitch = what.width;
      submit(r, held, *t, [to, data = staged(from, what), stored](held_lock& lock) mutable {
        unlocked(lock, [to, data = std::move(data), stored] { move(to, data->data(), stored); });
      });
    } else {
      submit(r, held, *t,
             [to, from, what](held_lock& lock) { unlocked(lock, [to, from, what] { move(to, from, what); }); });
    }
    timeline const* const used = find_timeline(r, id);
    if (waits_for_end && used != nullptr) force(r, held, *used);
    if (waits_for_end) come_after(awaited_end);
    if (waits_for_end && r.check != nullptr) [[unlikely]]
      r.check->host_saw(end);
    return cudaSuccess;
  };
}

}  // namespace

cudaError_t copy(call which, void* to, void const* from, rows what, cudaMemcpyKind kind, cudaStream_t stream,
                 host_waits waits) {
  return api(which, copying(to, from, what, kind, stream, waits));
}

cudaError_t submit_copy(runtime& r, held_lock& held, void* to, void const* from, rows what, cudaMemcpyKind kind,
                        cudaStream_t stream, host_waits waits) {
  return copying(to, from, what, kind, stream, waits)(r, held);
}

cudaError_t set(call which, void* to, int value, rows what, cudaStream_t stream, host_waits waits) {
  return api(which, [&](runtime& r, held_lock& held) {
    timeline* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    if (cudaError_t const code = admit(r, *t, waits); code != cudaSuccess) return code;
    if (what.height > 1 && !fits(what, what.to_pitch)) return cudaErrorInvalidValue;
    if (what.empty()) return cudaSuccess;
    std::size_t const bytes = span(what, what.to_pitch);
    range const target = look_up(r, to, bytes);
    if (!target.valid && r.check != nullptr) r.check->access(*t, r.check->act(t), to, bytes, false, use::write);
    if (!target.valid || !target.reached_by_devices()) return cudaErrorInvalidValue;
    bool const waits_for_end = waits == host_waits::as_documented && !target.device_only();
    std::uint64_t const id = t->id;
    awaited const awaited_end = end_of(r, *t);
    vector_clock end;
    if (r.check != nullptr) [[unlikely]] {
      check_rows(*r.check, *t, r.check->operate(*t), to, what.to_pitch, what, use::write);
      end = r.check->end_of(*t);
    }
    submit(r, held, *t, [to, value, what](held_lock& lock) {
      unlocked(lock, [to, value, what] {
        for (std::size_t row = 0; row < what.height; ++row)
          std::memset(static_cast<unsigned char*>(to) + row * what.to_pitch, value, what.width);
      });
    });
    timeline const* const used = find_timeline(r, id);
    if (waits_for_end && used != nullptr) force(r, held, *used);
    if (waits_for_end) come_after(awaited_end);
    if (waits_for_end && r.check != nullptr) [[unlikely]]
      r.check->host_saw(end);
    return cudaSuccess;
  });
}

}  // namespace weir::sim::detail
