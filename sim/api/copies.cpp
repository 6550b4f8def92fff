// Copies and sets: the bytes really move, at the operation's place in its stream.

#include "api/copies.hpp"

#include "allocations/blocks.hpp"
#include "api/entry.hpp"
#include "api/pitch.hpp"
#include "checker/checker.hpp"
#include "model/heap.hpp"
#include "scheduler/capture.hpp"
#include "scheduler/schedule.hpp"
#include "scheduler/streams.hpp"
#include "scheduler/synchronize.hpp"

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

// Whether a capture allows the call: it cannot record one that makes the host wait.
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

// A copy of the bytes, which the driver makes before it copies from pageable memory: the program may change them as
// soon as the call returns.
std::shared_ptr<std::vector<unsigned char>> staged(void const* from, rows what) {
  auto copy = std::make_shared<std::vector<unsigned char>>(what.width * what.height * what.depth);
  what.to_pitch = what.width;
  what.to_slice = what.width * what.height;
  move(copy->data(), from, what);
  return copy;
}

// Tells the check of each row by itself: what lies between rows is not used.
void check_rows(order_checker& check, timeline const& t, mark m, void const* first, rows const& what, use how) {
  each_row(what, [&](std::size_t target, std::size_t source) {
    auto const* const row = static_cast<unsigned char const*>(first) + (how == use::write ? target : source);
    check.access(t, m, row, what.width, true, how);
  });
}

void carry_rows(order_checker& check, timeline const& t, void* to, void const* from, rows const& what) {
  each_row(what, [&](std::size_t target, std::size_t source) {
    check.carry_unwritten(t, static_cast<unsigned char const*>(from) + source, static_cast<unsigned char*>(to) + target,
                          what.width);
  });
}

// Both ends of a copy, looked up.
struct copy_ends {
  range to, from;

  bool on_host() const { return !to.device_only() && !from.device_only(); }
  bool on_device() const { return to.device_only() && from.device_only(); }
};

// `cudaSuccess`, or why the bytes cannot be copied from there to there.
cudaError_t look_up_ends(runtime& r, timeline const& t, void* to, void const* from, rows const& what,
                         cudaMemcpyKind kind, copy_ends& ends) {
  if (to == nullptr || from == nullptr) return cudaErrorInvalidValue;
  std::size_t const to_bytes = what.to_bytes();
  std::size_t const from_bytes = what.from_bytes();
  bool const captured = t.capture != nullptr;
  ends = {look_up(r, to, to_bytes, captured), look_up(r, from, from_bytes, captured)};
  if (r.check != nullptr && !(ends.to.valid && ends.from.valid)) {
    mark const m = r.check->act(&t);
    if (!ends.to.valid) r.check->access(t, m, to, to_bytes, false, use::write);
    if (!ends.from.valid) r.check->access(t, m, from, from_bytes, false, use::read);
  }
  bool const can = ends.to.valid && ends.from.valid && fits(kind, false, ends.to) && fits(kind, true, ends.from);
  return can ? cudaSuccess : cudaErrorInvalidValue;
}

// Puts the operation into the stream. `tell(checker, mark)` says what it uses. If `waits`, the host waits for its end.
template <class Tell, class Work>
void submit_and_wait(runtime& r, held_lock& held, timeline& t, operation_kind kind, bool waits, Tell tell, Work&& run) {
  std::uint64_t const id = t.id;
  awaited const awaited_end = end_of(r, t);
  vector_clock end;
  if (r.check != nullptr) [[unlikely]] {
    tell(*r.check, r.check->operate(t));
    end = r.check->end_of(t);
  }
  submit(r, held, t, std::forward<Work>(run), kind);
  if (!waits) return;
  if (timeline const* const still_there = find_timeline(r, id)) force(r, held, *still_there);
  come_after(awaited_end);
  if (r.check != nullptr) [[unlikely]]
    r.check->host_saw(end);
}

}  // namespace

std::size_t rows::to_bytes() const { return span(*this, to_pitch, to_slice); }
std::size_t rows::from_bytes() const { return span(*this, from_pitch, from_slice); }

cudaError_t submit_copy(runtime& r, held_lock& held, void* to, void const* from, rows what, cudaMemcpyKind kind,
                        cudaStream_t stream, host_waits waits) {
  timeline* t = find_stream(r, stream);
  if (t == nullptr) return cudaErrorInvalidResourceHandle;
  if (cudaError_t const code = admit(r, *t, waits); code != cudaSuccess) return code;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (what.pitched() && !(fits(what, what.to_pitch) && fits(what, what.from_pitch))) return cudaErrorInvalidPitchValue;
  if (what.empty()) return cudaSuccess;
  copy_ends ends;
  if (cudaError_t const code = look_up_ends(r, *t, to, from, what, kind, ends); code != cudaSuccess) return code;

  bool const captured = t->capture != nullptr;  // then the bytes are read by each launch
  bool const from_pageable = ends.from.pageable() && !ends.on_host() && !captured;
  bool const waits_for_end =
      !captured && (ends.on_host() || (waits == host_waits::as_documented && !from_pageable && !ends.on_device()));
  if (from_pageable && waits == host_waits::as_documented) {
    std::uint64_t const id = t->id;
    synchronize(r, held, *t);
    t = find_timeline(r, id);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
  }
  auto const tell = [&](order_checker& check, mark m) {
    check_rows(check, *t, m, from, what, ends.to.device_only() ? use::read : use::read_back);
    check_rows(check, *t, m, to, what, use::write);
    if (ends.on_device()) carry_rows(check, *t, to, from, what);
  };
  if (from_pageable && (streams_are_fibers || r.how != mode::immediate)) {
    rows stored = what;
    stored.from_pitch = what.width;
    stored.from_slice = what.width * what.height;
    submit_and_wait(r, held, *t, operation_kind::copy, waits_for_end, tell,
                    [to, data = staged(from, what), stored](held_lock& lock) mutable {
                      unlocked(lock, [to, data = std::move(data), stored] { move(to, data->data(), stored); });
                    });
  } else {
    submit_and_wait(r, held, *t, operation_kind::copy, waits_for_end, tell,
                    [to, from, what](held_lock& lock) { unlocked(lock, [to, from, what] { move(to, from, what); }); });
  }
  return cudaSuccess;
}

cudaError_t copy(call which, void* to, void const* from, rows what, cudaMemcpyKind kind, cudaStream_t stream,
                 host_waits waits) {
  return api(which,
             [&](runtime& r, held_lock& held) { return submit_copy(r, held, to, from, what, kind, stream, waits); });
}

namespace {

pages_of_memory pages_of(range const& what) {
  if (!what.ours) return pages_of_memory::program;
  return what.is(memory_kind::mapped) ? pages_of_memory::views : pages_of_memory::heap;
}

// `fill(row, pages)` sets one row.
template <class Fill>
cudaError_t set_rows(call which, void* to, rows what, cudaStream_t stream, host_waits waits, Fill fill) {
  return api(which, [&](runtime& r, held_lock& held) {
    timeline* const t = find_stream(r, stream);
    if (t == nullptr) return cudaErrorInvalidResourceHandle;
    if (cudaError_t const code = admit(r, *t, waits); code != cudaSuccess) return code;
    if (what.pitched() && !fits(what, what.to_pitch)) return cudaErrorInvalidValue;
    if (what.empty()) return cudaSuccess;
    std::size_t const bytes = what.to_bytes();
    range const target = look_up(r, to, bytes, t->capture != nullptr);
    if (!target.valid && r.check != nullptr) r.check->access(*t, r.check->act(t), to, bytes, false, use::write);
    if (!target.valid || !target.reached_by_devices()) return cudaErrorInvalidValue;
    bool const waits_for_end = waits == host_waits::as_documented && !target.device_only();
    auto const tell = [&](order_checker& check, mark m) { check_rows(check, *t, m, to, what, use::write); };
    submit_and_wait(
        r, held, *t, operation_kind::set, waits_for_end, tell,
        [to, fill, what, pages = pages_of(target)](held_lock& lock) {
          unlocked(lock, [to, fill, what, pages] {
            each_row(what, [&](std::size_t row, std::size_t) { fill(static_cast<unsigned char*>(to) + row, pages); });
          });
        });
    return cudaSuccess;
  });
}

}  // namespace

cudaError_t set(call which, void* to, int value, rows what, cudaStream_t stream, host_waits waits) {
  return set_rows(which, to, what, stream, waits,
                  [value, bytes = what.width](unsigned char* row, pages_of_memory pages) {
                    if (value == 0) return zero(row, bytes, pages);
                    std::memset(row, value, bytes);
                  });
}

cudaError_t set_elements(call which, void* to, unsigned value, std::size_t width, std::size_t count,
                         cudaStream_t stream) {
  rows const all{times(count, width)};
  return set_rows(which, to, all, stream, host_waits::no, [value, width, count](unsigned char* first, pages_of_memory) {
    for (std::size_t i = 0; i < count; ++i) std::memcpy(first + i * width, &value, width);  // its lowest bytes
  });
}

}  // namespace weir::sim::detail
