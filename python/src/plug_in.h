#pragma once
/* The C functions of weir's plug-in for PyTorch, CuPy and Numba: one stack of memory resources a device, for the whole
   process. Any thread. Devices are CUDA's numbers, sizes are bytes, streams belong to the device. */

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR_FUNCTION extern "C" __attribute__((visibility("default")))

/* ---- for PyTorch's CUDAPluggableAllocator, which expects an exception where memory cannot be had */

/* Throws weir::out_of_memory with the report of the stack, and what making the stack throws. */
WEIR_FUNCTION void* weir_malloc(ptrdiff_t size, int device, cudaStream_t stream);
/* The same, but null for out of memory: for a caller that frees memory of its own then, and tries again. */
WEIR_FUNCTION void* weir_malloc_or_null(ptrdiff_t size, int device, cudaStream_t stream);
/* Segments for an allocator of the caller's, that of a torch.cuda.MemPool: null for out of memory. To be given back
   when no graph needs them any more; that waits for the device, as cudaFree does. */
WEIR_FUNCTION void* weir_malloc_segment(ptrdiff_t size, int device, cudaStream_t stream);
WEIR_FUNCTION void weir_free_segment(void* p, ptrdiff_t size, int device, cudaStream_t stream) noexcept;
/* With the size, device and stream of the allocation, in whichever thread and with whichever device current. */
WEIR_FUNCTION void weir_free(void* p, ptrdiff_t size, int device, cudaStream_t stream) noexcept;
/* The block is used on `stream` too: its free waits for that. */
WEIR_FUNCTION void weir_record_stream(void* p, cudaStream_t stream);
/* Waits for the work of freed blocks, and gives back what is idle, on all devices. */
WEIR_FUNCTION void weir_empty_cache() noexcept;
/* Sets the outermost limit of a stack to a part of its device's memory. Throws where there is no limit. */
WEIR_FUNCTION void weir_set_fraction(double fraction, int device);

#ifdef __cplusplus
#include <functional>
#include <utility>

using weir_graph_pool_id = std::pair<unsigned long long, unsigned long long>;
/* Around a capture: what `belongs(stream)` names is allocated for the pool. */
WEIR_FUNCTION void weir_begin_graph_pool(int device, weir_graph_pool_id id, std::function<bool(cudaStream_t)> belongs);
WEIR_FUNCTION void weir_end_graph_pool(int device, weir_graph_pool_id id) noexcept;
/* The pool that gets what is allocated on `stream` now; false: none. `*is_kept`: such memory is for the pool's graphs
   until the pool's last user is gone, though it may have been freed. */
WEIR_FUNCTION bool weir_find_graph_pool(int device, cudaStream_t stream, weir_graph_pool_id* id, bool* is_kept);
/* From now on that holds for what is allocated for the pool outside of its captures, too, once there was one. */
WEIR_FUNCTION void weir_share_graph_pool(weir_graph_pool_id id) noexcept;
/* A pool is kept, besides the graphs that use it; how many users it has. */
WEIR_FUNCTION void weir_add_graph_pool_user(weir_graph_pool_id id);
WEIR_FUNCTION int weir_graph_pool_users(weir_graph_pool_id id);
/* A user of the pool is gone. */
WEIR_FUNCTION void weir_release_graph_pool(int device, weir_graph_pool_id id);
#endif

/* ---- for everybody else: nothing is thrown. Each gives a status, and a text of this thread's last error. Where a
   function asks about one stack, device -1 is the current one. Totals, largest, reset_peaks and trim make no
   stack. */

enum weir_status {
  weir_ok = 0,
  weir_out_of_memory = 1,
  weir_invalid = 2,  /* an argument or a text that cannot be */
  weir_too_late = 3, /* the stack is there already */
  weir_cuda_error = 4,
  weir_failed = 5
};
/* Valid until the thread's next call. */
WEIR_FUNCTION char const* weir_error_text() noexcept;

WEIR_FUNCTION int weir_try_malloc(void** p, ptrdiff_t size, int device, cudaStream_t stream) noexcept;
WEIR_FUNCTION int weir_try_free(void* p, ptrdiff_t size, int device, cudaStream_t stream) noexcept;
WEIR_FUNCTION int weir_try_record_stream(void* p, cudaStream_t stream) noexcept;

/* Has the stack of a device (-1: of each) made from a text when it is first needed. WEIR_STACK comes before it. */
WEIR_FUNCTION int weir_try_use(char const* text, int device) noexcept;
/* Of one device, or of all that have a stack (-1). `released` is what the devices have more of. */
WEIR_FUNCTION int weir_try_trim(uint64_t* released, int device) noexcept;
/* What the stack's layers say, for people; and their numbers, as a JSON object. Valid until the thread's next call. */
WEIR_FUNCTION int weir_try_report(char const** text, int device) noexcept;
WEIR_FUNCTION int weir_try_numbers(char const** json, int device) noexcept;
WEIR_FUNCTION int weir_try_reset_peaks(int device) noexcept;

/* A budget of the stack by its name; the outermost for an empty name. Bytes, but for `refused`. */
struct weir_limit_numbers {
  uint64_t used, max_bytes, peak, refused;
};
WEIR_FUNCTION int weir_try_limit(struct weir_limit_numbers* numbers, int device, char const* name) noexcept;
WEIR_FUNCTION int weir_try_set_limit(int device, char const* name, uint64_t max_bytes) noexcept;

/* What a whole stack holds, ever took and gave back: 0 where no layer knows. What was allocated and freed is counted as
   it was requested where no layer counts it otherwise. */
struct weir_level {
  uint64_t current, peak, total, freed;
};
struct weir_totals {
  struct weir_level requested, allocated, reserved, live; /* the last one counts blocks */
  uint64_t refused;
};
WEIR_FUNCTION int weir_try_totals(struct weir_totals* totals, int device) noexcept;

/* The largest block that could be had, about: what a layer has free in one piece, or what the device has left, as far
   as limits let it. */
WEIR_FUNCTION int weir_try_largest(uint64_t* bytes, int device) noexcept;

/* What no process holds of a device's memory, and all of it. */
WEIR_FUNCTION int weir_try_device_memory(uint64_t* free_bytes, uint64_t* total_bytes, int device) noexcept;
/* The device that is current in this thread. */
WEIR_FUNCTION int weir_try_current_device(int* device) noexcept;

/* CUDART_VERSION of the headers that this was compiled with. */
WEIR_FUNCTION int weir_compiled_for() noexcept;
