// The happens-before checker's view of blocks that others hand out: their owners, their reuse, the memory under them.

#include "checker/checker.hpp"
#include "checker/ranges.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace weir::sim::detail {

// A block that was just handed out.
struct order_checker::new_block {
  std::uintptr_t begin, end;
  heap& of;
  mark by;
  vector_clock known;  // what comes before
};

std::string order_checker::describe(new_block const& b) const {
  return "block " + range_text(b.begin, b.end) + " of " + b.of.name + ", handed out by " + describe(b.by);
}

void order_checker::check_overlap(new_block const& b, std::uintptr_t begin, std::uintptr_t end) {
  auto& live = b.of.live;
  for (auto old = overlapping(live, begin, end); old != live.end(); old = overlapping(live, begin, end)) {
    report(order_problem::overlap, describe(b) + ", overlaps the live block " +
                                       range_text(old->first, old->second.end) + " handed out by " +
                                       describe(old->second.allocated));
    live.erase(old);
  }
}

void order_checker::check_reuse(new_block const& b, std::uintptr_t begin, std::uintptr_t end) {
  for (auto old = overlapping(freed_blocks_, begin, end); old != freed_blocks_.end() && old->first < end; ++old) {
    if (auto const missing = old->second.before.missing_in(b.known)) {
      mark const freed = old->second.freed;
      bool const last_was_free = missing->slot == freed.slot && missing->operation == freed.operation;
      report(order_problem::unordered_reuse, describe(b) + ", was freed by " + describe(freed) +
                                                 (last_was_free ? "" : " and last used by " + describe(*missing)) +
                                                 not_after(*missing, b.by.slot, b.known));
    }
  }
}

void order_checker::check_other_views(new_block const& b) {
  for (auto view = overlapping(memory_, b.begin, b.end); view != memory_.end() && view->first < b.end; ++view) {
    if (view->second.physical == 0) return;
    std::uintptr_t const first = std::max(b.begin, view->first) - view->first;
    std::uintptr_t const end = std::min(b.end, view->second.end) - view->first;
    for (std::uintptr_t const other : physical_[view->second.physical].views) {
      if (other == view->first) continue;
      check_overlap(b, other + first, other + end);
      check_reuse(b, other + first, other + end);
    }
  }
}

void order_checker::check_memory_under(new_block const& b, regions::iterator under) {
  if (under == memory_.end()) {
    if (freed_in(b.begin, b.end) != freed_memory_.end())
      report(order_problem::outside_memory, describe(b) + ", lies in memory that CUDA has back");
    else if (state().virtual_memory.is_reserved(b.begin))
      report(order_problem::outside_memory, describe(b) + ", lies where nothing is mapped");
    return;
  }
  region const& piece = under->second;
  std::uintptr_t const end = last_view(under, b.end)->second.end;
  if (b.begin < under->first || b.end > end)
    report(order_problem::outside_memory, describe(b) +
                                              ", is not inside the one allocation of CUDA's that it overlaps, " +
                                              range_text(under->first, end));
  else if (!b.known.knows(piece.allocated))
    report(order_problem::use_before_allocation, describe(b) + ", lies in memory allocated by " +
                                                     describe(piece.allocated) +
                                                     not_after(piece.allocated, b.by.slot, b.known));
}

order_checker::heap& order_checker::heap_of(owner const& o) {
  heap& h = heaps_[o.id];
  if (h.name.empty()) h.name = o.name;
  return h;
}

void order_checker::block_allocated(owner const& o, timeline const* t, void const* p, std::size_t bytes,
                                    std::size_t alignment) {
  vector_clock known = with_stacks(view(t));
  std::uintptr_t const begin = address_of(p);
  new_block const b{begin, begin + bytes, heap_of(o), act(t), std::move(known)};
  check_overlap(b, b.begin, b.end);
  check_reuse(b, b.begin, b.end);
  forget_freed_blocks(b.begin, b.end);
  check_other_views(b);
  auto const under = overlapping(memory_, b.begin, b.end);
  check_memory_under(b, under);
  region made;
  made.end = b.end;
  made.alignment = alignment;
  made.allocated = b.by;
  made.on_host = under == memory_.end() || under->second.on_host;
  b.of.live[begin] = std::move(made);
  if (captured_work* const graph = work_captured_by(t)) graph->own.insert(b.by.operation);
}

// A free of what is no live block: `freed` describes it.
void order_checker::report_no_block(owner const& o, std::uintptr_t begin, std::string const& freed) {
  if (auto const dead = overlapping(freed_blocks_, begin, begin + 1); dead != freed_blocks_.end())
    return report(order_problem::double_free, freed + ", was freed already, by " + describe(dead->second.freed));
  regions& all = heap_of(o).live;
  if (auto const live = around(all, begin); live != all.end())
    return report(order_problem::foreign_free, freed + ", is no block: it lies " + std::to_string(begin - live->first) +
                                                   " B into the block " + range_text(live->first, live->second.end));
  if (o.complete) report(order_problem::foreign_free, freed + ", was never handed out");
}

void order_checker::block_freed(owner const& o, std::vector<timeline const*> const& behind, void const* p,
                                std::size_t bytes, std::size_t alignment) {
  timeline const* const t = behind.front();
  vector_clock known;
  for (timeline const* const each : behind) known.join(view(each));
  mark const m = act(t);
  std::uintptr_t const begin = address_of(p);
  heap& h = heap_of(o);
  auto const what = [&] { return "block " + hex(begin) + " of " + h.name + ", freed by " + describe(m); };
  auto const found = h.live.find(begin);
  if (found == h.live.end()) return report_no_block(o, begin, what());
  region r = std::move(found->second);
  h.live.erase(found);
  if (r.end - begin != bytes || r.alignment != alignment)
    report(order_problem::wrong_size,
           what() + " as " + std::to_string(bytes) + " B aligned to " + std::to_string(alignment) +
               ", was handed out as " + std::to_string(r.end - begin) + " B aligned to " + std::to_string(r.alignment));
  r.uses.add(r.allocated);
  captured_work* const graph = work_captured_by(t);
  if (graph != nullptr) graph->frees.insert(m.operation);
  // Memory from outside is used where the graph is launched: there it has to come after all but the graph's own uses.
  bool const from_outside = graph != nullptr && !graph->own.contains(r.allocated.operation);
  if (auto const missing =
          from_outside ? missing_use(*graph, {begin, r.end, r.block(), o.id}, known) : r.uses.missing_in(known)) {
    bool const unused = missing->operation == r.allocated.operation;
    report(order_problem::free_not_after_use, what() + ", was " + (unused ? "allocated" : "last used") + " by " +
                                                  describe(*missing) + not_after(*missing, m.slot, known));
  }
  if (t == nullptr && options_.host == host_clocks::per_thread) {
    stacks_.join(known);
    stacks_.set(m.slot, m.operation);
  }
  vector_clock const before = with_stacks(known);
  release_range(o.id, begin, r, m, from_outside ? nullptr : &before);
  freed_range g{r.end, o.id, m, std::move(r.uses), r.allocated.operation};
  g.before.add(m);
  remember_freed_block(begin, std::move(g));
}

void order_checker::block_freed_nowhere(owner const& o, void const* p) {
  mark const m = act(nullptr);
  std::uintptr_t const begin = address_of(p);
  report(order_problem::free_on_no_stream, "block " + hex(begin) + " of " + std::string(o.name) + " is freed by " +
                                               describe(m) +
                                               " on a stream that is not valid (destroyed, say): nothing is "
                                               "known to come before that free, and nobody can come after it");
  // The owner has the block back all the same. One report is enough, so a later reuse of it is not checked.
  if (auto const h = heaps_.find(o.id); h != heaps_.end()) h->second.live.erase(begin);
}

void order_checker::owner_ended(std::uint64_t id) {
  heaps_.erase(id);
  std::erase_if(freed_blocks_, [id](auto const& dead) { return dead.second.owner == id; });
}

void order_checker::remember_freed_block(std::uintptr_t begin, freed_range g) {
  forget_freed_blocks(begin, g.end);
  freed_blocks_[begin] = std::move(g);
}

void order_checker::forget_freed_blocks(std::uintptr_t begin, std::uintptr_t end) {
  for (auto old = overlapping(freed_blocks_, begin, end); old != freed_blocks_.end();
       old = overlapping(freed_blocks_, begin, end)) {
    std::uintptr_t const first = old->first;
    freed_range g = std::move(old->second);
    freed_blocks_.erase(old);
    if (g.end > end) freed_blocks_[end] = g;
    if (first < begin) {
      g.end = begin;
      freed_blocks_[first] = std::move(g);
    }
  }
}

void order_checker::release_range(std::uint64_t by_owner, std::uintptr_t begin, region const& r, mark by,
                                  vector_clock const* known) {
  for (auto& [id, h] : heaps_) {
    if (id == by_owner) continue;
    for (auto live = h.live.lower_bound(begin); live != h.live.end() && live->first < r.end;) {
      // Whoever cut a block from this region came later; an older one is what the region was cut from.
      bool const cut_from_this = live->second.end <= r.end && live->second.allocated.operation > r.allocated.operation;
      if (!cut_from_this) {
        ++live;
        continue;
      }
      report(order_problem::freed_under_live_block,
             memory_text(by_owner, begin, r.end) + " is freed by " + describe(by) + " while the block " +
                 range_text(live->first, live->second.end) + " of " + h.name + ", handed out by " +
                 describe(live->second.allocated) + ", is live in it");
      live = h.live.erase(live);
    }
  }
  if (known != nullptr) check_pending_in(by_owner, begin, r.end, "freed", by, *known);
  forget_freed_blocks(begin, r.end);
}

void order_checker::check_pending_in(std::uint64_t by_owner, std::uintptr_t begin, std::uintptr_t end, char const* verb,
                                     mark by, vector_clock const& known) {
  for (auto dead = overlapping(freed_blocks_, begin, end); dead != freed_blocks_.end() && dead->first < end; ++dead) {
    if (auto const missing = dead->second.before.missing_in(known))
      report(order_problem::freed_under_pending_work,
             memory_text(by_owner, begin, end) + " is " + verb + " by " + describe(by) + ", though the block at " +
                 hex(dead->first) + " of " + name_of_owner(dead->second.owner) + ", freed by " +
                 describe(dead->second.freed) + ", may still be in use" + missing_edge(*missing, by.slot, known));
  }
}

}  // namespace weir::sim::detail
