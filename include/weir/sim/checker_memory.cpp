// The happens-before checker's view of CUDA's memory: allocated, used, freed.

#include <weir/sim/checker.hpp>
#include <weir/sim/checker_ranges.hpp>

#include <algorithm>
#include <utility>

namespace weir::sim::detail {
namespace {

bool is_inside(std::uint64_t owner) {
  thread_state const& me = this_thread();
  for (unsigned i = 0; i < me.inside_depth && i < me.inside.size(); ++i)
    if (me.inside[i] == owner) return true;
  return false;
}

}  // namespace

void order_checker::allocated(timeline const* t, void const* p, std::size_t bytes) {
  mark const m = t == nullptr ? act(nullptr) : operate(*t);
  std::uintptr_t const begin = address_of(p);
  std::uintptr_t const end = begin + bytes;
  for (auto old = overlapping(dead_memory_, begin, end); old != dead_memory_.end();
       old = overlapping(dead_memory_, begin, end))
    dead_memory_.erase(old);
  clear_graves(begin, end);
  memory_[begin] = {end, 0, m, {}};
  if (captured_work* const graph = work_captured_by(t)) graph->own.insert(m.operation);
}

void order_checker::freed(timeline const* t, void const* p, int waits_for) {
  mark const m = t == nullptr ? act(nullptr) : operate(*t);
  auto const found = memory_.find(address_of(p));
  if (found == memory_.end()) return;  // older than the check
  vector_clock known = view(t);
  if (waits_for >= 0) known.join(end_of_device(waits_for));
  if (captured_work* const graph = work_captured_by(t)) graph->frees.insert(m.operation);
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
  dead_memory_[found->first] = {r.end, 0, m, {}, r.allocated.operation};
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
  captured_work* const graph = work_captured_by(&t);
  auto const use = [&](regions& all, heap const* of, std::uint64_t owner_id) {
    auto const found = around(all, begin);
    if (found == all.end()) return false;
    region& r = found->second;
    if (end > r.end)
      say(order_problem::out_of_bounds,
          what() + ", begins in the " + (of == nullptr ? "allocation " : "block of " + of->name + " ") +
              range_text(found->first, r.end) + " and leaves it by " + std::to_string(end - r.end) + " B");
    if (graph != nullptr) {
      graph->uses.insert({begin, std::min(end, r.end), r.allocated.operation, owner_id});
      if (!graph->own.contains(r.allocated.operation)) return true;  // the launches use it, where they are made
    }
    marks allocated;
    allocated.add(r.allocated);
    if (allocated.missing_in(known))
      say(order_problem::use_before_allocation, what() + ", was allocated by " + name(r.allocated.slot) +
                                                    at(r.allocated) + ", which " + name(m.slot) +
                                                    " does not come after" + missing_edge(r.allocated, m.slot, known));
    r.uses.add(m);
    return true;
  };
  if (!use(memory_, nullptr, 0) && !valid) {
    auto const dead = overlapping(dead_memory_, begin, end);
    if (dead != dead_memory_.end())
      say(order_problem::use_after_free, what() + ", lies in memory that was freed by " +
                                             name(dead->second.freed.slot) + at(dead->second.freed) +
                                             ", before this call was made");
    else
      say(order_problem::out_of_bounds, what() + ", runs into memory of CUDA's that begins later");
  }
  for (auto& [id, h] : heaps_) {
    if (!h.live.empty() && !is_inside(id)) use(h.live, &h, id);
  }
  auto const dead = overlapping(dead_blocks_, begin, end);
  if (dead != dead_blocks_.end() && !is_inside(dead->second.owner))
    say(order_problem::use_after_free, what() + ", lies in a block of " + name_of_owner(dead->second.owner) +
                                           " that was freed by " + name(dead->second.freed.slot) +
                                           at(dead->second.freed) + ", before this call was made");
}

}  // namespace weir::sim::detail
