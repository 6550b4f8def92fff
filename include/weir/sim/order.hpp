#pragma once
// Checks the order of a program on the stand-in: whether every use of memory comes after its allocation and before its
// free, and every reuse after the last use. It looks at the calls, so it needs no unlucky schedule.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weir::sim {

/// What can be wrong with the order of a program.
enum class order_problem {
  use_before_allocation,    ///< used on a stream that does not come after the allocation
  use_after_free,           ///< used by a call made after the free was called
  out_of_bounds,            ///< a range that begins in a block and leaves it
  free_not_after_use,       ///< freed on a stream (or by the host) that does not come after every use
  double_free,              ///< freed, though it is freed already
  foreign_free,             ///< freed where it was not allocated, or by a pointer into its middle
  wrong_size,               ///< freed with another size or alignment than it was allocated with
  overlap,                  ///< a block was handed out that overlaps a live one
  unordered_reuse,          ///< a block was handed out to a stream that does not come after its last free
  outside_memory,           ///< a block was handed out that does not lie in one live piece of CUDA's memory
  freed_under_live_block,   ///< memory went back while a block cut from it is live
  freed_under_pending_work  ///< memory went back while a block cut from it waits for its last work
};

/// One breach. The text is a sentence: both operations, their streams, and the edge that is missing.
struct order_report {
  order_problem kind;
  std::string text;
};

/// Switches the check on or off; `reset` switches it off. On, it knows what is allocated and queued from now on, and
/// forgets earlier reports. Costs up to some hundred nanoseconds a call; off, none. Not while another thread uses the
/// runtime. One clock stands for all host threads: what one of them has waited for, all of them know.
void check_order(bool on);

/// The breaches so far (the first 1000 of them), and how many there were.
std::vector<order_report> reports();
std::uint64_t report_count();
void clear_reports();

/// Called for each breach when it is found, inside the call that commits it: to print, or to abort. It must call
/// neither CUDA nor the stand-in. Null, the default: reports are only collected. `reset` leaves it.
void set_report_handler(void (*handler)(order_report const&));

/// Blocks that something hands out from CUDA's memory (a pool, say), to be checked as CUDA's own allocations are.
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
  /// The block's user gives it back and says that all work on it is done.
  void freed_by_host(void const* p, std::size_t bytes, std::size_t alignment);

  /// While one lives, memory that the calling thread touches is the owner's business: it may clear freed blocks.
  class inside {
   public:
    explicit inside(checked_blocks const& blocks);
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
