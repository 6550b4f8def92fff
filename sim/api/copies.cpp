// Copies and sets: the bytes really move, at the operation's place in its stream.

#include "api/copies.hpp"

#include "api/entry.hpp"
#include "api/pitch.hpp"
#include "checker/checker.hpp"
#include "memory/blocks.hpp"
#include "scheduler/capture.hpp"
#include "scheduler/schedule.hpp"
#include "scheduler/streams.hpp"

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

std::size_t span(rows const& what, std::size_t pitch, std::size_t slice) {
  if (what.empty()) return 0;
  return plus(plus(times(what.depth - 1, slice), times(what.height - 1, pitch)), what.width);
}

// Calls `visit(target, source)` for each row, with how far it is from the first one in each of the two.
template <class Visit>
void each_row(rows const& what, Visit visit) {
  for (std::size_t slice = 0; slice < what.depth; ++slice)
    for (std::size_t row = 0; row < what.height; ++row)
      visit(slice * what.to_slice + row * what.to_pitch, slice * what.from_slice + row * what.from_pitch);
}

void move(void* to, void const* from, rows const& what) {
  each_row(what, [&](std::size_t target, std::size_t source) {
    std::memmove(static_cast<unsigned char*>(to) + target, static_cast<unsigned char const*>(from) + source,
                 what.width);
  });
}

// Before a copy from pageable memory the driver takes the bytes to memory of its own. So the program may change them
// as soon as the call is over.
std::shared_ptr<std::vector<unsigned char>> staged(void const* from, rows what) {
  auto copy = std::make_shared<std::vector<unsigned char>>(what.width * what.height * what.depth);
  what.to_pitch = what.width;
  what.to_slice = what.width * what.height;
  move(copy->data(), from, what);
  return copy;
}

// Rows that lie apart are told one by one: what lies between them is not used.
void check_rows(order_checker& check, timeline const& t, mark m, void const* first, rows const& what, use how) {
  each_row(what, [&](std::size_t target, std::size_t source) {
    auto const* const row = static_cast<unsigned char const*>(first) + (how == use::write ? target : source);
    check.access(t, m, row, what.width, true, how);
  });
}

// What a call that copies does once it has the state.
auto copying(void* to, void const* from, rows what, cudaMemcpyKind kind, cudaStream_t stream, host_waits waits) {
  return [=](runtime& r, held_lock& held) -> cudaError_t {
    timeline* t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    if (cudaError_t const code = admit(r, *t, waits); code != cudaSuccess) return code;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    if (what.pitched() && !(fits(what, what.to_pitch) && fits(what, what.from_pitch)))
      return cudaErrorInvalidPitchValue;
    if (what.empty()) return cudaSuccess;
    if (to == nullptr || from == nullptr) return cudaErrorInvalidValue;
    std::size_t const to_bytes = what.to_bytes();
    std::size_t const from_bytes = what.from_bytes();
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
      check_rows(*r.check, *t, m, from, what, use::read);
      check_rows(*r.check, *t, m, to, what, use::write);
      end = r.check->end_of(*t);
    }
    if (from_pageable && (streams_are_fibers || r.how != mode::immediate)) {
      rows stored = what;
      stored.from_pitch = what.width;
      stored.from_slice = what.width * what.height;
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

std::size_t rows::to_bytes() const { return span(*this, to_pitch, to_slice); }
std::size_t rows::from_bytes() const { return span(*this, from_pitch, from_slice); }

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
    if (what.pitched() && !fits(what, what.to_pitch)) return cudaErrorInvalidValue;
    if (what.empty()) return cudaSuccess;
    std::size_t const bytes = what.to_bytes();
    range const target = look_up(r, to, bytes);
    if (!target.valid && r.check != nullptr) r.check->access(*t, r.check->act(t), to, bytes, false, use::write);
    if (!target.valid || !target.reached_by_devices()) return cudaErrorInvalidValue;
    bool const waits_for_end = waits == host_waits::as_documented && !target.device_only();
    std::uint64_t const id = t->id;
    awaited const awaited_end = end_of(r, *t);
    vector_clock end;
    if (r.check != nullptr) [[unlikely]] {
      check_rows(*r.check, *t, r.check->operate(*t), to, what, use::write);
      end = r.check->end_of(*t);
    }
    submit(r, held, *t, [to, value, what](held_lock& lock) {
      unlocked(lock, [to, value, what] {
        each_row(what, [&](std::size_t row, std::size_t) {
          std::memset(static_cast<unsigned char*>(to) + row, value, what.width);
        });
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
