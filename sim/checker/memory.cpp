// The happens-before checker's view of CUDA's memory: allocated, used, freed.

#include "checker/checker.hpp"
#include "checker/ranges.hpp"
#include "model/heap.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace weir::sim::detail {
namespace {

constexpr std::size_t most_frees_remembered = 10'000;
constexpr std::size_t most_quarantined = most_frees_remembered;
constexpr std::size_t most_bytes_quarantined = std::size_t{64} << 20;

bool is_inside(std::uint64_t owner) {
  thread_state const& me = this_thread();
  for (unsigned i = 0; i < me.inside_depth && i < me.inside.size(); ++i)
    if (me.inside[i] == owner) return true;
  return false;
}

}  // namespace

void order_checker::allocated(timeline const* t, void const* p, std::size_t bytes, bool on_host) {
  mark const m = t == nullptr ? act(nullptr) : operate(*t);
  std::uintptr_t const begin = address_of(p);
  std::uintptr_t const end = begin + bytes;
  for (auto old = overlapping(freed_memory_, begin, end); old != freed_memory_.end();
       old = overlapping(freed_memory_, begin, end))
    freed_memory_.erase(old);
  forget_freed_blocks(begin, end);
  region made;
  made.end = end;
  made.allocated = m;
  made.on_host = on_host;
  memory_[begin] = std::move(made);
  if (captured_work* const graph = work_captured_by(t)) {
    graph->own.insert(m.operation);
    graph->leaves[begin] = {end, m.operation};
  }
}

void order_checker::freed(timeline const* t, void const* p, int waits_for) {
  mark const m = t == nullptr ? act(nullptr) : operate(*t);
  auto const found = memory_.find(address_of(p));
  if (found == memory_.end()) return;  // older than the check
  vector_clock known = view(t);
  if (waits_for >= 0) known.join(end_of_device(waits_for));
  if (captured_work* const graph = work_captured_by(t)) {
    graph->frees.insert(m.operation);
    graph->leaves.erase(found->first);
  }
  free_memory(found, m, known);
}

void order_checker::free_memory(regions::iterator found, mark m, vector_clock const& known) {
  region r = std::move(found->second);
  r.uses.add(r.allocated);
  if (auto const missing = r.uses.missing_in(known)) {
    bool const unused = missing->operation == r.allocated.operation;
    report(order_problem::free_not_after_use, "memory " + range_text(found->first, r.end) + ", " +
                                                  (unused ? "allocated" : "used") + " by " + describe(*missing) +
                                                  ", is freed by " + describe(m) + ", which does not come after that" +
                                                  missing_edge(*missing, m.slot, known));
  }
  release_range(0, found->first, r, m, &known);
  remember_freed_memory(found->first, {r.end, 0, m, {}, r.allocated.operation});
  memory_.erase(found);
}

void order_checker::remember_freed_memory(std::uintptr_t begin, freed_range g) {
  frees_.emplace_back(begin, g.freed.operation);
  freed_memory_[begin] = std::move(g);
  if (frees_.size() <= most_frees_remembered) return;
  auto const [oldest, freed] = frees_.front();
  frees_.pop_front();
  auto const dead = freed_memory_.find(oldest);
  if (dead != freed_memory_.end() && dead->second.freed.operation == freed) freed_memory_.erase(dead);
}

void order_checker::taken_back(void const* p) {
  auto const found = memory_.find(address_of(p));
  if (found == memory_.end()) return;
  forget_freed_blocks(found->first, found->second.end);
  remember_freed_memory(found->first, {found->second.end, 0, act(nullptr), {}, found->second.allocated.operation});
  memory_.erase(found);
}

void order_checker::forget(void const* p) {
  auto const found = memory_.find(address_of(p));
  if (found == memory_.end()) return;
  forget_freed_blocks(found->first, found->second.end);
  memory_.erase(found);
}

void order_checker::refused_free(timeline const* t, void const* p) {
  if (p == nullptr) return;
  mark const refused{t == nullptr ? here() : slot_of(*t), this_thread().call, ++last_};  // orders nothing
  std::string const freed = "memory " + hex(address_of(p)) + " is freed by " + describe(refused);
  std::uintptr_t const begin = address_of(p);
  if (auto const dead = overlapping(freed_memory_, begin, begin + 1); dead != freed_memory_.end()) {
    report(order_problem::double_free, freed + ", but it was freed already, by " + describe(dead->second.freed));
  } else if (auto const live = around(memory_, begin); live != memory_.end()) {
    report(order_problem::foreign_free, freed + ", but it lies " + std::to_string(begin - live->first) +
                                            " B into the allocation " + range_text(live->first, live->second.end) +
                                            ", or that has another kind of free");
  } else {
    report(order_problem::foreign_free, freed + ", but CUDA never allocated it");
  }
}

freed_ranges::iterator order_checker::freed_in(std::uintptr_t begin, std::uintptr_t end) {
  auto found = overlapping(freed_memory_, begin, end);
  while (found != freed_memory_.end() && found->first < end && found->second.gone) ++found;
  return found != freed_memory_.end() && found->first < end ? found : freed_memory_.end();
}

bool order_checker::is_freed(void const* p, std::size_t bytes) {
  return freed_in(address_of(p), address_of(p) + bytes) != freed_memory_.end();
}

// Once the host's heap has a block again, its address may be that of any other object of the program.
bool order_checker::quarantine(void* p, std::size_t bytes) {
  auto const dead = freed_memory_.find(address_of(p));
  if (dead == freed_memory_.end() || dead->second.gone) return false;
  // The thread sanitizer sees such uses itself if the memory goes back to the heap at once.
  if (streams_are_fibers || bytes > most_bytes_quarantined) {
    dead->second.gone = true;
    return false;
  }
  quarantine_.push_back({{p, {bytes, [](void* block, std::size_t size) { give_to_heap(block, size, false); }}}, 0});
  quarantine_bytes_ += bytes;
  forbid(p, bytes);
  while (quarantine_.size() > most_quarantined || quarantine_bytes_ > most_bytes_quarantined) release_oldest();
  return true;
}

void order_checker::release_oldest() {
  kept_block const oldest = std::move(quarantine_.front());
  quarantine_.pop_front();
  quarantine_bytes_ -= oldest.memory.get_deleter().bytes;
  auto const dead = freed_memory_.find(address_of(oldest.memory.get()));
  if (dead != freed_memory_.end()) dead->second.gone = true;
}

template <class What, class Where>
void order_checker::note_contents(range_used const& u, region& r, std::uintptr_t first, std::uintptr_t last, bool looks,
                                  What what, Where where) {
  if (!options_.uninitialised && !options_.read_back) return;
  written_ranges& written = written_in(r);
  looks = looks && (u.how == use::read_back || (u.how == use::read && options_.uninitialised));
  auto const gap = looks ? written.gap(first, last) : std::nullopt;
  if (gap)
    report(order_problem::uninitialised_read, what() + ", is read, but nobody wrote what lies " + std::to_string(*gap) +
                                                  " B into the " + where() + " since its allocation by " +
                                                  describe(r.allocated));
  if (u.how == use::write || gap) written.add(first, last);  // said once is enough
}

void order_checker::use_region(range_used const& u, level const& l, vector_clock const& known, bool innermost) {
  std::uintptr_t const begin = l.found->first;
  region& r = l.found->second;
  heap const* const of = l.of;
  auto const what = [&] { return "the range " + range_text(u.begin, u.end) + ", used by " + describe(u.by); };
  auto const where = [&] {
    std::string const kind = r.physical != 0 ? "view " : of == nullptr ? "allocation " : "block of " + of->name + " ";
    return kind + range_text(begin, r.end);
  };
  if (l.end > r.end)
    report(order_problem::out_of_bounds,
           what() + ", begins in the " + where() + " and leaves it by " + std::to_string(l.end - r.end) + " B");
  if (u.graph != nullptr) {
    captured_access& all = u.graph->uses[{l.begin, std::min(l.end, r.end), r.block(), l.owner}];
    all.writes = all.writes || u.how == use::write;
    all.direct = all.direct || innermost;
    all.by.add(u.by);
    if (!u.graph->own.contains(r.allocated.operation)) return;  // the launches use it, where they are made
  }
  if (!known.knows(r.allocated))
    report(order_problem::use_before_allocation,
           what() + ", was allocated by " + describe(r.allocated) + not_after(r.allocated, u.by.slot, known));
  if (u.by_host && innermost)  // of one block, not of all that is cut from the same memory
    if (auto const missing = (u.how != use::write ? r.writes : r.uses).missing_in(known, u.by.operation))
      report(order_problem::host_access_not_after_use,
             what() + ", is still " + (r.writes.missing_in(known, u.by.operation) ? "written" : "read") + " by " +
                 describe(*missing) + ", which " + name(u.by.slot) + " has not waited for" +
                 missing_edge(*missing, u.by.slot, known));
  r.uses.add(u.by);
  if (u.how == use::write) r.writes.add(u.by);
  if (r.physical != 0) {
    auto const other = use_view(*l.found, l.begin, l.end, {0, 0, u.by, u.how == use::write}, known);
    if (other) report_two_views(what(), u.by, *other, known);
  }
  note_contents(u, r, l.begin - begin, std::min(l.end, r.end) - begin, innermost && !r.on_host, what, where);
}

// A host function runs late: by then the memory may be another allocation's, and have later uses.
bool order_checker::is_later(region const& r, range_used const& u) { return r.allocated.operation > u.by.operation; }

void order_checker::find_memory(range_used const& u) {
  auto found = around(memory_, u.begin);
  if (found == memory_.end() || is_later(found->second, u)) return;
  levels_.push_back({&*found, nullptr, 0, u.begin, u.end});
  for (auto next = std::next(found); side_by_side(found, next) && found->second.end < u.end; found = next++) {
    levels_.back().end = found->second.end;
    levels_.push_back({&*next, nullptr, 0, next->first, u.end});
  }
}

void order_checker::use_regions(range_used const& u) {
  levels_.clear();
  find_memory(u);
  for (auto& [id, h] : heaps_) {
    if (h.live.empty() || is_inside(id)) continue;
    if (auto const found = around(h.live, u.begin); found != h.live.end() && !is_later(found->second, u))
      levels_.push_back({&*found, &h, id, u.begin, u.end});
  }
  if (levels_.empty() && u.graph != nullptr) use_left(u);
  // The block that was cut last is the user's; those that it was cut from belong to the layers between.
  auto const innermost = std::max_element(levels_.begin(), levels_.end(), [](level const& a, level const& b) {
    return a.found->second.allocated.operation < b.found->second.allocated.operation;
  });
  for (auto l = levels_.begin(); l != levels_.end(); ++l) {
    bool const is_innermost = l == innermost || (l->of == nullptr && innermost->of == nullptr);
    if (is_innermost || options_.host == host_clocks::one)
      use_region(u, *l, u.known, is_innermost);
    else
      use_region(u, *l, with_stacks(u.known), false);
  }
}

void order_checker::use_freed(range_used const& u, bool valid) {
  auto const what = [&] { return "the range " + range_text(u.begin, u.end) + ", used by " + describe(u.by); };
  auto const freed = [&](freed_range const& g) {
    return " that was freed by " + describe(g.freed) + ", before this call was made";
  };
  if (!valid && around(memory_, u.begin) == memory_.end()) {
    auto const dead = freed_in(u.begin, u.end);
    if (dead == freed_memory_.end())
      report(order_problem::out_of_bounds,
             what() + (state().virtual_memory.is_reserved(u.begin) ? ", begins where nothing is mapped"
                                                                   : ", runs into memory of CUDA's that begins later"));
    else if (dead->second.freed.operation < u.by.operation)  // host functions run late
      report(order_problem::use_after_free, what() + ", lies in memory" + freed(dead->second));
  }
  auto const dead = overlapping(freed_blocks_, u.begin, u.end);
  if (dead != freed_blocks_.end() && dead->second.freed.operation < u.by.operation && !is_inside(dead->second.owner))
    report(order_problem::use_after_free,
           what() + ", lies in a block of " + name_of_owner(dead->second.owner) + freed(dead->second));
}

regions::value_type* order_checker::innermost_at(std::uintptr_t address) {
  auto const memory = around(memory_, address);
  regions::value_type* last = memory == memory_.end() ? nullptr : &*memory;
  for (auto& [id, h] : heaps_)
    if (auto const found = around(h.live, address); found != h.live.end())
      if (last == nullptr || found->second.allocated.operation > last->second.allocated.operation) last = &*found;
  return last;
}

void order_checker::carry_unwritten(timeline const& t, void const* from, void const* to, std::size_t bytes) {
  regions::value_type* const source = innermost_at(address_of(from));
  regions::value_type* const target = innermost_at(address_of(to));
  if (!options_.read_back || source == nullptr || target == nullptr) return;
  captured_work const* const graph = work_captured_by(&t);
  auto const is_own = [&](regions::value_type const& r) { return graph->own.contains(r.second.allocated.operation); };
  if (graph != nullptr && !(is_own(*source) && is_own(*target))) return;
  std::uintptr_t const first = address_of(from) - source->first;
  written_ranges& written = written_in(target->second);
  written_in(source->second).for_each_gap(first, first + bytes, [&](std::uintptr_t begin, std::uintptr_t end) {
    std::uintptr_t const at = address_of(to) - target->first - first;
    written.remove(at + begin, at + end);
  });
}

void order_checker::access(timeline const& t, mark m, void const* p, std::size_t bytes, bool valid, use how) {
  std::uintptr_t const begin = address_of(p);
  stream_state const& s = streams_[slot_of(t)];
  range_used u{begin, begin + bytes, m, valid ? s.clock : ahead(s), how, false, work_captured_by(&t)};
  if (this_thread().inside_depth > 0) u.known.join(stacks_);
  use_regions(u);
  use_freed(u, valid);
}

void order_checker::host_access(void const* p, std::size_t bytes, bool valid, use how) {
  std::uintptr_t const begin = address_of(p);
  host_function_place const* const function = this_thread().host_function;
  if (function != nullptr && function->check != number_) return;  // launched before this check began, or by a graph
  range_used const u{begin,
                     begin + bytes,
                     function != nullptr ? function->at : act(nullptr),
                     function != nullptr ? function->known : host(),
                     how,
                     true,
                     nullptr};
  use_regions(u);
  use_freed(u, valid);
}

}  // namespace weir::sim::detail
