#pragma once
// The happens-before checker, internal. Streams, events and the host have vector clocks that grow by the calls; memory
// remembers who allocated, used and freed it; a violation is seen when the call is made.

#include "checker/view_uses.hpp"
#include "checker/written_ranges.hpp"
#include "model/runtime.hpp"
#include "model/vector_clock.hpp"

#include <weir/sim/order.hpp>

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace weir::sim::detail {

/// Memory that someone owns: an allocation of CUDA's, or a block of somebody who hands out blocks.
struct region {
  std::uintptr_t end = 0;
  std::size_t alignment = 0;  // as requested; 0: not known
  mark allocated;
  operation_number of_graph = 0;  // if a launch allocated it: the allocation in the capture, which all launches share
  marks uses, writes;             // writes are uses too
  bool on_host = false;           // the host may write it without telling the check
  written_ranges written;         // from its beginning on; only while reads of unwritten memory are looked for
  std::uint64_t physical = 0;     // of a view: the number of the memory that is mapped there
  /// What it goes by where a graph uses it.
  operation_number block() const { return of_graph != 0 ? of_graph : allocated.operation; }
};

/// What belongs to physical memory, through whichever view it came about. Positions count from its beginning.
struct physical_record {
  std::vector<std::uintptr_t> views;  // their addresses
  view_uses uses;
  written_ranges written;
};

/// Memory that was freed: whoever gets it next has to come after all of `before`.
struct freed_range {
  std::uintptr_t end = 0;
  std::uint64_t owner = 0;  // 0: CUDA
  mark freed;
  marks before;
  operation_number block = 0;  // the number of its allocation
  bool gone = false;           // the host's heap has it, so that a use of it may be one of a new object
};

/// Memory that a graph touches: a range of a block, which goes by the number of its allocation.
struct captured_use {
  std::uintptr_t begin = 0, end = 0;
  operation_number block = 0;
  std::uint64_t owner = 0;
  auto operator<=>(captured_use const&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 sees a 0
};
struct captured_access {
  bool writes = false;  // one of them
  bool direct = false;  // the same, of what is no layer's memory below the block that is used
  marks by;             // in the capture
};
/// Memory that a capture allocates and does not free: each launch allocates it anew.
struct left_memory {
  std::uintptr_t end = 0;
  operation_number allocated = 0;  // in the capture
};
struct captured_work {
  std::set<operation_number> own;                // allocations made in the capture
  std::map<std::uintptr_t, left_memory> leaves;  // by first address
  std::set<operation_number> frees;              // and frees
  std::map<captured_use, captured_access> uses;
  std::map<std::uintptr_t, operation_number> frees_of_others;  // memory that other graphs leave live: its allocation
};

/// How an operation uses memory.
enum class use {
  read,
  write,
  read_back,  // by a copy to the host
};

using regions = std::map<std::uintptr_t, region>;  // by first address; they do not overlap
using freed_ranges = std::map<std::uintptr_t, freed_range>;

/// Guarded by the runtime's mutex.
class order_checker {
 public:
  order_checker(std::uint64_t number, order_options options) : number_(number), options_(options), streams_(1) {}
  std::uint64_t number() const { return number_; }

  // ---- clocks: what each call adds
  /// An operation is queued.
  mark operate(timeline const& t);
  void record(timeline const& t, event_state& e);
  void wait(timeline const& t, event_state& e);
  /// A wait for an event that was never recorded, or a query; null is the host.
  void waited_for_nothing(timeline const* t, event_state const& e);
  /// What the host knows once it has waited for the stream, or for all streams of a device.
  vector_clock end_of(timeline const& t);
  vector_clock end_of_device(int device) const;
  void host_saw(vector_clock const& seen);
  /// A host function is about to run.
  void host_function_begins(host_function_place const& place);
  void host_released(void const* place);
  void host_acquired(void const* place);
  /// The place of a host function that `t` was just given.
  host_function_place host_function(timeline const& t, mark at);
  /// Something other than an operation of CUDA happens at this place: it gets a number, and orders nothing.
  mark act(timeline const* t);
  void stream_ended(timeline const& t);

  // ---- CUDA's memory; `t` is null where the host acts
  void allocated(timeline const* t, void const* p, std::size_t bytes, bool on_host = false);
  /// `waits_for`: the device that the call waits for; -1: none. The free comes after its work, but the program may not
  /// rely on that for anything else.
  void freed(timeline const* t, void const* p, int waits_for = -1);
  /// A free node, in the graph that `t` captures, of memory that another graph leaves live: each launch frees it.
  void freed_by_launches(timeline const& t, void const* p);
  /// CUDA took it back, after the work on it, and nobody freed it.
  void taken_back(void const* p);
  void forget(void const* p);
  /// A free that CUDA refused.
  void refused_free(timeline const* t, void const* p);
  /// Whether some of that memory was freed and not allocated again since.
  bool is_freed(void const* p, std::size_t bytes);
  /// Keeps a freed block from the host's heap for a while, so that a use of it is known to be a use after free. False:
  /// it may go to the heap.
  bool quarantine(void* p, std::size_t bytes);
  /// The operation `m` of `t` reads or writes a range; `valid` is false if CUDA's bookkeeping says that it may not.
  void access(timeline const& t, mark m, void const* p, std::size_t bytes, bool valid, use how);
  /// A copy of `t` within devices: what was not written at its source is not written at its target either. One in a
  /// capture, which does not run, counts within the graph's own memory alone.
  void carry_unwritten(timeline const& t, void const* from, void const* to, std::size_t bytes);
  /// The calling thread, or the host function that it runs, reads or writes a range.
  void host_access(void const* p, std::size_t bytes, bool valid, use how);

  // ---- virtual memory; physical memory goes by its number
  void physical_made(std::uint64_t physical) { physical_[physical]; }
  void physical_gone(std::uint64_t physical) { physical_.erase(physical); }
  /// A release of a handle that is not valid.
  void refused_release(std::uint64_t handle);
  void mapped(std::uintptr_t begin, std::size_t bytes, std::uint64_t physical);
  /// All views in this range were unmapped, at once: nobody waited for their work.
  void unmapped(std::uintptr_t begin, std::uintptr_t end);
  /// Reserved addresses went back: anybody may have them.
  void addresses_gone(std::uintptr_t begin, std::uintptr_t end);

  // ---- blocks of others
  struct owner {
    std::uint64_t id;
    std::string_view name;
    bool complete;  // false: it may have blocks that the checker does not know
  };
  void block_allocated(owner const& o, timeline const* t, void const* p, std::size_t bytes, std::size_t alignment);
  /// By the first of `behind`, after the work of all of them.
  void block_freed(owner const& o, std::vector<timeline const*> const& behind, void const* p, std::size_t bytes,
                   std::size_t alignment);
  /// The free named a stream that is not valid.
  void block_freed_nowhere(owner const& o, void const* p);
  void owner_ended(std::uint64_t id);

  // ---- captures and graphs, which go by the capture's id
  void capture_ended(capture_state const& c);
  /// Returns where the graph's host functions stand: after the launch, as far as that is known. In a capture, where
  /// nothing runs, nowhere.
  host_function_place launched(timeline const& t, std::uint64_t execution, std::uint64_t graph);
  void graph_gone(std::uint64_t graph) { captures_.erase(graph); }
  void execution_gone(std::uint64_t execution) { executions_.erase(execution); }

  std::vector<order_report> reports;
  std::uint64_t report_count = 0;

 private:
  struct stream_state {
    std::uint64_t id = 0;
    int device = 0;
    bool blocking = false;
    bool legacy = false;
    bool open = false;
    bool captured = false;     // stands for a stream that captures
    std::uint64_t thread = 0;  // not 0: a host thread
    vector_clock clock;
    std::uint64_t last_event = 0;
    operation_number last_event_at = 0;
  };
  struct device_clocks {
    vector_clock legacy;                 // of the last operation in the legacy stream
    vector_clock ended, ended_blocking;  // of streams that were destroyed
  };
  struct heap {
    std::string name;
    regions live;
  };

  slot_number slot_of(timeline const& t);
  /// The calling thread's slot and clock; one for all threads, unless each has its own.
  slot_number here();
  vector_clock& host() { return streams_[here()].clock; }
  device_clocks& clocks_of(int device) { return devices_[static_cast<std::size_t>(device)]; }
  /// What the next operation of `s` comes after.
  vector_clock ahead(stream_state const& s);
  /// The same for the stream or, if null, the host.
  vector_clock view(timeline const* t);
  /// `known`, and what threads learnt inside stacks, which pass it on by locks of their own.
  vector_clock with_stacks(vector_clock known) const;
  /// What the calling thread knows, the stack that it is in knows too.
  void tell_stacks();

  // Some operation, or the host, uses a range.
  struct range_used {
    std::uintptr_t begin, end;
    mark by;
    vector_clock known;  // what the use comes after
    use how;
    bool by_host;
    captured_work* graph = nullptr;  // of the capture that the use is part of
  };
  struct level {
    regions::value_type* found;
    heap const* of;  // null: CUDA's
    std::uint64_t owner;
    std::uintptr_t begin, end;  // what is used of it, or beyond it
  };
  void use_regions(range_used const& u);
  /// The memory of CUDA's that is used: one region, or the views side by side that the range reaches over.
  void find_memory(range_used const& u);
  static bool is_later(region const& r, range_used const& u);

  /// Whether `b` is a view that begins where the view `a` ends.
  bool side_by_side(regions::iterator a, regions::iterator b) const;
  /// The last of the views side by side from `first` on that a range up to `end` reaches into.
  regions::iterator last_view(regions::iterator first, std::uintptr_t end);
  /// Remembers a use of [begin, end) through a view; `now` has no view yet. Returns an earlier one through another view
  /// that it had to come after.
  std::optional<view_use> use_view(regions::value_type const& view, std::uintptr_t begin, std::uintptr_t end,
                                   view_use now, vector_clock const& known);
  void report_two_views(std::string const& what, mark by, view_use const& other, vector_clock const& known);
  written_ranges& written_in(region& r) { return r.physical == 0 ? r.written : physical_[r.physical].written; }
  void use_freed(range_used const& u, bool valid);
  /// A use of a region's bytes from `first` to `last`: remembers what was written and, if it `looks`, reports a read of
  /// what nobody wrote. `where` says which region, `what` which use.
  template <class What, class Where>
  void note_contents(range_used const& u, region& r, std::uintptr_t first, std::uintptr_t last, bool looks, What what,
                     Where where);
  /// The block, or else the memory of CUDA's, that was handed out last of those that hold this address.
  regions::value_type* innermost_at(std::uintptr_t address);
  void use_region(range_used const& u, level const& l, vector_clock const& known, bool innermost);
  freed_ranges::iterator freed_in(std::uintptr_t begin, std::uintptr_t end);
  void release_oldest();

  struct new_block;
  heap& heap_of(owner const& o);
  void check_overlap(new_block const& b, std::uintptr_t begin, std::uintptr_t end);
  void check_reuse(new_block const& b, std::uintptr_t begin, std::uintptr_t end);
  /// The same for all other addresses at which the block's memory lies.
  void check_other_views(new_block const& b);
  /// `under`: the memory of CUDA's that the block lies in, if any.
  void check_memory_under(new_block const& b, regions::iterator under);
  void report_no_block(owner const& o, std::uintptr_t begin, std::string const& freed);
  void remember_freed_memory(std::uintptr_t begin, freed_range g);
  void remember_freed_block(std::uintptr_t begin, freed_range g);
  void forget_freed_blocks(std::uintptr_t begin, std::uintptr_t end);
  /// Memory goes back: no block that was cut from it may be live, and what `known` says has to come after all work on
  /// those. `known` is null if that is not known yet.
  void release_range(std::uint64_t by_owner, std::uintptr_t begin, region const& r, mark by, vector_clock const* known);
  /// The part of that which is about freed blocks in [begin, end).
  void check_pending_in(std::uint64_t by_owner, std::uintptr_t begin, std::uintptr_t end, char const* verb, mark by,
                        vector_clock const& known);

  /// What `t` is capturing; null if it is not.
  captured_work* work_captured_by(timeline const* t);
  /// `t`, which captures, is given all that the graph does.
  void add_to_capture(timeline const& t, std::uint64_t graph);
  /// A captured use of what a graph leaves live, but not now.
  void use_left(range_used const& u);
  /// CUDA's memory is freed by `m`, which comes after what `known` says.
  void free_memory(regions::iterator found, mark m, vector_clock const& known);
  /// Memory that some graph leaves live and that begins here; its allocation is 0 if there is none.
  left_memory left_at(std::uintptr_t begin) const;
  /// A use of memory from outside in a capture, which `known` has to come after and does not.
  static std::optional<mark> missing_use(captured_work const& graph, captured_use const& of, vector_clock const& known);
  /// Memory of its own that a launch leaves live.
  void allocate_again(std::uintptr_t begin, left_memory const& memory, mark m, vector_clock const& known);
  void replay_on_memory(captured_work const& graph, captured_use const& use, bool writes, mark m,
                        vector_clock const& known);
  void replay_on_blocks(captured_work const& graph, captured_use const& use, bool writes, mark m,
                        vector_clock const& known);
  void replay_on_region(captured_work const& graph, captured_use const& use, bool writes, mark m,
                        vector_clock const& known, regions::value_type& found);
  std::string name_of_replay(captured_use const& use, mark m) const;

  std::string name(slot_number slot) const;
  /// "cudaMemcpyAsync (operation 7) on stream 9".
  std::string describe(mark m) const;
  std::string describe(new_block const& b) const;
  std::string name_of_owner(std::uint64_t id) const;
  /// "memory 0x7f... of 4096 B", or "block of the pool ...".
  std::string memory_text(std::uint64_t of_owner, std::uintptr_t begin, std::uintptr_t end) const;
  std::string missing_edge(mark missing, slot_number in, vector_clock const& known) const;
  /// ", which stream 10 does not come after; ..." and the missing edge.
  std::string not_after(mark missing, slot_number in, vector_clock const& known) const;
  void warn_of_lost_record(event_state const& e, mark anew);
  void warn_of_stale_wait(event_state const& e, mark by, vector_clock const& known);
  void report(order_problem kind, std::string text);

  std::uint64_t number_;
  order_options options_;
  operation_number last_ = 0;
  std::uint64_t threads_ = 0;
  vector_clock stacks_;  // what threads learnt inside stacks, if each has its own clock
  vector_clock told_;    // what host functions told the host
  std::unordered_map<void const*, vector_clock> places_;  // what was released there
  std::vector<stream_state> streams_;                     // by slot
  std::unordered_map<std::uint64_t, slot_number> slots_;  // by the stream's id
  std::vector<slot_number> ended_slots_;
  std::array<device_clocks, max_devices> devices_;

  regions memory_;  // CUDA's
  std::unordered_map<std::uint64_t, physical_record> physical_;
  freed_ranges freed_memory_;
  std::deque<std::pair<std::uintptr_t, operation_number>> frees_;  // that `freed_memory_` may be of, the oldest first
  std::deque<kept_block> quarantine_;                              // of `freed_memory_`, the oldest first
  std::size_t quarantine_bytes_ = 0;
  std::map<std::uint64_t, heap> heaps_;
  std::map<std::uint64_t, captured_work> captures_;   // by the capture's id
  std::map<std::uint64_t, vector_clock> executions_;  // of executable graphs: what their latest launch came after
  std::vector<level> levels_;                         // that one use is in; kept, so that no use need allocate it
  freed_ranges freed_blocks_;                         // of all owners: memory may pass from one to another
};

/// Calls `wait()`, which makes the host wait; then the host knows what `seen(checker)` said before the wait, since
/// other threads may queue more meanwhile.
template <class Seen, class Wait>
void seeing(runtime& r, Seen seen, Wait wait) {
  if (r.check == nullptr) [[likely]]
    return wait();
  vector_clock const now = seen(*r.check);
  wait();
  if (r.check != nullptr) r.check->host_saw(now);
}

extern void (*report_handler)(order_report const&);

}  // namespace weir::sim::detail
