// The happens-before checker's view of virtual memory: views are memory of CUDA's, and two views of one physical memory
// are the same memory at two addresses.

#include "checker/checker.hpp"
#include "checker/ranges.hpp"

#include <algorithm>
#include <utility>

namespace weir::sim::detail {

void order_checker::mapped(std::uintptr_t begin, std::size_t bytes, std::uint64_t physical) {
  forget_freed_blocks(begin, begin + bytes);  // they were of other memory
  auto const [found, is_older] = physical_.try_emplace(physical);
  if (is_older) found->second.written.add(0, bytes);  // than the check, which does not know its contents
  found->second.views.push_back(begin);
  region made;
  made.end = begin + bytes;
  made.allocated = act(nullptr);
  made.physical = physical;
  memory_[begin] = std::move(made);
}

// A block may be live there: whoever parks a pool maps other memory before anyone uses the block again.
void order_checker::unmapped(std::uintptr_t begin, std::uintptr_t end) {
  mark const m = act(nullptr);
  vector_clock const known = view(nullptr);
  check_pending_in(0, begin, end, "unmapped", m, known);
  for (auto v = memory_.lower_bound(begin); v != memory_.end() && v->first < end; v = memory_.erase(v)) {
    region& r = v->second;
    r.uses.add(r.allocated);
    if (auto const missing = r.uses.missing_in(known))
      report(order_problem::free_not_after_use,
             "the view " + range_text(v->first, r.end) + ", used by " + describe(*missing) + ", is unmapped by " +
                 describe(m) + ", which does not come after that" + missing_edge(*missing, m.slot, known));
    remember_freed_memory(v->first, {r.end, 0, m, {}, r.allocated.operation});
    if (auto const under = physical_.find(r.physical); under != physical_.end())
      std::erase(under->second.views, v->first);
  }
}

void order_checker::addresses_gone(std::uintptr_t begin, std::uintptr_t end) {
  freed_memory_.erase(freed_memory_.lower_bound(begin), freed_memory_.lower_bound(end));
  forget_freed_blocks(begin, end);
}

void order_checker::refused_release(std::uint64_t handle) {
  report(order_problem::double_free, "the handle " + hex(handle) + " is released by " + describe(act(nullptr)) +
                                         ", but it is no handle of physical memory: it was released already, or never "
                                         "made");
}

bool order_checker::side_by_side(regions::iterator a, regions::iterator b) const {
  return b != memory_.end() && a->second.physical != 0 && b->second.physical != 0 && a->second.end == b->first;
}

regions::iterator order_checker::last_view(regions::iterator first, std::uintptr_t end) {
  for (auto next = std::next(first); side_by_side(first, next) && first->second.end < end;) first = next++;
  return first;
}

std::optional<view_use> order_checker::use_view(regions::value_type const& view, std::uintptr_t begin,
                                                std::uintptr_t end, view_use now, vector_clock const& known) {
  auto const& [at, r] = view;
  now.view = r.allocated.operation;
  now.at = at;
  return physical_[r.physical].uses.add(begin - at, std::min(end, r.end) - at, now, known);
}

void order_checker::report_two_views(std::string const& what, mark by, view_use const& other,
                                     vector_clock const& known) {
  report(order_problem::unordered_views, what + ", is memory that " + describe(other.by) +
                                             " used through another view of it, at " + hex(other.at) +
                                             not_after(other.by, by.slot, known));
}

}  // namespace weir::sim::detail
