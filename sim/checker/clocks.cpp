// The happens-before checker's clocks: what each call adds to those of streams, events and the host.

#include "checker/checker.hpp"
#include "model/capture.hpp"

#include <algorithm>
#include <utility>

namespace weir::sim::detail {

slot_number order_checker::slot_of(timeline const& t) {
  here();  // may add a slot: before anyone holds a reference to one
  auto const [found, is_new] = slots_.try_emplace(acting_id(t), host_slot);
  if (!is_new) return found->second;
  vector_clock const known = host();
  slot_number slot = static_cast<slot_number>(streams_.size());
  // What asks for the end of a legacy stream is no work of it, and must not order it: those have slots of their own.
  auto const reusable = std::find_if(ended_slots_.begin(), ended_slots_.end(), [&](slot_number ended) {
    return !t.legacy && known[ended] >= streams_[ended].clock[ended];
  });
  bool const is_reused = reusable != ended_slots_.end();
  if (is_reused) {
    slot = *reusable;
    ended_slots_.erase(reusable);
  } else {
    streams_.emplace_back();
  }
  stream_state& s = streams_[slot];
  s = {};
  s.id = t.id;
  s.device = t.device;
  s.captured = t.capture != nullptr;
  s.blocking = !s.captured && t.blocking();
  s.legacy = t.legacy;
  s.open = true;
  if (is_reused) s.clock = known;  // otherwise its operations will say what they come after
  return found->second = slot;
}

slot_number order_checker::here() {
  if (options_.host == host_clocks::one) return host_slot;
  thread_state& me = this_thread();
  if (me.check != number_) {
    me.check = number_;
    me.slot = threads_ == 0 ? host_slot : static_cast<slot_number>(streams_.size());
    if (threads_ != 0) streams_.emplace_back();
    streams_[me.slot].thread = ++threads_;
    streams_[me.slot].clock.join(told_);
  }
  return me.slot;
}

void order_checker::host_saw(vector_clock const& seen) {
  host().join(seen);
  tell_stacks();
}

void order_checker::host_function_begins(host_function_place const& place) {
  if (!options_.host_functions_tell || place.check != number_) return;
  told_.join(place.known);
  for (stream_state& s : streams_)
    if (s.thread != 0 || &s == &streams_[host_slot]) s.clock.join(place.known);
}

void order_checker::tell_stacks() {
  if (options_.host == host_clocks::per_thread && this_thread().inside_depth > 0) stacks_.join(host());
}

vector_clock order_checker::with_stacks(vector_clock known) const {
  known.join(stacks_);
  return known;
}

void order_checker::host_released(void const* place) {
  if (options_.host == host_clocks::per_thread) places_[place].join(host());
}

void order_checker::host_acquired(void const* place) {
  auto const found = places_.find(place);
  if (found != places_.end()) host().join(found->second);
}

host_function_place order_checker::host_function(timeline const& t, mark at) {
  // A host function of a graph has its place by the launch, which is not known here.
  return {t.capture == nullptr ? number_ : 0, at, streams_[slot_of(t)].clock};
}

vector_clock order_checker::ahead(stream_state const& s) {
  vector_clock known = s.clock;
  known.join(host());
  device_clocks const& device = devices_[static_cast<std::size_t>(s.device)];
  if (s.blocking) known.join(device.legacy);
  if (s.legacy) {
    known.join(device.ended_blocking);
    for (stream_state const& other : streams_)
      if (other.open && other.blocking && other.device == s.device) known.join(other.clock);
  }
  return known;
}

mark order_checker::operate(timeline const& t) {
  slot_number const slot = slot_of(t);
  stream_state& s = streams_[slot];
  s.clock = ahead(s);
  mark const m{slot, this_thread().call, ++last_};
  s.clock.set(slot, m.operation);
  if (s.legacy) clocks_of(s.device).legacy = s.clock;
  return m;
}

void order_checker::record(timeline const& t, event_state& e) {
  slot_number const slot = slot_of(t);
  stream_state& s = streams_[slot];
  s.clock = ahead(s);
  if (s.legacy) clocks_of(s.device).legacy = s.clock;
  mark const m{slot, this_thread().call, ++last_};
  if (options_.warnings) warn_of_lost_record(e, m);
  e.seen = s.clock;
  e.recorded_by = m;
  e.recorded_on = streams_[m.slot].id;
  e.waited_for = false;
  s.last_event = e.number;
  s.last_event_at = m.operation;
}

void order_checker::wait(timeline const& t, event_state& e) {
  mark const m = operate(t);
  stream_state& s = streams_[m.slot];
  if (options_.warnings) warn_of_stale_wait(e, m, s.clock);
  e.waited_for = true;
  s.clock.join(e.seen);
  if (s.legacy) clocks_of(s.device).legacy = s.clock;
}

vector_clock order_checker::end_of(timeline const& t) {
  if (!t.legacy && !slots_.contains(acting_id(t))) return {};  // it did nothing yet
  stream_state const& s = streams_[slot_of(t)];
  return s.legacy ? ahead(s) : s.clock;
}

vector_clock order_checker::end_of_device(int device) const {
  vector_clock all = devices_[static_cast<std::size_t>(device)].ended;
  for (stream_state const& s : streams_)
    if (s.open && !s.captured && s.device == device) all.join(s.clock);
  return all;
}

void order_checker::stream_ended(timeline const& t) {
  auto const found = slots_.find(t.id);
  if (found == slots_.end()) return;
  stream_state& s = streams_[found->second];
  s.open = false;
  clocks_of(s.device).ended.join(s.clock);
  if (s.blocking) clocks_of(s.device).ended_blocking.join(s.clock);
  ended_slots_.push_back(found->second);
  slots_.erase(found);
}

vector_clock order_checker::view(timeline const* t) {
  vector_clock known = t == nullptr ? host() : ahead(streams_[slot_of(*t)]);
  if (this_thread().inside_depth > 0) known.join(stacks_);
  return known;
}

mark order_checker::act(timeline const* t) {
  mark const m{t == nullptr ? here() : slot_of(*t), this_thread().call, ++last_};
  if (t == nullptr) {
    host().set(m.slot, m.operation);
    tell_stacks();
  } else {
    stream_state& s = streams_[m.slot];
    s.clock.set(m.slot, m.operation);
    // Blocking streams come after the legacy stream's work so far. They come after what the legacy stream in turn waits
    // for only once it gets an operation of CUDA's.
    if (s.legacy) clocks_of(s.device).legacy.set(m.slot, m.operation);
  }
  return m;
}

}  // namespace weir::sim::detail
