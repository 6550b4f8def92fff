#pragma once
// Checks the order of a program on the simulated runtime: every use of memory has to come after its allocation and
// before its free, and every reuse after the last use. It looks at the calls, so it needs no unlucky schedule.

#include <weir/sim/sim.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weir::sim {

/// What can be wrong with the order of a program.
enum class order_problem {
  use_before_allocation,      ///< used on a stream that does not come after the allocation
  use_after_free,             ///< used by a call made after the free was called
  out_of_bounds,              ///< a range that begins in a block and leaves it
  free_not_after_use,         ///< freed (or unmapped) on a stream, or by the host, that does not come after every use
  double_free,                ///< freed, or a handle released, though that was done already
  foreign_free,               ///< freed where it was not allocated, or by a pointer into its middle
  free_on_no_stream,          ///< a block was freed on a stream that is not valid: destroyed, say
  wrong_size,                 ///< freed with another size or alignment than it was allocated with
  overlap,                    ///< a block was handed out that overlaps a live one
  unordered_reuse,            ///< a block was handed out to a stream that does not come after its last free
  outside_memory,             ///< a block was handed out that does not lie in one live piece of CUDA's memory
  freed_under_live_block,     ///< memory went back while a block cut from it is live
  freed_under_pending_work,   ///< memory went back while a block cut from it waits for its last work
  host_access_not_after_use,  ///< the host reads or writes memory whose work it has not waited for
  uninitialised_read,         ///< device memory was read that nobody wrote since its allocation
  unordered_views,            ///< used through two views of one physical memory, and the uses have no order
  // Warnings, only if asked for: calls that are allowed, but order nothing.
  wait_for_nothing,  ///< a wait for an event that was never recorded, or a query of one
  stale_wait,        ///< a wait that adds nothing, for a record that its stream has had more work since
  record_lost        ///< an event recorded anew elsewhere, though nobody waited for its last record
};

/// One violation. The text is a sentence: both operations, their streams, and the edge that is missing between them.
struct order_report {
  order_problem kind;
  std::string text;
};

/// Which host threads count as having waited for what one of them has waited for.
enum class host_clocks {
  one,         ///< all: however the threads order themselves, there is no false report
  per_thread,  ///< that thread, and those that come after it by `host_release` and `host_acquire`
};

/// What else the check looks at.
struct order_options {
  host_clocks host = host_clocks::one;
  /// Report reads of device memory that nobody wrote since it was allocated. Copies count as reads of all they copy.
  bool uninitialised = false;
  /// Report copies to the host of device memory that nobody wrote since it was allocated, such as the result of a
  /// kernel that was skipped. Copies between devices are not reported, and carry on what was not written. A skipped
  /// kernel that would have overwritten what a copy or a set wrote is not seen.
  bool read_back = false;
  /// What a host function comes after, every thread of the host knows once the function has begun: for programs whose
  /// host functions tell their threads that work is done, by an atomic or a condition variable, and cannot say so with
  /// `host_acquire`. One of a graph counts as coming after the whole launch.
  bool host_functions_tell = false;
  /// Report calls that succeed and order nothing, also where no use of memory follows that would show it.
  bool warnings = false;
};

/// Switches the check on or off; `reset` switches it off. Switched on, it forgets earlier reports and watches what is
/// allocated and queued from now on. It costs up to some hundred nanoseconds a call, and nothing while it is off. Do
/// not call it while another thread uses the runtime.
void check_order(bool on, order_options options = {});

/// Tell the check of order between host threads, for `host_clocks::per_thread`: a thread that acquires a place comes
/// after all that released it before. A place is any address, such as that of a mutex or a flag. Release before a
/// thread is created, before a mutex is unlocked and at a thread's end; acquire at a thread's beginning, after a lock
/// and after a join. They do nothing under `host_clocks::one`. Order that threads get from locks inside a stack with
/// `weir::checked` on top counts for that stack only, not for its callers.
void host_release(void const* place);
void host_acquire(void const* place);

/// Tells the check that the calling thread reads or writes [p, p + bytes) through a plain pointer now: managed, pinned
/// or any host memory. It is a violation if the host does not come after the work on that block: after all uses for a
/// write, after all writes for a read. Called in a host function, it takes that function's place in its stream. Does
/// nothing while the check is off. Throws `std::invalid_argument` for memory that only devices reach.
void host_access(void const* p, std::size_t bytes, access what);

/// The violations so far (the first 1000 of them), and how many there were.
std::vector<order_report> reports();
std::uint64_t report_count();
void clear_reports();

/// Sets what is called for each violation when it is found, inside the call that commits it: to print, or to abort. It
/// must call neither CUDA nor `weir::sim`. With null, the default, reports are only collected. `reset` does not change
/// it.
void set_report_handler(void (*handler)(order_report const&));

/// Blocks that something (a pool, say) hands out from CUDA's memory, to be checked as CUDA's own allocations are.
/// `weir::checked` does this for every resource that stands under it. Thread-safe; does nothing while the check is off.
class checked_blocks {
 public:
  /// `name` is what reports call the blocks' owner.
  explicit checked_blocks(std::string name);
  ~checked_blocks();  ///< forgets its blocks, live or not
  checked_blocks(checked_blocks const&) = delete;
  checked_blocks& operator=(checked_blocks const&) = delete;

  /// The block was handed out for use on `stream` (0: the legacy stream). Call it after the fact.
  void allocated(cudaStream_t stream, void const* p, std::size_t bytes, std::size_t alignment);
  /// The block was handed out for use on every stream and by the host.
  void allocated_for_all(void const* p, std::size_t bytes, std::size_t alignment);
  /// The block's user gives it back, after the work queued on `stream` so far. Call it before the fact.
  void freed(cudaStream_t stream, void const* p, std::size_t bytes, std::size_t alignment);
  /// The same, after the work queued so far on all of these streams; `streams.front()` is the one that gives it back.
  void freed_after(std::vector<cudaStream_t> const& streams, void const* p, std::size_t bytes, std::size_t alignment);
  /// The block's user gives it back and says that all work on it is done.
  void freed_by_host(void const* p, std::size_t bytes, std::size_t alignment);
  /// What the calling thread has waited for, the owner may rely on in every thread: its user said so, as whoever
  /// releases the memory of a graph does.
  void waited();

  /// While one lives, the calling thread works for the blocks' owner, which may use its blocks when they are free: to
  /// clear them, say.
  class inside {
   public:
    [[nodiscard]] explicit inside(checked_blocks const& blocks);
    ~inside();
    inside(inside const&) = delete;
    inside& operator=(inside const&) = delete;
  };

 private:
  std::string name_;
  std::uint64_t id_;
  std::uint64_t check_;  // which `check_order(true)` it has seen all blocks under
};

}  // namespace weir::sim
