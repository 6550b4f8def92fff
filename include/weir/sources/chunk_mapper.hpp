#pragma once
// Maps chunks of physical memory at addresses, and unmaps them: the driver's calls, all of a place or none.

#include <weir/cuda/driver.hpp>
#include <weir/sources/physical_chunks.hpp>
#include <weir/sources/scrubber.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace weir::detail {

/// Does what slots say, one a chunk, at addresses that follow each other; changes no slot. Whose the addresses are and
/// what becomes of the chunks is up to the caller. Thread-safe for calls about different addresses.
class chunk_mapper {
 public:
  struct outcome {
    CUresult code = CUDA_SUCCESS;
    char const* call = "";
    bool is_undone = true;
    bool is_under_way = false;  // the memory may still be written
  };

  /// `users`: the devices that may use what is mapped. `zeroing`: zeroes what was in another range, and all new memory;
  /// null: contents stay.
  chunk_mapper(driver_functions const& driver, std::size_t chunk_bytes, std::vector<CUmemAccessDesc> users,
               scrubber const* zeroing)
      : driver_(driver), chunk_bytes_(chunk_bytes), users_(std::move(users)), scrubber_(zeroing) {}

  /// Maps what the slots say, for all users; where a call fails, what it mapped is unmapped again.
  outcome map(CUdeviceptr at, std::span<chunk* const> chunks) const noexcept {
    if (chunks.empty()) return {};
    std::size_t mapped = 0;
    for (chunk const* c : chunks) {
      CUresult const code = driver_.cuMemMap(at + mapped * chunk_bytes_, chunk_bytes_, 0, c->handle, 0);
      if (code != CUDA_SUCCESS) return {code, "cuMemMap", undo(at, chunks.first(mapped))};
      ++mapped;
    }
    CUresult const code = set_access(driver_, at, mapped * chunk_bytes_, users_.data(), users_.size());
    if (code != CUDA_SUCCESS) return {code, "cuMemSetAccess", undo(at, chunks)};
    return {};
  }
  /// The same for a range's use alone: zeroed where not all of it was in that range last.
  outcome map_for(std::uint64_t range, CUdeviceptr at, std::span<chunk* const> chunks) const noexcept {
    outcome const made = map(at, chunks);
    return made.code == CUDA_SUCCESS && scrubber_ != nullptr ? scrub(at, chunks, range) : made;
  }

  /// Unmaps from the first slot on, until the driver refuses one; how many it unmapped.
  std::size_t unmap(CUdeviceptr at, std::span<chunk* const> chunks) const noexcept {
    for (std::size_t i = 0; i < chunks.size(); ++i)
      if (driver_.cuMemUnmap(at + i * chunk_bytes_, chunk_bytes_) != CUDA_SUCCESS) return i;
    return chunks.size();
  }

 private:
  /// Zeroes what is mapped where not all of it was in this range last: its contents are nobody's yet. Where a call
  /// fails, unmaps it again, unless it may still be written.
  outcome scrub(CUdeviceptr at, std::span<chunk* const> chunks, std::uint64_t range) const noexcept {
    if (std::all_of(chunks.begin(), chunks.end(), [&](chunk const* c) { return c->owner == range; })) return {};
    scrubber::outcome const zeroed = scrubber_->zero(reinterpret_cast<void*>(at), chunks.size() * chunk_bytes_);
    if (zeroed.code == cudaSuccess) {
      for (chunk* c : chunks) c->owner = range;
      return {};
    }
    bool const is_undone = !zeroed.is_under_way && undo(at, chunks);
    return {static_cast<CUresult>(zeroed.code), "zeroing memory that was another pool's", is_undone,
            zeroed.is_under_way};
  }

  /// Unmaps what was just mapped. What the driver refuses is tried again: it may have reported an error of earlier
  /// work.
  bool undo(CUdeviceptr at, std::span<chunk* const> chunks) const noexcept {
    std::size_t const gone = unmap(at, chunks);
    auto const left = chunks.subspan(gone);
    return unmap(at + gone * chunk_bytes_, left) == left.size();
  }

  driver_functions const& driver_;
  std::size_t const chunk_bytes_;
  std::vector<CUmemAccessDesc> const users_;
  scrubber const* const scrubber_;
};

}  // namespace weir::detail
