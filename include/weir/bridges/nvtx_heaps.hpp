#pragma once
// Memory as compute-sanitizer wants to be told of it, through NVTX's memory extension: segments as heaps, and blocks.

#include <weir/support/grown_array.hpp>
#include <weir/support/mutex.hpp>

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtMem.h>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// Where all that weir shows belongs.
inline nvtxDomainHandle_t nvtx_domain() noexcept {
  static nvtxDomainHandle_t const domain = nvtxDomainCreateA("weir");
  return domain;
}

/// Segments of all pools that are shown, for the blocks in them: a tool wants to know each block's heap. Thread-safe.
class nvtx_heaps {
 public:
  /// Those of the process; never destroyed, since stacks may be at exit.
  static nvtx_heaps& all() {
    static auto* const heaps = new nvtx_heaps;
    return *heaps;
  }

  /// Makes room for a segment, so that `add` can be called, or `forget_promise`. May throw `std::bad_alloc`.
  void promise() {
    mutex_guard const lock(mutex_);
    if (count_ + promised_ == heaps_.size()) heaps_.grow(2 * heaps_.size() + 8);
    ++promised_;
  }
  void forget_promise() noexcept {
    mutex_guard const lock(mutex_);
    --promised_;
  }

  /// In the place of one that begins there, which went back unseen.
  void add(void const* p, std::size_t bytes) noexcept {
    nvtxMemVirtualRangeDesc_t const range{bytes, p};
    nvtxMemHeapDesc_t shown{};
    shown.extCompatID = NVTX_EXT_COMPATID_MEM;
    shown.structSize = sizeof shown;
    shown.usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR;
    shown.type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    shown.typeSpecificDescSize = sizeof range;
    shown.typeSpecificDesc = &range;
    mutex_guard const lock(mutex_);
    take_out(p);
    --promised_;
    heaps_[count_++] = {reinterpret_cast<std::uintptr_t>(p), bytes, nvtxMemHeapRegister(nvtx_domain(), &shown)};
  }
  /// Its bytes, and a promise of its place, for `add` or `forget_promise`; 0, and no promise, where none begins there.
  std::size_t remove(void const* p) noexcept {
    mutex_guard const lock(mutex_);
    std::size_t const bytes = take_out(p);
    if (bytes != 0) ++promised_;
    return bytes;
  }
  /// The heap that a block lies in; the whole process's where no segment is known.
  nvtxMemHeapHandle_t of(void const* p) const noexcept {
    mutex_guard const lock(mutex_);
    for (std::size_t i = 0; i < count_; ++i)
      if (reinterpret_cast<std::uintptr_t>(p) - heaps_[i].begin < heaps_[i].bytes) return heaps_[i].handle;
    return NVTX_MEM_HEAP_HANDLE_PROCESS_WIDE;
  }

 private:
  struct heap {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
    nvtxMemHeapHandle_t handle = nullptr;
  };

  nvtx_heaps() = default;

  /// Its bytes; 0 where none begins there.
  std::size_t take_out(void const* p) noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      if (heaps_[i].begin != reinterpret_cast<std::uintptr_t>(p)) continue;
      heap const gone = heaps_[i];
      heaps_[i] = heaps_[--count_];
      nvtxMemHeapUnregister(nvtx_domain(), gone.handle);
      return gone.bytes;
    }
    return 0;
  }

  mutex mutable mutex_;
  grown_array<heap> heaps_;
  std::size_t count_ = 0, promised_ = 0;
};

/// A block of a heap, from now on memory that may be used; and no more.
inline void nvtx_show_block(void const* p, std::size_t bytes) noexcept {
  nvtxMemVirtualRangeDesc_t const range{bytes, p};
  nvtxMemRegionsRegisterBatch_t batch{};
  batch.extCompatID = NVTX_EXT_COMPATID_MEM;
  batch.structSize = sizeof batch;
  batch.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
  batch.heap = nvtx_heaps::all().of(p);
  batch.regionCount = 1;
  batch.regionDescElementSize = sizeof range;
  batch.regionDescElements = &range;
  nvtxMemRegionsRegister(nvtx_domain(), &batch);
}
inline void nvtx_hide_block(void const* p) noexcept {
  nvtxMemRegionRef_t ref{};
  ref.pointer = p;
  nvtxMemRegionsUnregisterBatch_t batch{};
  batch.extCompatID = NVTX_EXT_COMPATID_MEM;
  batch.structSize = sizeof batch;
  batch.refType = NVTX_MEM_REGION_REF_TYPE_POINTER;
  batch.refCount = 1;
  batch.refElementSize = sizeof ref;
  batch.refElements = &ref;
  nvtxMemRegionsUnregister(nvtx_domain(), &batch);
}

}  // namespace weir::detail
