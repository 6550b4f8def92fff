#pragma once
// The memory of a pool that is parked: its addresses stay, what was behind them is gone, or on the host meanwhile.

#include <weir/core/bytes.hpp>
#include <weir/core/growable.hpp>
#include <weir/core/handle.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>

namespace weir::detail {

/// Memory of the host for the contents of a pool, whatever it comes from.
class content_store {
 public:
  content_store() = default;
  content_store(content_store const&) = delete;
  content_store& operator=(content_store const&) = delete;
  virtual ~content_store() = default;
  /// Throws what the resource throws.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* p, std::size_t bytes) noexcept = 0;
};

template <handle To>
class content_store_on final : public content_store {
 public:
  explicit content_store_on(To const& to) : to_(to) {}
  void* allocate(std::size_t bytes) override { return weir::allocate_sync(to_, bytes); }
  void deallocate(void* p, std::size_t bytes) noexcept override { weir::deallocate_sync(to_, p, bytes); }

 private:
  To to_;
};

/// Spans of addresses, in whole chunks, that had memory and get it again, and the contents if they are kept. Used by
/// one thread at a time.
class parked_memory {
 public:
  /// Takes over `store`; null: contents are dropped.
  explicit parked_memory(content_store* store) noexcept : store_(store) {}
  ~parked_memory() {
    forget_contents();
    delete store_;
  }
  parked_memory(parked_memory const&) = delete;
  parked_memory& operator=(parked_memory const&) = delete;

  /// Room for as many spans and blocks; may throw `std::bad_alloc`.
  void reserve(std::size_t spans, std::size_t blocks) {
    spans_.grow(spans);
    blocks_.grow(store_ == nullptr ? 0 : blocks);
  }
  /// Needs room.
  void add(void* begin, std::size_t bytes) noexcept {
    spans_[span_count_++] = {begin, bytes};
    bytes_ += bytes;
  }
  /// A live block, whose contents are kept; in the order of addresses, after all spans. Needs room.
  void add_block(void* begin, std::size_t bytes) noexcept {
    if (store_ == nullptr) return;
    while (!spans_[filling_].has(begin)) ++filling_;
    blocks_[block_count_++] = {begin, bytes, filling_, spans_[filling_].contents_bytes};
    spans_[filling_].contents_bytes += (bytes + default_alignment - 1) / default_alignment * default_alignment;
  }
  /// The contents of blocks that are not live any more, by `is_live(begin)`, are not copied back.
  template <class IsLive>
  void keep_live(IsLive is_live) noexcept {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < block_count_; ++i)
      if (is_live(blocks_[i].begin)) blocks_[kept++] = blocks_[i];
    block_count_ = kept;
  }
  std::size_t bytes() const noexcept { return bytes_; }
  /// Of these, what has memory.
  std::size_t mapped_bytes() const noexcept {
    std::size_t mapped = 0;
    for (std::size_t i = 0; i < span_count_; ++i) mapped += spans_[i].is_mapped ? spans_[i].bytes : 0;
    return mapped;
  }

  /// Copies the contents to the host, if they are kept. Throws what the store or CUDA throws; nothing is lost then.
  void save(int device) {
    if (store_ == nullptr) return;
    try {
      for (std::size_t i = 0; i < span_count_; ++i)
        if (span& s = spans_[i]; s.contents_bytes != 0) s.contents = store_->allocate(s.contents_bytes);
      copy(device, [](void* on_device, void* on_host, std::size_t bytes, cudaStream_t stream) {
        check(cudaMemcpyAsync(on_host, on_device, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
      });
    } catch (...) {
      forget_contents();
      throw;
    }
  }
  /// Takes the memory away. False where the driver refuses some of it; that stays.
  template <growable Upstream>
  bool unmap(Upstream& upstream) noexcept {
    bool all = true;
    for (std::size_t i = 0; i < span_count_; ++i) {
      span& s = spans_[i];
      s.is_mapped = s.is_mapped && !upstream.unmap(s.begin, s.bytes);
      all = all && !s.is_mapped;
    }
    return all;
  }
  /// Puts memory there again. False if there is not as much; throws what CUDA throws. Then there is none, and it can be
  /// tried again.
  template <growable Upstream>
  bool map(Upstream& upstream) {
    try {
      for (std::size_t i = 0; i < span_count_; ++i) {
        span& s = spans_[i];
        if (!s.is_mapped && !upstream.map(s.begin, s.bytes)) return unmap(upstream), false;
        s.is_mapped = true;
      }
    } catch (...) {
      unmap(upstream);
      throw;
    }
    return true;
  }
  /// Copies the contents back to where memory is again. Throws what CUDA throws; then there is none again, and the
  /// contents are kept.
  template <growable Upstream>
  void load(Upstream& upstream, int device) {
    if (store_ == nullptr) return;
    try {
      copy(device, [](void* on_device, void* on_host, std::size_t bytes, cudaStream_t stream) {
        check(cudaMemcpyAsync(on_device, on_host, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
      });
    } catch (...) {
      unmap(upstream);
      throw;
    }
  }

 private:
  struct span {
    void* begin = nullptr;
    std::size_t bytes = 0;
    void* contents = nullptr;
    std::size_t contents_bytes = 0;
    bool is_mapped = true;
    bool has(void* p) const noexcept { return static_cast<std::byte*>(p) < static_cast<std::byte*>(begin) + bytes; }
  };
  struct block_contents {
    void* begin = nullptr;
    std::size_t bytes = 0;
    std::size_t span = 0;
    std::size_t offset = 0;
  };

  /// Block by block: what is between them is nobody's. No copy is under way when it ends, also by an exception, unless
  /// CUDA can wait neither for its stream nor for the device.
  template <class Copy>
  void copy(int device, Copy one) {
    device_guard const on_device(device);
    stream const side;
    try {
      for (std::size_t i = 0; i < block_count_; ++i) {
        block_contents const& b = blocks_[i];
        one(b.begin, static_cast<std::byte*>(spans_[b.span].contents) + b.offset, b.bytes, side.get());
      }
    } catch (...) {
      wait_for(side, device);
      throw;
    }
    if (!wait_for(side, device)) check(cudaErrorNotReady, "waiting for copies of contents");
  }
  void forget_contents() noexcept {
    for (std::size_t i = 0; i < span_count_; ++i) {
      if (spans_[i].contents != nullptr) store_->deallocate(spans_[i].contents, spans_[i].contents_bytes);
      spans_[i].contents = nullptr;
    }
  }

  content_store* store_;
  grown_array<span> spans_;
  grown_array<block_contents> blocks_;
  std::size_t span_count_ = 0, block_count_ = 0;
  std::size_t filling_ = 0;  // the span that the latest block is in
  std::size_t bytes_ = 0;
};

}  // namespace weir::detail
