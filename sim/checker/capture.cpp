// The happens-before checker and graphs. Captured operations have clocks of their own, one for each stream of the
// capture; a launch uses all memory that the graph touches, at the place of the launch.

#include "model/capture.hpp"
#include "checker/checker.hpp"
#include "checker/ranges.hpp"

#include <algorithm>
#include <utility>

namespace weir::sim::detail {

captured_work* order_checker::work_captured_by(timeline const* t) {
  return t == nullptr || t->capture == nullptr ? nullptr : &captures_[t->capture->id];
}

void order_checker::capture_ended(capture_state const& c) {
  for (auto const& [id, s] : c.streams) {
    auto const found = slots_.find(s.check_id);
    if (found == slots_.end()) continue;
    // None of it ran, so that nobody has to wait for it. Only launches run.
    vector_clock const captured = streams_[found->second].clock;
    host().join(captured);
    streams_[found->second].open = false;
    ended_slots_.push_back(found->second);
    slots_.erase(found);
  }
  // What it leaves live is there once the graph was launched, and until then is as good as freed.
  if (auto const found = captures_.find(c.id); found != captures_.end()) {
    for (auto const& [begin, memory] : found->second.leaves) {
      memory_.erase(begin);
      remember_freed_memory(begin, {memory.end, 0, act(nullptr), {}, memory.allocated});
    }
  }
}

left_memory order_checker::left_at(std::uintptr_t begin) const {
  if (auto const live = memory_.find(begin); live != memory_.end()) return {live->second.end, live->second.of_graph};
  for (auto const& [id, graph] : captures_)
    if (auto const found = graph.leaves.find(begin); found != graph.leaves.end()) return found->second;
  return {};
}

std::optional<mark> order_checker::missing_use(captured_work const& graph, captured_use const& of,
                                               vector_clock const& known) {
  for (auto one = graph.uses.lower_bound({of.begin, 0, 0, 0}); one != graph.uses.end() && one->first.begin < of.end;
       ++one) {
    auto const& [use, all] = *one;
    if (use.block != of.block || use.owner != of.owner) continue;
    if (auto const missing = all.by.missing_in(known)) return missing;
  }
  return {};
}

void order_checker::use_left(range_used const& u) {
  for (auto const& [id, graph] : captures_) {
    auto const after = graph.leaves.upper_bound(u.begin);
    if (after == graph.leaves.begin()) continue;
    left_memory const& memory = std::prev(after)->second;
    if (u.begin >= memory.end) continue;
    captured_access& all = u.graph->uses[{u.begin, std::min(u.end, memory.end), memory.allocated, 0}];
    all.writes = all.writes || u.how == use::write;
    all.direct = true;
    return all.by.add(u.by);
  }
}

void order_checker::freed_by_launches(timeline const& t, void const* p) {
  mark const m = operate(t);
  std::uintptr_t const begin = address_of(p);
  left_memory const memory = left_at(begin);
  if (memory.allocated == 0) return;
  captured_work& graph = *work_captured_by(&t);
  graph.frees_of_others[begin] = memory.allocated;
  vector_clock const known = view(&t);
  if (auto const missing = missing_use(graph, {begin, memory.end, memory.allocated, 0}, known))
    report(order_problem::free_not_after_use,
           "memory " + range_text(begin, memory.end) + ", used by " + describe(*missing) + ", is freed by " +
               describe(m) + ", which does not come after that" + missing_edge(*missing, m.slot, known));
}

host_function_place order_checker::launched(timeline const& t, std::uint64_t execution, std::uint64_t graph) {
  if (t.capture != nullptr) {
    add_to_capture(t, graph);
    return {};
  }
  vector_clock& last = executions_[execution];
  slot_number const slot = slot_of(t);
  streams_[slot].clock.join(last);
  mark const m = operate(t);
  last = streams_[slot].clock;
  auto const found = captures_.find(graph);
  host_function_place place{number_, m, last};
  if (found == captures_.end()) return place;  // captured before the check began
  captured_work& done = found->second;
  for (auto const& [begin, memory] : done.leaves) allocate_again(begin, memory, m, last);
  vector_clock const below = with_stacks(last);
  for (auto const& [use, all] : done.uses) {
    vector_clock const& known = all.direct ? last : below;
    if (use.owner == 0)
      replay_on_memory(done, use, all.writes, m, known);
    else
      replay_on_blocks(done, use, all.writes, m, known);
  }
  for (auto const& [begin, allocated] : done.frees_of_others) {
    auto const memory = memory_.find(begin);
    if (memory != memory_.end() && memory->second.of_graph == allocated) free_memory(memory, m, last);
  }
  return place;
}

// It is no launch of the executable graph, and comes after none: those of the outer graph will do all this.
void order_checker::add_to_capture(timeline const& t, std::uint64_t graph) {
  mark const m = operate(t);
  auto const found = captures_.find(graph);
  if (found == captures_.end()) return;
  captured_work const& inner = found->second;
  captured_work& outer = *work_captured_by(&t);
  outer.own.insert(inner.own.begin(), inner.own.end());
  outer.frees.insert(inner.frees.begin(), inner.frees.end());
  for (auto const& [use, all] : inner.uses) {
    captured_access& any = outer.uses[use];
    any.writes = any.writes || all.writes;
    any.direct = any.direct || all.direct;
    any.by.add(m);
  }
}

std::string order_checker::name_of_replay(captured_use const& use, mark m) const {
  return "the range " + range_text(use.begin, use.end) + ", used by a graph launched by " + describe(m);
}

void order_checker::replay_on_region(captured_work const& graph, captured_use const& use, bool writes, mark m,
                                     vector_clock const& known, regions::value_type& found) {
  auto& [begin, r] = found;
  marks allocated;
  allocated.add(r.allocated);
  if (!graph.own.contains(use.block) && allocated.missing_in(known))
    report(order_problem::use_before_allocation, name_of_replay(use, m) + ", was allocated by " +
                                                     describe(r.allocated) + not_after(r.allocated, m.slot, known));
  r.uses.add(m);
  if (writes) r.writes.add(m);
  if (r.physical != 0) {
    auto const other = use_view(found, use.begin, use.end, {0, 0, m, writes}, known);
    if (other) report_two_views(name_of_replay(use, m), m, *other, known);
  }
  if (writes && (options_.uninitialised || options_.read_back))
    written_in(r).add(use.begin - begin, std::min(use.end, r.end) - begin);
}

// By the launch `m`, which comes after what `known` says.
void order_checker::allocate_again(std::uintptr_t begin, left_memory const& memory, mark m, vector_clock const& known) {
  auto const what = [&] { return "memory " + range_text(begin, memory.end) + " of a graph"; };
  if (auto const dead = freed_memory_.find(begin); dead != freed_memory_.end()) {
    mark const freed = dead->second.freed;
    if (!known.knows(freed))
      report(order_problem::unordered_reuse, what() + ", freed by " + describe(freed) + ", is allocated again by " +
                                                 describe(m) + not_after(freed, m.slot, known));
    freed_memory_.erase(dead);
  }
  // What an earlier launch left, this one frees first.
  auto const left = memory_.find(begin);
  if (left != memory_.end() && left->second.of_graph != 0) {
    if (auto const missing = left->second.uses.missing_in(known))
      report(order_problem::free_not_after_use, what() + ", used by " + describe(*missing) + ", is freed by " +
                                                    describe(m) + not_after(*missing, m.slot, known));
  }
  region made;
  made.end = memory.end;
  made.allocated = m;
  made.of_graph = memory.allocated;
  if (options_.uninitialised || options_.read_back) made.written.add(0, memory.end - begin);
  memory_[begin] = std::move(made);
}

void order_checker::replay_on_memory(captured_work const& graph, captured_use const& use, bool writes, mark m,
                                     vector_clock const& known) {
  if (graph.own.contains(use.block)) return;  // its allocation is part of the launch
  auto const found = around(memory_, use.begin);
  if (found != memory_.end() && (found->second.block() == use.block || found->second.physical != 0)) {
    // Of views, what lies there now: a parked pool gets other memory back.
    replay_on_region(graph, use, writes, m, known, *found);
  } else {
    report(order_problem::use_after_free,
           name_of_replay(use, m) +
               ", lies in memory that is not live at this launch: it was freed since the graph was "
               "captured, or the graph that allocates it was not launched");
  }
}

void order_checker::replay_on_blocks(captured_work const& graph, captured_use const& use, bool writes, mark m,
                                     vector_clock const& known) {
  auto const heap_found = heaps_.find(use.owner);
  if (heap_found == heaps_.end()) return;
  heap& h = heap_found->second;
  auto const is_known = [&](operation_number block) { return block == use.block || graph.own.contains(block); };
  auto first = h.live.upper_bound(use.begin);
  if (first != h.live.begin() && std::prev(first)->second.end > use.begin) --first;
  for (auto live = first; live != h.live.end() && live->first < use.end; ++live) {
    region& r = live->second;
    if (is_known(r.allocated.operation)) {
      replay_on_region(graph, use, writes, m, known, *live);
    } else {
      report(order_problem::use_after_free, name_of_replay(use, m) +
                                                ", was freed since the graph was captured: the block " +
                                                range_text(live->first, r.end) + " of " + h.name + ", handed out by " +
                                                describe(r.allocated) + ", is live in it");
    }
  }
  auto dead = freed_blocks_.upper_bound(use.begin);
  if (dead != freed_blocks_.begin() && std::prev(dead)->second.end > use.begin) --dead;
  for (; dead != freed_blocks_.end() && dead->first < use.end; ++dead) {
    freed_range& g = dead->second;
    if (g.owner != use.owner) continue;
    bool const by_graph = graph.own.contains(g.block) || graph.frees.contains(g.freed.operation);
    std::optional<mark> missing;
    if (g.block == use.block && !by_graph) {
      report(order_problem::use_after_free, name_of_replay(use, m) + ", lies in a block of " + h.name +
                                                " that was freed by " + describe(g.freed) + ", before this launch");
    } else if (!by_graph && (missing = g.before.missing_in(known))) {
      report(order_problem::unordered_reuse, name_of_replay(use, m) +
                                                 ", was handed out since the graph was captured and freed by " +
                                                 describe(g.freed) + not_after(*missing, m.slot, known));
    }
    g.before.add(m);
  }
}

}  // namespace weir::sim::detail
