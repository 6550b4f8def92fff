// weir as the whole of PyTorch's allocator: statistics, snapshots, history, and out of memory as torch's own error. It
// is compiled for the PyTorch that is installed, since torch's classes are of one version each; memory comes from the
// plug-in's C functions, so that CuPy and Numba share the stack.
#include "graph_blocks.h"
#include "plug_in.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/ApproximateClock.h>
#include <c10/util/Exception.h>
#include <c10/util/flat_hash_map.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;
using base = torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator;
using c10::CachingDeviceAllocator::BlockInfo;
using c10::CachingDeviceAllocator::DeviceStats;
using c10::CachingDeviceAllocator::SegmentInfo;
using c10::CachingDeviceAllocator::TraceEntry;

/// Held for some nanoseconds at a time, by threads that seldom meet.
class short_lock {
 public:
  void lock() noexcept {
    while (taken_.test_and_set(std::memory_order_acquire))
      while (taken_.test(std::memory_order_relaxed)) std::this_thread::yield();
  }
  void unlock() noexcept { taken_.clear(std::memory_order_release); }

 private:
  std::atomic_flag taken_;
};

/// Live blocks by address, in parts that have a lock each.
class live_blocks {
 public:
  void add(void* p, block what) {
    part& mine = part_of(p);
    std::lock_guard const lock(mine.mutex);
    mine.blocks.insert_or_assign(p, what);
  }
  block take(void* p) {
    part& mine = part_of(p);
    std::lock_guard const lock(mine.mutex);
    auto const found = mine.blocks.find(p);
    TORCH_CHECK(found != mine.blocks.end(), "weir: free of ", p, ", which is no live block of PyTorch's");
    block const what = found->second;
    mine.blocks.erase(found);
    return what;
  }
  template <class F>
  void for_each(F f) {
    for (part& each : parts_) {
      std::lock_guard const lock(each.mutex);
      for (auto const& [p, what] : each.blocks) f(p, what);
    }
  }

 private:
  struct alignas(64) part {
    short_lock mutex;
    ska::flat_hash_map<void*, block> blocks;
  };
  part& part_of(void* p) { return parts_[(reinterpret_cast<uintptr_t>(p) >> 9) % parts_.size()]; }
  std::array<part, 32> parts_;
};

/// The last allocations and frees, while `torch.cuda.memory._record_memory_history` is on.
class history {
 public:
  bool is_on() const noexcept { return on_; }
  void allocated(void const* p, block const& of) {
    auto const context = here(false);
    std::lock_guard const lock(mutex_);
    add(TraceEntry::ALLOC, p, of, context);
    if (context != nullptr) live_contexts_.insert_or_assign(p, context);
  }
  void freed(void const* p, block const& of) {
    auto context = here(true);
    std::lock_guard const lock(mutex_);
    if (context == nullptr) context = found_context(p);  // of its allocation, as PyTorch's own allocator has it
    add(TraceEntry::FREE_REQUESTED, p, of, context);
    add(TraceEntry::FREE_COMPLETED, p, of, context);
    live_contexts_.erase(p);
  }
  /// `free`: what the device had left.
  void refused(block const& request, uint64_t free) {
    auto const context = here(false);
    std::lock_guard const lock(mutex_);
    add(TraceEntry::OOM, reinterpret_cast<void const*>(free), request, context);  // PyTorch reads it so
  }
  /// Where a live block was allocated, if that was recorded.
  std::shared_ptr<c10::GatheredContext> context_of(void const* p) {
    std::lock_guard const lock(mutex_);
    return found_context(p);
  }
  void set(bool on, caching::CreateContextFn recorder, size_t most, caching::RecordContext when, bool clear) {
    std::lock_guard const lock(mutex_);
    on_ = on;
    recorder_ = on ? recorder : nullptr;
    when_ = when;
    most_ = std::max(size_t{1}, most);
    if (clear || !on) entries_.clear();
    if (!on) live_contexts_.clear();
  }
  /// What is done from now on says so (`torch.cuda.memory._set_memory_metadata`).
  void set_metadata(std::string const& text) {
    std::lock_guard const lock(mutex_);
    metadata_ = text;
  }
  std::string metadata() {
    std::lock_guard const lock(mutex_);
    return metadata_;
  }
  /// By device, with times as the clock of the wall shows them.
  void copy(std::vector<std::vector<TraceEntry>>& by_device) {
    auto const to_time = clock_.makeConverter();
    std::lock_guard const lock(mutex_);
    for (TraceEntry entry : entries_) {
      entry.time_.t_ = to_time(entry.time_.approx_t_) / 1000;
      by_device.at(static_cast<size_t>(entry.device_)).push_back(std::move(entry));
    }
  }

 private:
  std::shared_ptr<c10::GatheredContext> here(bool at_free) {
    auto const least = at_free ? caching::RecordContext::ALL : caching::RecordContext::STATE;
    caching::CreateContextFn recorder = nullptr;
    {
      std::lock_guard const lock(mutex_);
      if (when_ >= least) recorder = recorder_;
    }
    return recorder != nullptr ? recorder() : nullptr;  // without the lock: it walks the Python stack
  }
  std::shared_ptr<c10::GatheredContext> found_context(void const* p) const {
    auto const found = live_contexts_.find(p);
    return found == live_contexts_.end() ? nullptr : found->second;
  }
  void add(TraceEntry::Action what, void const* p, block const& of, std::shared_ptr<c10::GatheredContext> context) {
    if (when_ < caching::RecordContext::ALLOC) context = nullptr;  // live blocks alone are to have theirs
    entries_.emplace_back(what, of.device, reinterpret_cast<size_t>(p), of.size, of.stream, c10::MempoolId_t{0, 0},
                          c10::getApproximateTime(), std::move(context));
    add_metadata(entries_.back());
    if (entries_.size() > most_) entries_.pop_front();
  }

  template <class Entry>
  void add_metadata(Entry& entry) {  // older versions of PyTorch have no place for it
    if constexpr (requires { entry.user_metadata_; }) entry.user_metadata_ = metadata_;
  }

  std::mutex mutex_;
  std::atomic<bool> on_ = false;
  caching::CreateContextFn recorder_ = nullptr;
  caching::RecordContext when_ = caching::RecordContext::NEVER;
  size_t most_ = 1;
  std::deque<TraceEntry> entries_;
  std::string metadata_;
  ska::flat_hash_map<void const*, std::shared_ptr<c10::GatheredContext>> live_contexts_;
  c10::ApproximateClockToUnixTimeConverter clock_;
};

void check(int status) { TORCH_CHECK(status == weir_ok, weir_error_text()); }
/// Weir's functions take -1 for the current device; PyTorch does not.
size_t valid(c10::DeviceIndex device) {
  int const count = c10::cuda::device_count();
  TORCH_CHECK(device >= 0 && device < count, "weir: there is no device ", static_cast<int>(device),
              "; this process sees ", count, ", numbered from 0");
  return static_cast<size_t>(device);
}

class allocator final : public base {
 public:
  allocator() : base(&weir_malloc, &weir_free) {
    set_record_stream_fn(&weir_record_stream);
    set_reset_fn(&weir_empty_cache);
    set_memory_fraction_fn(&weir_set_fraction);
    set_begin_allocate_to_pool(&weir_begin_graph_pool);
    set_end_allocate_to_pool_fn(&weir_end_graph_pool);
    set_release_pool(&weir_release_graph_pool);
  }

  c10::DataPtr allocate(size_t size) override {
    auto const device = c10::cuda::current_device();
    void* const p = take(size, device, c10::cuda::getCurrentCUDAStream(device));
    return {p, p, &give_back, c10::Device(c10::DeviceType::CUDA, device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void* raw_alloc(size_t size) override {
    auto const device = c10::cuda::current_device();
    return take(size, device, c10::cuda::getCurrentCUDAStream(device));
  }
  void* raw_alloc_with_stream(size_t size, cudaStream_t stream) override {
    return take(size, c10::cuda::current_device(), stream);
  }
  void raw_delete(void* p) override { give_back(p); }

  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    weir_totals const& since = since_.at(valid(device));
    weir_totals now{};
    check(weir_try_totals(&now, device));
    DeviceStats stats;
    fill(stats.requested_bytes, now.requested, since.requested);
    fill(stats.allocated_bytes, now.allocated, since.allocated);
    fill(stats.active_bytes, now.allocated, since.allocated);
    auto const [more_bytes, more_blocks] = graphs_.surplus_of(device);
    for (auto* const of : {&stats.requested_bytes, &stats.allocated_bytes, &stats.active_bytes})
      take_off((*of)[0].current, more_bytes);
    fill(stats.reserved_bytes, now.reserved, since.reserved);
    fill(stats.allocation, now.live, since.live);
    fill(stats.active, now.live, since.live);
    take_off(stats.allocation[0].current, more_blocks);
    take_off(stats.active[0].current, more_blocks);
    stats.num_ooms = static_cast<int64_t>(ooms_.at(static_cast<size_t>(device)));
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    check(weir_try_totals(&since_.at(valid(device)), device));
    ooms_.at(static_cast<size_t>(device)) = 0;
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    valid(device);
    check(weir_try_reset_peaks(device));
  }
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override {
    valid(device);
    base::setMemoryFraction(fraction, device);
  }
  double getMemoryFraction(c10::DeviceIndex device) override {
    valid(device);
    weir_limit_numbers limit{};
    uint64_t free = 0, total = 0;
    if (weir_try_limit(&limit, device, "") != weir_ok) return 1;  // the stack has none
    check(weir_try_device_memory(&free, &total, device));
    return static_cast<double>(limit.max_bytes) / static_cast<double>(total);
  }

  /// What one block could have: cuDNN's search for an algorithm (`torch.backends.cudnn.benchmark`) asks how much it may
  /// try.
  void cacheInfo(c10::DeviceIndex device, size_t* largest) override {
    uint64_t bytes = 0;
    check(weir_try_largest(&bytes, device));
    *largest = std::max(*largest, static_cast<size_t>(bytes));
  }

  /// `torch.cuda.MemPool`: its memory comes from the stack as all other; it is kept for graphs that it is used for.
  void createOrIncrefPool(c10::DeviceIndex, c10::cuda::MempoolId_t id,
                          std::shared_ptr<caching::CUDAAllocator> other) override {
    TORCH_CHECK(other == nullptr,
                "weir: a MemPool with an allocator of its own needs PyTorch's allocator, and weir is "
                "this process's; leave its allocator out");
    weir_add_graph_pool_user(id);
  }
  void setUseOnOOM(c10::DeviceIndex, c10::cuda::MempoolId_t, bool use_on_oom) override {
    TORCH_CHECK(!use_on_oom,
                "weir: a MemPool has no memory of its own that others could use when they run out: it is in "
                "the stack with all other; leave use_on_oom out");
  }
  void setNoSplit(c10::DeviceIndex, c10::cuda::MempoolId_t) override {}  // there are no segments of its own to split
  int getPoolUseCount(c10::DeviceIndex, c10::cuda::MempoolId_t id) override { return weir_graph_pool_users(id); }

  void recordStream(c10::DataPtr const& p, c10::cuda::CUDAStream stream) override {
    if (p.get_deleter() != &give_back) return;  // another allocator's, whose address may be ours later
    graphs_.record_stream(p.get());
    base::recordStream(p, stream);
  }
  bool checkPoolLiveAllocations(c10::DeviceIndex device, c10::cuda::MempoolId_t id,
                                std::unordered_set<void*> const& expected) override {
    return graphs_.live_are({device, id}, expected);
  }
  std::shared_ptr<caching::AllocatorState> getCheckpointState(c10::DeviceIndex device,
                                                              c10::cuda::MempoolId_t id) override {
    weir_share_graph_pool(id);
    return std::make_shared<checkpoint>(graph_blocks::pool_id{device, id});
  }
  caching::CheckpointDelta setCheckpointPoolState(c10::DeviceIndex device,
                                                  std::shared_ptr<caching::AllocatorState> state) override {
    auto const& wanted = static_cast<checkpoint const&>(*state);
    TORCH_CHECK(weir_graph_pool_users(wanted.pool.second) != 0,
                "weir: a checkpoint of a pool of graphs that has ended: there is nothing to set back; keep one of its "
                "graphs, or the pool");
    graph_blocks::change const change = graphs_.set_back(wanted.pool, wanted.live);
    caching::CheckpointDelta delta;
    for (auto const& [p, was] : change.were_live) {
      blocks_.take(p);
      if (history_.is_on()) history_.freed(p, was);
      delta.ptrs_freed.push_back(p);
    }
    free_all(change.given_back);
    for (auto const& [p, what] : wanted.live) {
      blocks_.add(p, what);
      if (history_.is_on()) history_.allocated(p, what);
      delta.dataptrs_allocd.emplace_back(p, p, &give_back, c10::Device(c10::DeviceType::CUDA, device));
    }
    return delta;
  }

  /// Of one pool, or of all memory, which is pool 0.
  caching::SnapshotInfo snapshot(c10::cuda::MempoolId_t pool, bool include_traces) override {
    caching::SnapshotInfo all{};  // the settings of PyTorch's own allocator, which have no part in this one, are 0
    blocks_.for_each([&](void* p, block const& each) {
      SegmentInfo segment = segment_of(p, each);
      if (pool == c10::cuda::MempoolId_t{0, 0} || segment.owner_private_pool_id == pool)
        all.segments.push_back(std::move(segment));
    });
    all.device_traces.resize(static_cast<size_t>(c10::cuda::device_count()));
    if (include_traces) history_.copy(all.device_traces);
    return all;
  }
  void recordHistory(bool enabled, caching::CreateContextFn recorder, size_t most, caching::RecordContext when,
                     bool clear, std::vector<std::string> const&) override {
    history_.set(enabled, recorder, most, when, clear);
  }
  bool isHistoryEnabled() override { return history_.is_on(); }
  // Not in all versions of PyTorch, hence without `override`.
  bool supportsUserMetadata() { return true; }
  void setUserMetadata(std::string const& text) { history_.set_metadata(text); }
  std::string getUserMetadata() { return history_.metadata(); }
  void attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) override {
    std::lock_guard const lock(observers_mutex_);
    observers_.push_back(std::move(observer));
  }
  std::string name() override { return "weir"; }

  static std::shared_ptr<allocator> const& instance() {
    static auto* const only = new std::shared_ptr<allocator>(std::make_shared<allocator>());  // used after `main`
    return *only;
  }

 private:
  /// The blocks of a graph pool that were live at a time: they stay there as long as this does.
  struct checkpoint final : caching::AllocatorState {
    explicit checkpoint(graph_blocks::pool_id of) : pool(of), live(instance()->graphs_.remember(of)) {}
    ~checkpoint() override { free_all(instance()->graphs_.forget(pool, live)); }
    checkpoint(checkpoint const&) = delete;
    checkpoint& operator=(checkpoint const&) = delete;

    graph_blocks::pool_id pool;
    std::vector<graph_blocks::sized> live;
  };
  static void free_all(std::vector<graph_blocks::sized> const& blocks) {
    for (auto const& [p, was] : blocks) to_weir(p, was);
  }
  static void to_weir(void* p, block const& was) {
    weir_free(p, static_cast<ptrdiff_t>(was.size), was.device, was.stream);
  }

  void* take(size_t size, c10::DeviceIndex device, cudaStream_t stream) {
    if (size == 0) return nullptr;
    block made{size, stream, device};
    graph_blocks::pool_id pool{device, {}};
    made.of_graphs = weir_find_graph_pool(device, stream, &pool.second, &made.is_kept);
    void* p = made.of_graphs ? graphs_.use_again(pool, made) : nullptr;
    if (p == nullptr) {
      p = allocate(size, device, stream);
      if (made.of_graphs) graphs_.add(pool, p, made);
    }
    if (history_.is_on()) history_.allocated(p, made);
    if (auto const* const trace = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(trace != nullptr))
      (*trace)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(p));
    blocks_.add(p, made);
    return p;
  }
  void* allocate(size_t size, c10::DeviceIndex device, cudaStream_t stream) {
    void* p = nullptr;
    int const status = weir_try_malloc(&p, static_cast<ptrdiff_t>(size), device, stream);
    if (status == weir_out_of_memory) refuse(size, device, stream);
    check(status);
    return p;
  }
  static void give_back(void* p) {
    if (p == nullptr) return;
    allocator& self = *instance();
    block const was = self.blocks_.take(p);
    if (self.history_.is_on()) self.history_.freed(p, was);
    if (auto const* const trace = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(trace != nullptr))
      (*trace)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(p));
    if (std::optional<block> const ended = was.of_graphs ? self.graphs_.free(p) : was) to_weir(p, *ended);
  }

  [[noreturn]] void refuse(size_t size, c10::DeviceIndex device, cudaStream_t stream) {
    std::string const report = weir_error_text();
    ++ooms_.at(static_cast<size_t>(device));
    uint64_t free = 0, total = 0;
    weir_try_device_memory(&free, &total, device);
    if (history_.is_on()) history_.refused({size, stream, device}, free);
    std::vector<caching::OutOfMemoryObserver> observers;
    {
      std::lock_guard const lock(observers_mutex_);
      observers = observers_;
    }
    for (auto const& each : observers) each(device, size, total, free);
    TORCH_CHECK_WITH(OutOfMemoryError, false, report);
    std::abort();  // not reached
  }

  SegmentInfo segment_of(void* p, block const& one) {
    SegmentInfo segment;
    segment.device = one.device;
    segment.address = reinterpret_cast<size_t>(p);
    segment.stream = one.stream;
    segment.total_size = segment.requested_size = segment.allocated_size = segment.active_size = one.size;
    segment.is_large = one.size >= (size_t{1} << 20);
    if (auto const pool = graphs_.pool_of(p)) segment.owner_private_pool_id = pool->second;
    segment.context_when_allocated = history_.context_of(p);
    BlockInfo info;
    info.size = info.requested_size = one.size;
    info.allocated = info.active = true;
    info.context_when_allocated = segment.context_when_allocated;
    segment.blocks.push_back(std::move(info));
    return segment;
  }

  static void take_off(int64_t& number, size_t more) {
    number = std::max(int64_t{0}, number - static_cast<int64_t>(more));
  }
  static void fill(c10::CachingAllocator::StatArray& of, weir_level const& now, weir_level const& since) {
    auto& all = of[0];  // of all sizes: weir has no pools of small and of large blocks
    all.current = static_cast<int64_t>(now.current);
    all.peak = static_cast<int64_t>(now.peak);
    if (now.total == 0) return;  // not counted
    all.allocated = static_cast<int64_t>(now.total - since.total);
    all.freed = static_cast<int64_t>(now.freed - since.freed);
  }

  live_blocks blocks_;
  graph_blocks graphs_;
  history history_;
  std::array<weir_totals, 64> since_{};
  std::array<std::atomic<uint64_t>, 64> ooms_{};
  std::mutex observers_mutex_;
  std::vector<caching::OutOfMemoryObserver> observers_;
};

}  // namespace

/// Makes it PyTorch's allocator; null, or what was wrong.
extern "C" __attribute__((visibility("default"))) char const* weir_extension_install() noexcept try {
  torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(allocator::instance());
  return nullptr;
} catch (std::exception const& error) {
  static thread_local std::string text;
  text = error.what();
  return text.c_str();
}
