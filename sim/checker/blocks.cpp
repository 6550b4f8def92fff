// The happens-before checker's view of blocks that others hand out: their owners, their reuse, the memory under them.

#include "checker/checker.hpp"
#include "checker/ranges.hpp"

#include <algorithm>
#include <utility>

namespace weir::sim::detail {

void order_checker::block_allocated(owner const& o, timeline const* t, void const* p, std::size_t bytes,
                                    std::size_t alignment) {
  vector_clock const known = with_stacks(view(t));
  mark const m = act(t);
  std::uintptr_t const begin = address_of(p);
  std::uintptr_t const end = begin + bytes;
  heap& h = heaps_[o.id];
  if (h.name.empty()) h.name = o.name;
  auto const what = [&] { return "block " + range_text(begin, end) + " of " + h.name + ", handed out by " + who(m); };
  for (auto old = overlapping(h.live, begin, end); old != h.live.end(); old = overlapping(h.live, begin, end)) {
    say(order_problem::overlap, what() + ", overlaps the live block " + range_text(old->first, old->second.end) +
                                    " handed out by " + who(old->second.allocated));
    h.live.erase(old);
  }
  for (auto old = overlapping(dead_blocks_, begin, end); old != dead_blocks_.end();
       old = overlapping(dead_blocks_, begin, end)) {
    if (auto const missing = old->second.before.missing_in(known)) {
      mark const freed = old->second.freed;
      bool const last_was_free = missing->slot == freed.slot && missing->operation == freed.operation;
      say(order_problem::unordered_reuse,
          what() + ", was freed by " + who(freed) + (last_was_free ? "" : " and last used by " + who(*missing)) +
              ", which " + name(m.slot) + " does not come after" + missing_edge(*missing, m.slot, known));
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
      say(order_problem::use_before_allocation, what() + ", lies in memory allocated by " + who(piece.allocated) +
                                                    ", which " + name(m.slot) + " does not come after" +
                                                    missing_edge(piece.allocated, m.slot, known));
  } else if (dead_in(begin, end) != dead_memory_.end()) {
    say(order_problem::outside_memory, what() + ", lies in memory that CUDA has back");
  }
  region made;
  made.end = end;
  made.alignment = alignment;
  made.allocated = m;
  made.on_host = under == memory_.end() || under->second.on_host;
  h.live[begin] = std::move(made);
  if (captured_work* const graph = work_captured_by(t)) graph->own.insert(m.operation);
}

void order_checker::block_freed(owner const& o, timeline const* t, void const* p, std::size_t bytes,
                                std::size_t alignment) {
  vector_clock const known = view(t);
  mark const m = act(t);
  std::uintptr_t const begin = address_of(p);
  heap& h = heaps_[o.id];
  if (h.name.empty()) h.name = o.name;
  auto const what = [&] { return "block " + hex(begin) + " of " + h.name + ", freed by " + who(m); };
  auto const found = h.live.find(begin);
  if (found == h.live.end()) {
    if (auto const dead = overlapping(dead_blocks_, begin, begin + 1); dead != dead_blocks_.end())
      return say(order_problem::double_free, what() + ", was freed already, by " + who(dead->second.freed));
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
  captured_work* const graph = work_captured_by(t);
  if (graph != nullptr) graph->frees.insert(m.operation);
  // Memory from outside is used where the graph is launched: there it has to come after the rest.
  bool const from_outside = graph != nullptr && !graph->own.contains(r.allocated.operation);
  if (auto const missing = r.uses.missing_in(known); missing && !from_outside) {
    bool const unused = missing->operation == r.allocated.operation;
    say(order_problem::free_not_after_use, what() + ", was " + (unused ? "allocated" : "last used") + " by " +
                                               who(*missing) + ", which " + name(m.slot) + " does not come after" +
                                               missing_edge(*missing, m.slot, known));
  }
  if (t == nullptr && options_.host == host_clocks::per_thread) stacks_.join(known);
  vector_clock const behind = with_stacks(known);
  release_range(o.id, begin, r, m, from_outside ? nullptr : &behind);
  grave g{r.end, o.id, m, std::move(r.uses), r.allocated.operation};
  g.before.add(m);
  bury(begin, std::move(g));
}

void order_checker::block_freed_nowhere(owner const& o, void const* p) {
  mark const m = act(nullptr);
  std::uintptr_t const begin = address_of(p);
  say(order_problem::free_on_no_stream, "block " + hex(begin) + " of " + std::string(o.name) + " is freed by " +
                                            who(m) +
                                            " on a stream that is not valid (destroyed, say): nothing is "
                                            "known to come before that free, and nobody can come after it");
  // Its owner has it back all the same. What is said once covers whoever gets it next.
  if (auto const h = heaps_.find(o.id); h != heaps_.end()) h->second.live.erase(begin);
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
                                  vector_clock const* known) {
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
      say(order_problem::freed_under_live_block, what() + range_text(begin, r.end) + " is freed by " + who(by) +
                                                     " while the block " + range_text(live->first, live->second.end) +
                                                     " of " + h.name + ", handed out by " +
                                                     who(live->second.allocated) + ", is live in it");
      live = h.live.erase(live);
    }
  }
  for (auto dead = overlapping(dead_blocks_, begin, r.end); dead != dead_blocks_.end();
       dead = overlapping(dead_blocks_, begin, r.end)) {
    if (auto const missing = known == nullptr ? std::nullopt : dead->second.before.missing_in(*known))
      say(order_problem::freed_under_pending_work,
          what() + range_text(begin, r.end) + " is freed by " + who(by) + ", though the block at " + hex(dead->first) +
              " of " + name_of_owner(dead->second.owner) + ", freed by " + who(dead->second.freed) +
              ", may still be in use" + missing_edge(*missing, by.slot, *known));
    clear_graves(std::max(begin, dead->first), std::min(r.end, dead->second.end));
  }
}

}  // namespace weir::sim::detail
