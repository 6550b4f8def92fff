#pragma once
// Physical memory of one device in chunks of one size: those that are mapped somewhere, and spare ones.

#include <weir/cuda/capture.hpp>
#include <weir/cuda/driver.hpp>
#include <weir/cuda/process_exit.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>

namespace weir::detail {

/// A piece of physical memory.
struct chunk {
  CUmemGenericAllocationHandle handle = 0;
  std::size_t views = 0;    ///< at how many places it is mapped
  std::uint64_t owner = 0;  ///< whose contents it has: set by those who map it; 0 for new memory
  chunk* next = nullptr;    ///< in a list
};

class chunk_list {
 public:
  std::size_t size() const noexcept { return size_; }
  void push(chunk* c) noexcept {
    c->next = first_;
    first_ = c;
    ++size_;
  }
  chunk* pop() noexcept {
    chunk* const c = first_;
    first_ = c->next;
    --size_;
    return c;
  }

 private:
  chunk* first_ = nullptr;
  std::size_t size_ = 0;
};

/// Creates chunks, counts at how many places each is mapped, and keeps those that are mapped nowhere. Maps nothing
/// itself: places are slots in somebody's table, one a chunk. Thread-safe for calls about different slots; the lock is
/// not held while the driver works.
class physical_chunks {
 public:
  /// Bytes.
  struct numbers {
    std::size_t held = 0, held_peak = 0;      ///< from the device: mapped, spare, or about to be given back
    std::size_t mapped = 0, mapped_peak = 0;  ///< a chunk counts once, at however many places it is
    std::size_t spare = 0;
  };

  /// `max_bytes`: the most that it creates; 0: no limit.
  physical_chunks(driver_functions const& driver, CUmemAllocationProp const& kind, std::size_t chunk_bytes,
                  std::size_t max_bytes)
      : driver_(driver),
        kind_(kind),
        chunk_bytes_(chunk_bytes),
        most_(max_bytes == 0 ? ~std::size_t{0} : max_bytes / chunk_bytes) {}
  ~physical_chunks() {
    if (life_.is_exiting()) return;
    relaxed([this] {
      while (spare_.size() != 0) driver_.cuMemRelease(spare_.pop()->handle);
    });
  }
  physical_chunks(physical_chunks const&) = delete;
  physical_chunks& operator=(physical_chunks const&) = delete;

  std::size_t chunk_bytes() const noexcept { return chunk_bytes_; }

  /// Fills empty slots, with spare chunks first and then with new ones; says how many are new, which stand last. Empty
  /// if there is not as much memory; then, and where it throws (`cuda_error`, `std::bad_alloc`), nothing has changed.
  std::optional<std::size_t> take(std::span<chunk*> chunks) {
    std::optional<std::size_t> const missing = take_records(chunks);
    if (!missing) return missing;
    std::span<chunk*> const fresh = chunks.last(*missing);
    std::size_t created = 0;
    CUresult const code = create(fresh, created);
    {
      std::lock_guard const lock(mutex_);
      coming_ -= fresh.size();
      held_ += created;
      mapped_ += created;
      if (code == CUDA_SUCCESS) {
        if (held_ > held_peak_) held_peak_ = held_;
        if (mapped_ > mapped_peak_) mapped_peak_ = mapped_;
        return missing;
      }
      forget(fresh.subspan(created));
      put_away(chunks.first(chunks.size() - fresh.size() + created));
    }
    trim(0, created);
    if (code == CUDA_ERROR_OUT_OF_MEMORY) return std::nullopt;
    throw cuda_error(runtime_code(code), "cuMemCreate", __FILE__, __LINE__);
  }

  /// Writes the chunks of one place into the slots of another.
  void share(std::span<chunk* const> from, std::span<chunk*> to) noexcept {
    std::lock_guard const lock(mutex_);
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = from[i];
      ++to[i]->views;
    }
  }

  /// Empties slots; a chunk that is in no slot any more is spare.
  void drop(std::span<chunk*> chunks) noexcept {
    std::lock_guard const lock(mutex_);
    put_away(chunks);
  }

  /// Gives up to `most` spare chunks back to the device, but none of the `keep` bytes that may stay; returns how many
  /// bytes went.
  std::size_t trim(std::size_t keep, std::size_t most = ~std::size_t{0}) noexcept {
    std::size_t gone = 0;
    while (gone < most && release_one(keep)) ++gone;
    return gone * chunk_bytes_;
  }

  void reset_peaks() noexcept {
    std::lock_guard const lock(mutex_);
    held_peak_ = held_;
    mapped_peak_ = mapped_;
  }
  numbers now() const noexcept {
    std::lock_guard const lock(mutex_);
    return {held_ * chunk_bytes_, held_peak_ * chunk_bytes_, mapped_ * chunk_bytes_, mapped_peak_ * chunk_bytes_,
            spare_.size() * chunk_bytes_};
  }

 private:
  /// Fills the slots with spare chunks, and the last of them with records of chunks that are still to be created: how
  /// many that are. Empty if they would be too many.
  std::optional<std::size_t> take_records(std::span<chunk*> chunks) {
    std::unique_lock lock(mutex_);
    std::size_t missing = 0;
    auto const fits = [&](std::size_t held) { return missing <= most_ && held + coming_ <= most_ - missing; };
    for (;;) {
      missing = chunks.size() > spare_.size() ? chunks.size() - spare_.size() : 0;
      if (fits(held_)) break;
      if (going_ == 0 || !fits(held_ - going_)) return std::nullopt;
      went_.wait(lock);  // what another thread is giving back makes room, or is spare again
    }
    while (without_memory_.size() < missing) without_memory_.push(&records_.emplace_back());
    for (chunk*& slot : chunks) {
      slot = spare_.size() != 0 ? spare_.pop() : without_memory_.pop();
      slot->views = 1;
    }
    mapped_ += chunks.size() - missing;
    coming_ += missing;
    return missing;
  }

  /// Creates their memory one by one, until the device refuses.
  CUresult create(std::span<chunk*> fresh, std::size_t& created) noexcept {
    CUresult code = CUDA_SUCCESS;
    for (created = 0; created < fresh.size(); ++created) {
      code = driver_.cuMemCreate(&fresh[created]->handle, chunk_bytes_, &kind_, 0);
      if (code != CUDA_SUCCESS) break;
      fresh[created]->owner = 0;
    }
    return code;
  }

  bool release_one(std::size_t keep) noexcept {
    chunk* going = nullptr;
    {
      std::lock_guard const lock(mutex_);
      if (spare_.size() == 0 || (held_ - going_) * chunk_bytes_ <= keep) return false;
      going = spare_.pop();
      ++going_;
    }
    bool const released = driver_.cuMemRelease(going->handle) == CUDA_SUCCESS;
    std::lock_guard const lock(mutex_);
    (released ? without_memory_ : spare_).push(going);
    if (released) --held_;
    --going_;
    went_.notify_all();
    return released;
  }

  void forget(std::span<chunk*> fresh) noexcept {
    for (chunk*& slot : fresh) {
      without_memory_.push(slot);
      slot = nullptr;
    }
  }
  void put_away(std::span<chunk*> chunks) noexcept {
    for (chunk*& slot : chunks) {
      if (--slot->views == 0) {
        spare_.push(slot);
        --mapped_;
      }
      slot = nullptr;
    }
  }

  process_exit life_;
  driver_functions const& driver_;
  CUmemAllocationProp const kind_;
  std::size_t const chunk_bytes_;
  std::size_t const most_;  // chunks

  std::mutex mutable mutex_;
  std::deque<chunk> records_;  // all there ever were, so that a free needs no host memory
  chunk_list spare_;           // with memory, in no slot
  chunk_list without_memory_;  // for chunks to come
  std::size_t held_ = 0, held_peak_ = 0, mapped_ = 0, mapped_peak_ = 0;  // chunks
  std::size_t coming_ = 0;  // that are being created: no other thread may go beyond the limit
  std::size_t going_ = 0;   // that are being given back: held until they are gone
  std::condition_variable went_;
};

}  // namespace weir::detail
