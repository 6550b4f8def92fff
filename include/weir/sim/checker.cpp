// The happens-before checker: clocks of streams, events and the host, and the memory that they guard.

#include <weir/sim/checker.hpp>

#include <weir/sim/memory.hpp>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace weir::sim::detail {

void (*report_handler)(order_report const&) = nullptr;

namespace {

constexpr std::size_t most_reports = 1000;

std::uintptr_t address_of(void const* p) { return reinterpret_cast<std::uintptr_t>(p); }

std::string hex(std::uintptr_t address) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

std::string range_text(std::uintptr_t begin, std::uintptr_t end) {
  return hex(begin) + " of " + std::to_string(end - begin) + " B";
}

std::string at(mark m) { return " at operation " + std::to_string(m.operation); }

// The region that holds `address`.
regions::iterator around(regions& all, std::uintptr_t address) {
  auto const after = all.upper_bound(address);
  if (after == all.begin()) return all.end();
  auto const found = std::prev(after);
  return address < found->second.end ? found : all.end();
}

// The first that overlaps [begin, end), in either map.
template <class Map>
typename Map::iterator overlapping(Map& all, std::uintptr_t begin, std::uintptr_t end) {
  auto found = all.upper_bound(begin);
  if (found != all.begin() && std::prev(found)->second.end > begin) --found;
  return found != all.end() && found->first < end ? found : all.end();
}

bool is_inside(std::uint64_t owner) {
  thread_state const& me = this_thread();
  for (unsigned i = 0; i < me.inside_depth && i < me.inside.size(); ++i)
    if (me.inside[i] == owner) return true;
  return false;
}

}  // namespace

// ---- clocks
// -----------------------------------------------------------------------------------------------------------

slot_number order_checker::slot_of(timeline const& t) {
  auto const [found, is_new] = slots_.try_emplace(t.id, host_slot);
  if (!is_new) return found->second;
  slot_number slot = static_cast<slot_number>(streams_.size());
  auto const reusable = std::find_if(ended_slots_.begin(), ended_slots_.end(),
                                     [&](slot_number ended) { return host_[ended] >= streams_[ended].clock[ended]; });
  if (reusable != ended_slots_.end()) {
    slot = *reusable;
    ended_slots_.erase(reusable);
  } else {
    streams_.emplace_back();
  }
  stream_state& s = streams_[slot];
  s = {};
  s.id = t.id;
  s.device = t.device;
  s.blocking = t.blocking();
  s.legacy = t.legacy;
  s.open = true;
  s.clock = host_;
  return found->second = slot;
}

vector_clock order_checker::ahead(stream_state const& s) const {
  vector_clock known = s.clock;
  known.join(host_);
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
  mark const m{slot, ++last_};
  s.clock.set(slot, m.operation);
  if (s.legacy) clocks_of(s.device).legacy = s.clock;
  return m;
}

void order_checker::record(timeline const& t, event_state& e) {
  slot_number const slot = slot_of(t);
  stream_state& s = streams_[slot];
  s.clock = ahead(s);
  if (s.legacy) clocks_of(s.device).legacy = s.clock;
  e.seen = s.clock;
  s.last_event = e.number;
  s.last_event_at = ++last_;
}

void order_checker::wait(timeline const& t, event_state const& e) {
  mark const m = operate(t);
  stream_state& s = streams_[m.slot];
  s.clock.join(e.seen);
  if (s.legacy) clocks_of(s.device).legacy = s.clock;
}

vector_clock order_checker::end_of(timeline const& t) {
  stream_state const& s = streams_[slot_of(t)];
  return s.legacy ? ahead(s) : s.clock;
}

vector_clock order_checker::end_of_device(int device) const {
  vector_clock all = devices_[static_cast<std::size_t>(device)].ended;
  for (stream_state const& s : streams_)
    if (s.open && s.device == device) all.join(s.clock);
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

vector_clock order_checker::view(timeline const* t) { return t == nullptr ? host_ : ahead(streams_[slot_of(*t)]); }

mark order_checker::act(timeline const* t) {
  mark const m{t == nullptr ? host_slot : slot_of(*t), ++last_};
  if (t == nullptr) {
    host_.set(host_slot, m.operation);
  } else {
    stream_state& s = streams_[m.slot];
    s.clock.set(m.slot, m.operation);
    // Blocking streams come after the legacy one's work so far. What that stream in turn comes after is theirs only
    // once it gets an operation of CUDA's.
    if (s.legacy) clocks_of(s.device).legacy.set(m.slot, m.operation);
  }
  return m;
}

// ---- CUDA's memory
// ------------------------------------------------------------------------------------------------------

void order_checker::allocated(timeline const* t, void const* p, std::size_t bytes) {
  mark const m = t == nullptr ? act(nullptr) : operate(*t);
  std::uintptr_t const begin = address_of(p);
  std::uintptr_t const end = begin + bytes;
  for (auto old = overlapping(dead_memory_, begin, end); old != dead_memory_.end();
       old = overlapping(dead_memory_, begin, end))
    dead_memory_.erase(old);
  clear_graves(begin, end);
  memory_[begin] = {end, 0, m, {}};
}

void order_checker::freed(timeline const* t, void const* p, int waits_for) {
  mark const m = t == nullptr ? act(nullptr) : operate(*t);
  auto const found = memory_.find(address_of(p));
  if (found == memory_.end()) return;  // older than the check
  vector_clock known = view(t);
  if (waits_for >= 0) known.join(end_of_device(waits_for));
  region r = std::move(found->second);
  r.uses.add(r.allocated);
  if (auto const missing = r.uses.missing_in(known)) {
    bool const unused = missing->operation == r.allocated.operation;
    say(order_problem::free_not_after_use,
        "memory " + range_text(found->first, r.end) + ", " + (unused ? "allocated" : "used") + " by " +
            name(missing->slot) + at(*missing) + ", is freed by " + name(m.slot) + at(m) +
            ", which does not come after that" + missing_edge(*missing, m.slot, known));
  }
  release_range(0, found->first, r, m, known);
  if (dead_memory_.size() > 10'000) dead_memory_.erase(dead_memory_.begin());
  dead_memory_[found->first] = {r.end, 0, m, {}};
  memory_.erase(found);
}

void order_checker::forget(void const* p) {
  auto const found = memory_.find(address_of(p));
  if (found == memory_.end()) return;
  clear_graves(found->first, found->second.end);
  memory_.erase(found);
}

void order_checker::refused_free(timeline const* t, void const* p) {
  if (p == nullptr) return;
  std::string const who = " by " + name(t == nullptr ? host_slot : slot_of(*t));
  std::uintptr_t const begin = address_of(p);
  if (auto const dead = overlapping(dead_memory_, begin, begin + 1); dead != dead_memory_.end()) {
    say(order_problem::double_free, "memory " + hex(begin) + " is freed" + who + ", but it was freed already, by " +
                                        name(dead->second.freed.slot) + at(dead->second.freed));
  } else if (auto const live = around(memory_, begin); live != memory_.end()) {
    say(order_problem::foreign_free, "memory " + hex(begin) + " is freed" + who + ", but it lies " +
                                         std::to_string(begin - live->first) + " B into the allocation " +
                                         range_text(live->first, live->second.end) +
                                         ", or that has another kind of free");
  } else {
    say(order_problem::foreign_free, "memory " + hex(begin) + " is freed" + who + ", but CUDA never allocated it");
  }
}

void order_checker::access(timeline const& t, mark m, void const* p, std::size_t bytes, bool valid) {
  std::uintptr_t const begin = address_of(p);
  std::uintptr_t const end = begin + bytes;
  stream_state const& s = streams_[slot_of(t)];
  vector_clock const known = valid ? s.clock : ahead(s);
  auto const what = [&] { return "the range " + range_text(begin, end) + ", used by " + name(m.slot) + at(m); };
  auto const use = [&](regions& all, heap const* of) {
    auto const found = around(all, begin);
    if (found == all.end()) return false;
    region& r = found->second;
    if (end > r.end)
      say(order_problem::out_of_bounds,
          what() + ", begins in the " + (of == nullptr ? "allocation " : "block of " + of->name + " ") +
              range_text(found->first, r.end) + " and leaves it by " + std::to_string(end - r.end) + " B");
    marks allocated;
    allocated.add(r.allocated);
    if (allocated.missing_in(known))
      say(order_problem::use_before_allocation, what() + ", was allocated by " + name(r.allocated.slot) +
                                                    at(r.allocated) + ", which " + name(m.slot) +
                                                    " does not come after" + missing_edge(r.allocated, m.slot, known));
    r.uses.add(m);
    return true;
  };
  if (!use(memory_, nullptr) && !valid) {
    auto const dead = overlapping(dead_memory_, begin, end);
    if (dead != dead_memory_.end())
      say(order_problem::use_after_free, what() + ", lies in memory that was freed by " +
                                             name(dead->second.freed.slot) + at(dead->second.freed) +
                                             ", before this call was made");
    else
      say(order_problem::out_of_bounds, what() + ", runs into memory of CUDA's that begins later");
  }
  for (auto& [id, h] : heaps_) {
    if (!h.live.empty() && !is_inside(id)) use(h.live, &h);
  }
  auto const dead = overlapping(dead_blocks_, begin, end);
  if (dead != dead_blocks_.end() && !is_inside(dead->second.owner))
    say(order_problem::use_after_free, what() + ", lies in a block of " + name_of_owner(dead->second.owner) +
                                           " that was freed by " + name(dead->second.freed.slot) +
                                           at(dead->second.freed) + ", before this call was made");
}

// ---- blocks of others
// ---------------------------------------------------------------------------------------------------

void order_checker::block_allocated(owner const& o, timeline const* t, void const* p, std::size_t bytes,
                                    std::size_t alignment) {
  vector_clock const known = view(t);
  mark const m = act(t);
  std::uintptr_t const begin = address_of(p);
  std::uintptr_t const end = begin + bytes;
  heap& h = heaps_[o.id];
  if (h.name.empty()) h.name = o.name;
  auto const what = [&] {
    return "block " + range_text(begin, end) + " of " + h.name + ", handed to " + name(m.slot) + at(m);
  };
  for (auto old = overlapping(h.live, begin, end); old != h.live.end(); old = overlapping(h.live, begin, end)) {
    say(order_problem::overlap, what() + ", overlaps the live block " + range_text(old->first, old->second.end) +
                                    " handed to " + name(old->second.allocated.slot) + at(old->second.allocated));
    h.live.erase(old);
  }
  for (auto old = overlapping(dead_blocks_, begin, end); old != dead_blocks_.end();
       old = overlapping(dead_blocks_, begin, end)) {
    if (auto const missing = old->second.before.missing_in(known)) {
      mark const freed = old->second.freed;
      bool const last_was_free = missing->slot == freed.slot && missing->operation == freed.operation;
      say(order_problem::unordered_reuse,
          what() + ", was freed by " + name(freed.slot) + at(freed) +
              (last_was_free ? "" : " and last used by " + name(missing->slot) + at(*missing)) + ", which " +
              name(m.slot) + " does not come after" + missing_edge(*missing, m.slot, known));
    }
    clear_graves(std::max(begin, old->first), std::min(end, old->second.end));
  }
  auto const under = overlapping(memory_, begin, end);
  if (under != memory_.end()) {
    region const& piece = under->second;
    marks ready;
    ready.add(piece.allocated);
    if (begin < under->first || end > piece.end)
      say(order_problem::outside_memory, what() + ", is not inside the one allocation of CUDA's that it overlaps, " +
                                             range_text(under->first, piece.end));
    else if (ready.missing_in(known))
      say(order_problem::use_before_allocation,
          what() + ", lies in memory allocated by " + name(piece.allocated.slot) + at(piece.allocated) + ", which " +
              name(m.slot) + " does not come after" + missing_edge(piece.allocated, m.slot, known));
  } else if (overlapping(dead_memory_, begin, end) != dead_memory_.end()) {
    say(order_problem::outside_memory, what() + ", lies in memory that CUDA has back");
  }
  h.live[begin] = {end, alignment, m, {}};
}

void order_checker::block_freed(owner const& o, timeline const* t, void const* p, std::size_t bytes,
                                std::size_t alignment) {
  vector_clock const known = view(t);
  mark const m = act(t);
  std::uintptr_t const begin = address_of(p);
  heap& h = heaps_[o.id];
  if (h.name.empty()) h.name = o.name;
  auto const what = [&] { return "block " + hex(begin) + " of " + h.name + ", freed by " + name(m.slot) + at(m); };
  auto const found = h.live.find(begin);
  if (found == h.live.end()) {
    if (auto const dead = overlapping(dead_blocks_, begin, begin + 1); dead != dead_blocks_.end())
      return say(order_problem::double_free,
                 what() + ", was freed already, by " + name(dead->second.freed.slot) + at(dead->second.freed));
    auto const live = around(h.live, begin);
    if (live != h.live.end())
      return say(order_problem::foreign_free, what() + ", is no block: it lies " + std::to_string(begin - live->first) +
                                                  " B into the block " + range_text(live->first, live->second.end));
    if (o.complete) say(order_problem::foreign_free, what() + ", was never handed out");
    return;
  }
  region r = std::move(found->second);
  h.live.erase(found);
  if (r.end - begin != bytes || r.alignment != alignment)
    say(order_problem::wrong_size, what() + " as " + std::to_string(bytes) + " B aligned to " +
                                       std::to_string(alignment) + ", was handed out as " +
                                       std::to_string(r.end - begin) + " B aligned to " + std::to_string(r.alignment));
  r.uses.add(r.allocated);
  if (auto const missing = r.uses.missing_in(known)) {
    bool const unused = missing->operation == r.allocated.operation;
    say(order_problem::free_not_after_use, what() + ", was " + (unused ? "allocated" : "last used") + " by " +
                                               name(missing->slot) + at(*missing) + ", which " + name(m.slot) +
                                               " does not come after" + missing_edge(*missing, m.slot, known));
  }
  release_range(o.id, begin, r, m, known);
  grave g{r.end, o.id, m, std::move(r.uses)};
  g.before.add(m);
  bury(begin, std::move(g));
}

void order_checker::owner_ended(std::uint64_t id) {
  heaps_.erase(id);
  std::erase_if(dead_blocks_, [id](auto const& dead) { return dead.second.owner == id; });
}

void order_checker::bury(std::uintptr_t begin, grave g) {
  clear_graves(begin, g.end);
  dead_blocks_[begin] = std::move(g);
}

void order_checker::clear_graves(std::uintptr_t begin, std::uintptr_t end) {
  for (auto old = overlapping(dead_blocks_, begin, end); old != dead_blocks_.end();
       old = overlapping(dead_blocks_, begin, end)) {
    std::uintptr_t const first = old->first;
    grave g = std::move(old->second);
    dead_blocks_.erase(old);
    if (g.end > end) dead_blocks_[end] = g;
    if (first < begin) {
      g.end = begin;
      dead_blocks_[first] = std::move(g);
    }
  }
}

void order_checker::release_range(std::uint64_t by_owner, std::uintptr_t begin, region const& r, mark by,
                                  vector_clock const& known) {
  auto const what = [&] {
    return by_owner == 0 ? std::string("memory ") : "block of " + name_of_owner(by_owner) + " ";
  };
  for (auto& [id, h] : heaps_) {
    if (id == by_owner) continue;
    for (auto live = h.live.lower_bound(begin); live != h.live.end() && live->first < r.end;) {
      // Whoever cut a block from this region came later; an older one is what the region was cut from.
      bool const cut_from_this = live->second.end <= r.end && live->second.allocated.operation > r.allocated.operation;
      if (!cut_from_this) {
        ++live;
        continue;
      }
      say(order_problem::freed_under_live_block,
          what() + range_text(begin, r.end) + " is freed by " + name(by.slot) + at(by) + " while the block " +
              range_text(live->first, live->second.end) + " of " + h.name + ", handed to " +
              name(live->second.allocated.slot) + at(live->second.allocated) + ", is live in it");
      live = h.live.erase(live);
    }
  }
  for (auto dead = overlapping(dead_blocks_, begin, r.end); dead != dead_blocks_.end();
       dead = overlapping(dead_blocks_, begin, r.end)) {
    if (auto const missing = dead->second.before.missing_in(known))
      say(order_problem::freed_under_pending_work,
          what() + range_text(begin, r.end) + " is freed by " + name(by.slot) + at(by) + ", though the block at " +
              hex(dead->first) + " of " + name_of_owner(dead->second.owner) + ", freed by " +
              name(dead->second.freed.slot) + at(dead->second.freed) + ", may still be in use" +
              missing_edge(*missing, by.slot, known));
    clear_graves(std::max(begin, dead->first), std::min(r.end, dead->second.end));
  }
}

// ---- what is said
// -------------------------------------------------------------------------------------------------------

std::string order_checker::name(slot_number slot) const {
  if (slot == host_slot) return "the host";
  stream_state const& s = streams_[slot];
  if (s.legacy) return "the legacy stream of device " + std::to_string(s.device);
  return "stream " + std::to_string(s.id);
}

std::string order_checker::name_of_owner(std::uint64_t id) const {
  auto const found = heaps_.find(id);
  return found == heaps_.end() ? "CUDA" : found->second.name;
}

std::string order_checker::missing_edge(mark missing, slot_number in, vector_clock const& known) const {
  std::string const knower = name(in);
  std::string const other = name(missing.slot);
  operation_number const upto = known[missing.slot];
  std::string text =
      "; " + knower + " knows " + other + (upto == 0 ? " not at all" : " only up to operation " + std::to_string(upto));
  if (missing.slot == host_slot) return text;
  stream_state const& s = streams_[missing.slot];
  std::string const event =
      "event " + std::to_string(s.last_event) + ", recorded at operation " + std::to_string(s.last_event_at);
  if (s.last_event == 0) return text + "; no event was ever recorded on " + other;
  if (s.last_event_at > missing.operation)
    return text + "; " + event + " on " + other + ", stands behind it, but " + knower + " never waited for that";
  return text + "; the last event recorded on " + other + " is too early: " + event;
}

void order_checker::say(order_problem kind, std::string text) {
  ++report_count;
  order_report made{kind, std::move(text)};
  if (report_handler != nullptr) report_handler(made);
  if (reports.size() < most_reports) reports.push_back(std::move(made));
}

}  // namespace weir::sim::detail

// ---- what programs call
// -------------------------------------------------------------------------------------------------

namespace weir::sim {
namespace {

using detail::held_lock;

template <class Action>
void with_checker(Action action) {
  detail::runtime& r = detail::state();
  held_lock const held(r.mutex);
  if (r.check != nullptr) action(r, *r.check);
}

detail::timeline const* stream_in(detail::runtime& r, cudaStream_t stream) {
  return detail::find_stream(r, stream == nullptr ? cudaStreamLegacy : stream);
}

}  // namespace

void check_order(bool on) {
  detail::runtime& r = detail::state();
  held_lock const held(r.mutex);
  r.check.reset();
  // What they saw was in the numbers of an earlier check; all of it is past.
  r.events.for_each([](detail::event_state& e) { e.seen.clear(); });
  if (on) r.check = std::make_unique<detail::order_checker>(++r.checks);
}

std::vector<order_report> reports() {
  std::vector<order_report> result;
  with_checker([&](auto&, auto& check) { result = check.reports; });
  return result;
}

std::uint64_t report_count() {
  std::uint64_t result = 0;
  with_checker([&](auto&, auto& check) { result = check.report_count; });
  return result;
}

void clear_reports() {
  with_checker([](auto&, auto& check) {
    check.reports.clear();
    check.report_count = 0;
  });
}

void set_report_handler(void (*handler)(order_report const&)) {
  held_lock const held(detail::state().mutex);
  detail::report_handler = handler;
}

checked_blocks::checked_blocks(std::string name) : name_(std::move(name)) {
  detail::runtime& r = detail::state();
  held_lock const held(r.mutex);
  id_ = ++r.owners;
  check_ = r.check == nullptr ? 0 : r.check->number();
}

checked_blocks::~checked_blocks() {
  with_checker([this](auto&, auto& check) { check.owner_ended(id_); });
}

void checked_blocks::allocated(cudaStream_t stream, void const* p, std::size_t bytes, std::size_t alignment) {
  with_checker([&](auto& r, auto& check) {
    detail::timeline const* const t = stream_in(r, stream);
    if (t != nullptr) check.block_allocated({id_, name_, check_ == check.number()}, t, p, bytes, alignment);
  });
}

void checked_blocks::allocated_for_all(void const* p, std::size_t bytes, std::size_t alignment) {
  with_checker([&](auto&, auto& check) {
    check.block_allocated({id_, name_, check_ == check.number()}, nullptr, p, bytes, alignment);
  });
}

void checked_blocks::freed(cudaStream_t stream, void const* p, std::size_t bytes, std::size_t alignment) {
  with_checker([&](auto& r, auto& check) {
    detail::timeline const* const t = stream_in(r, stream);
    if (t != nullptr) check.block_freed({id_, name_, check_ == check.number()}, t, p, bytes, alignment);
  });
}

void checked_blocks::freed_by_host(void const* p, std::size_t bytes, std::size_t alignment) {
  with_checker([&](auto&, auto& check) {
    check.block_freed({id_, name_, check_ == check.number()}, nullptr, p, bytes, alignment);
  });
}

checked_blocks::inside::inside(checked_blocks const& blocks) {
  detail::thread_state& me = detail::this_thread();
  if (me.inside_depth < me.inside.size()) me.inside[me.inside_depth] = blocks.id_;
  ++me.inside_depth;
}

checked_blocks::inside::~inside() { --detail::this_thread().inside_depth; }

}  // namespace weir::sim
