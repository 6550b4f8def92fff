#pragma once
// Memory for PyTorch, CuPy and Numba: one stack a device, behind functions of a pointer, a size, a device and a stream.

#include <weir/bridges/detail/device_stacks.hpp>
#include <weir/bridges/detail/graph_pools.hpp>
#include <weir/bridges/detail/recorded_streams.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/error.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/support/mutex.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace weir {

/// The stacks of a process's devices, as a plug-in of PyTorch, CuPy or Numba needs them: each made from a text when its
/// device is first asked for memory, and shared by all who ask. Thread-safe. Knows nothing of those frameworks: the
/// package in `python/` gives its functions to them. A plug-in leaks it, since frameworks free after `main`. When not
/// to use it: in a C++ program, which makes its stack and passes it on.
class framework_memory {
 public:
  static constexpr int max_devices = detail::device_stacks::most;

  /// Makes a stack of the current device from a text, or throws.
  using maker = detail::device_stacks::maker;

  /// `text` is for all devices.
  framework_memory(maker make, std::string const& text) : stacks_(make, text) {}
  framework_memory(framework_memory const&) = delete;
  framework_memory& operator=(framework_memory const&) = delete;

  /// Has the stack of `device` (-1: of each) made from `text`. Makes none yet. Throws `std::logic_error` where a stack
  /// is there already that was made from another text, and has changed nothing then.
  void use(std::string const& text, int device = -1) { stacks_.use(text, device); }

  /// The stack of a device, made if it is not there: for `report_of`, `numbers`, `find_limit`, `trim`. Throws
  /// `std::invalid_argument` for a device that cannot be, or whose text names another one, and what making a stack
  /// throws.
  any_resource const& stack(int device) { return stacks_.get(device); }
  /// The same if it is there, else null.
  any_resource const* made(int device) const noexcept { return stacks_.made(device); }

  /// Memory of `device` for `stream`, whose default streams are that device's. Zero bytes give null. Throws
  /// `out_of_memory` and what `stack` throws.
  void* allocate(std::size_t bytes, int device, cudaStream_t stream) {
    if (bytes == 0) return nullptr;
    any_resource const* const memory = made(device);
    bool const is_plain = memory != nullptr && !needs_care(stream) && !graph_pools_.some_open();
    if (!is_plain) [[unlikely]]
      return allocate_with_care(bytes, device, stream);
    return memory->allocate(stream_ref(stream), bytes);
  }

  /// Takes memory back with the size, device and stream that it was allocated with: it is used again after the work
  /// queued so far on that stream and on those that were recorded. `cudaStreamPerThread` is that of the thread that
  /// allocated, or recorded it; where another one frees, all blocking streams are waited for. Null is nothing. Memory
  /// of a device that has no stack goes to the misuse handler, as other wrong frees do.
  void deallocate(void* p, std::size_t bytes, int device, cudaStream_t stream) noexcept {
    if (p == nullptr) return;
    any_resource const* const memory = made(device);
    bool const is_plain = memory != nullptr && !needs_care(stream) && recorded_.empty() && graph_pools_.idle();
    if (!is_plain) [[unlikely]]
      return deallocate_with_care(memory, p, bytes, device, stream);
    memory->deallocate(stream_ref(stream), p, bytes);
  }

  /// A segment for another allocator, such as PyTorch's own for a `torch.cuda.MemPool`, which expects what `cudaMalloc`
  /// gives: parts of it may go to any stream and any graph. So the host waits for `stream`, except for one that is
  /// being captured, which gets no memory that waits for work. Where that wait would break a capture, it is of what is
  /// done already. Throws as `allocate`.
  void* allocate_segment(std::size_t bytes, int device, cudaStream_t stream) {
    any_resource const& memory = stack(device);
    detail::device_switch const on_device(device);
    std::uint64_t const capture = detail::capture_in(stream_ref(stream));
    void* const p = allocate(bytes, device, stream);
    if (p != nullptr && capture != 0) remember_segment(p, bytes, device, stream, capture);
    if (p == nullptr || capture != 0 || detail::wait_for(stream_ref(stream), device)) return p;
    deallocate(p, bytes, device, stream);
    return memory.allocate(host_order, bytes);
  }
  /// Takes back a segment, as `allocate_segment` gave it, whose graphs are gone. Waits for the device as `cudaFree`
  /// does, since parts may be in use on any stream. Where that cannot be (while a capture is declared, or a blocking
  /// stream of the device captures, which it would break), the segment is kept for good. A capture on another stream
  /// that nobody declared it breaks, another thread's too, which `cudaFree` would not, and the segment is kept then as
  /// well.
  void deallocate_segment(void* p, std::size_t bytes, int device, cudaStream_t stream) noexcept {
    if (p == nullptr) return;
    std::uint64_t const capture = capture_of_segment(p);
    if (!detail::wait_for_device(device)) return;  // any stream may use it
    deallocate(p, bytes, device, stream);
    any_resource const* const memory = made(device);
    bool const is_everyones =
        memory != nullptr && capture != 0 && detail::wait_for_device(device);  // after the free too
    if (is_everyones) weir::release_captured(*memory, capture);
  }

  /// `stream` uses the block at `p` besides the stream that it was allocated for (PyTorch's `Tensor.record_stream`):
  /// its `deallocate` waits for that, as `deallocate_after` does. May throw `std::bad_alloc`.
  void record_stream(void* p, cudaStream_t stream) {
    if (p != nullptr) recorded_.add(p, stream_ref(stream));
  }

  /// PyTorch's `empty_cache`: waits for the work of freed blocks, then gives back what is idle, on all devices that
  /// have a stack. Returns how many bytes the devices have more of.
  std::size_t trim() noexcept {
    std::size_t released = 0;
    for (int device = 0; device < max_devices; ++device)
      if (any_resource const* const memory = made(device)) {
        weir::synchronize(*memory);
        released += weir::trim(*memory);
      }
    return released;
  }

  /// A pool of PyTorch's that is kept (`torch.cuda.MemPool`), besides the graphs that use it; and how many use it.
  void add_graph_pool_user(detail::graph_pool_id id) { graph_pools_.add_user(id); }
  std::size_t graph_pool_users(detail::graph_pool_id id) const { return graph_pools_.users(id); }
  /// PyTorch's calls around a capture: what `belongs(stream)` names is allocated for the pool `id`.
  void begin_graph_pool(int device, detail::graph_pool_id id, std::function<bool(cudaStream_t)> belongs) {
    graph_pools_.begin(device, id, std::move(belongs));
  }
  void end_graph_pool(int device, detail::graph_pool_id id) noexcept { graph_pools_.end(device, id); }
  /// The pool that gets what is allocated on `stream` now, and the capture whose memory that will be (0: none).
  std::optional<detail::graph_pool_capture> find_graph_pool(int device, cudaStream_t stream) const {
    return graph_pools_.find(device, stream);
  }
  /// From now on the pool's graphs share what is allocated for it outside of captures too: the copies of a graph's
  /// inputs, which PyTorch allocates before the capture and frees in it (`torch.compile(mode="reduce-overhead")`).
  void share_graph_pool(detail::graph_pool_id id) noexcept { graph_pools_.share(id); }
  /// A user of the pool is gone: after the last one the memory of its captures is everyone's again. Waits for the
  /// device, since a launch may still run; where that would break a capture, the memory is kept until a later call.
  void release_graph_pool(detail::graph_pool_id id) {
    std::vector<detail::device_capture> ended = graph_pools_.release(id);
    {
      detail::mutex_guard const lock(mutex_);
      ended.insert(ended.end(), kept_.begin(), kept_.end());
      kept_.clear();
    }
    for (detail::device_capture const& each : ended) release_capture(each);
  }

 private:
  /// Where another thread's handle is the same, or another device's.
  bool needs_care(cudaStream_t stream) const noexcept { return is_threads_own(stream) || needs_device(stream); }
  static bool is_threads_own(cudaStream_t stream) noexcept { return stream_ref(stream).get() == cudaStreamPerThread; }
  /// A default stream is the current device's, unless there is only one.
  bool needs_device(cudaStream_t stream) const noexcept {
    return stacks_.may_be_several_devices() && (stream == nullptr || detail::is_default_stream(stream));
  }

  /// `allocate` where there is no stack yet, the default stream has to be that of the device or is the thread's own, or
  /// the memory may be a graph's.
  [[gnu::noinline]] void* allocate_with_care(std::size_t bytes, int device, cudaStream_t stream) {
    any_resource const& memory = stack(device);
    std::optional<device_guard> on_device;
    if (needs_device(stream)) on_device.emplace(device);
    std::optional<detail::graph_pool_id> graphs = graph_pools_.note(device, stream);
    std::optional<detail::acting_in_capture> of_graphs;
    if (!graphs)
      if (auto const shared = graph_pools_.find(device, stream); shared && shared->capture != 0) {
        of_graphs.emplace(shared->capture);
        graphs = shared->id;
      }
    void* const p = memory.allocate(stream_ref(stream), bytes);
    if (graphs) graph_pools_.add_block(p, *graphs);
    if (is_threads_own(stream)) remember_thread(p, stream);
    return p;
  }
  /// Where the host has no memory to remember it, the free waits as if another thread made it.
  void remember_thread(void* p, cudaStream_t stream) noexcept try {
    of_own_streams_.add(p, stream_ref(stream));
  } catch (std::bad_alloc const&) {
  }
  /// Where a block of `stream` is given back. Another thread's own default stream has no name here, but the legacy
  /// stream comes after it; not in a capture, which keeps the block until the graph is gone.
  cudaStream_t stream_to_free_on(void* p, cudaStream_t stream) noexcept {
    if (!is_threads_own(stream)) return stream;
    std::vector<stream_ref> const known = of_own_streams_.take(p);
    bool const is_mine = known.size() == 1 && known.front() == stream_ref(stream);
    return is_mine || detail::capture_in(stream_ref(stream)) != 0 ? stream : cudaStreamLegacy;
  }
  /// `deallocate` so, or where other streams have used blocks; or of memory of nobody's.
  [[gnu::noinline]] void deallocate_with_care(any_resource const* memory, void* p, std::size_t bytes, int device,
                                              cudaStream_t stream) noexcept {
    if (memory == nullptr)
      return detail::report_misuse("weir: free of " + detail::hex(p) + " (" + std::to_string(bytes) + " B) of device " +
                                   std::to_string(device) + ", on which weir has allocated nothing");
    std::vector<stream_ref> const others = recorded_.take(p);
    std::optional<detail::device_switch> on_device;  // before CUDA is asked what a default stream captures
    if (!others.empty() || needs_device(stream)) on_device.emplace(device);
    stream = stream_to_free_on(p, stream);
    std::optional<detail::acting_in_capture> of_graphs;
    if (std::uint64_t const capture = capture_to_free_in(device, p, stream); capture != 0 && others.empty())
      of_graphs.emplace(capture);
    if (on_device && !on_device->is_current()) return;  // kept for good: nobody could say when it is free
    if (others.empty())
      memory->deallocate(stream_ref(stream), p, bytes);
    else
      memory->deallocate_after(stream_ref(stream), p, bytes, others);
  }
  /// The capture that a block of a graph pool belongs to and that has ended; 0 for others, and on a stream that
  /// captures something else: they are given back as they are.
  std::uint64_t capture_to_free_in(int device, void* p, cudaStream_t stream) noexcept {
    bool is_captured = false;
    try {
      is_captured = graph_pools_.note(device, stream).has_value();
    } catch (std::bad_alloc const&) {  // then the capture shares no memory
    }
    std::uint64_t const capture = graph_pools_.take_block(device, p);
    bool const acts = !is_captured && capture != 0 && detail::capture_in(stream_ref(stream)) == 0;
    return acts ? capture : 0;
  }

  /// Gives it back where the host has no memory to remember it.
  void remember_segment(void* p, std::size_t bytes, int device, cudaStream_t stream, std::uint64_t capture) try {
    detail::mutex_guard const lock(mutex_);
    segments_of_graphs_[p] = capture;
  } catch (std::bad_alloc const&) {
    deallocate(p, bytes, device, stream);
    throw;
  }
  /// The capture in which a segment was allocated, which is forgotten; 0: none.
  std::uint64_t capture_of_segment(void* p) noexcept {
    detail::mutex_guard const lock(mutex_);
    auto const found = segments_of_graphs_.find(p);
    if (found == segments_of_graphs_.end()) return 0;
    std::uint64_t const capture = found->second;
    segments_of_graphs_.erase(found);
    return capture;
  }

  void release_capture(detail::device_capture const& ended) {
    any_resource const* const memory = made(ended.device);
    if (memory == nullptr) return;
    if (detail::wait_for_device(ended.device)) {
      weir::release_captured(*memory, ended.capture);
    } else {
      detail::mutex_guard const lock(mutex_);
      kept_.push_back(ended);
    }
  }

  detail::device_stacks stacks_;
  detail::recorded_streams recorded_;
  detail::recorded_streams of_own_streams_;  // the blocks of threads' own default streams
  detail::graph_pools graph_pools_;
  detail::mutex mutex_;
  std::vector<detail::device_capture> kept_;                     // of pools that have ended; guarded by `mutex_`
  std::unordered_map<void*, std::uint64_t> segments_of_graphs_;  // and their captures; guarded by `mutex_`
};

}  // namespace weir
