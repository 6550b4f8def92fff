#pragma once
// Reserved addresses of one device, and which chunk of physical memory is mapped where.

#include <weir/core/bytes.hpp>
#include <weir/core/error.hpp>
#include <weir/core/growable.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/driver.hpp>
#include <weir/cuda/process_exit.hpp>
#include <weir/sources/chunk_mapper.hpp>
#include <weir/sources/lone_attempts.hpp>
#include <weir/sources/physical_chunks.hpp>
#include <weir/sources/scrubber.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weir::detail {

/// Ranges of addresses, each with a table of the chunks that are mapped in it. Thread-safe for calls about different
/// addresses; the lock is not held while the driver works, but for what that refused before.
class address_ranges {
 public:
  /// `users`: the devices that may use what is mapped. `zeroing`: zeroes what was in another range, and all new memory,
  /// before it is mapped for use; null: contents stay.
  address_ranges(driver_functions const& driver, physical_chunks& chunks, std::vector<CUmemAccessDesc> users,
                 scrubber const* zeroing = nullptr)
      : driver_(driver), chunks_(chunks), mapper_(driver, chunks.chunk_bytes(), std::move(users), zeroing) {}
  /// What was reserved and not given back stays as it is: something may still use it.
  ~address_ranges() {
    if (life_.is_exiting()) return;
    relaxed([&] {
      for (auto& [begin, left] : refused_) vacate(begin, left);
    });
  }
  address_ranges(address_ranges const&) = delete;
  address_ranges& operator=(address_ranges const&) = delete;

  /// Addresses in whole chunks, aligned to a chunk and to `max_alignment`; a null range if there are none. Throws
  /// `cuda_error` and `std::bad_alloc`.
  address_range reserve(std::size_t bytes) {
    CUdeviceptr begin = 0;
    CUresult const code = driver_.cuMemAddressReserve(&begin, bytes, std::max(chunk_bytes(), max_alignment), 0, 0);
    if (code == CUDA_ERROR_OUT_OF_MEMORY) return {};
    check(code, "cuMemAddressReserve");
    try {
      reservation made{bytes, 0, std::vector<chunk*>(bytes / chunk_bytes())};  // no more than there are addresses for
      std::lock_guard const lock(mutex_);
      made.number = ++made_;
      ranges_.emplace(begin, std::move(made));
    } catch (...) {
      driver_.cuMemAddressFree(begin, bytes);
      throw;
    }
    return {to_pointer(begin), bytes};
  }

  /// Whether that range, and no part of it, was reserved and not given back.
  bool knows(address_range range) const noexcept {
    std::lock_guard const lock(mutex_);
    auto const found = ranges_.find(to_address(range.begin));
    return found != ranges_.end() && found->second.bytes == range.bytes;
  }

  /// Unmaps what is mapped there and gives the addresses back; false if the range is not known. What the driver refuses
  /// is tried again, at once, since it may have reported an error of earlier work, by `undo_left`, and at the end.
  bool release(address_range range) noexcept {
    auto node = take_out(range);
    if (node.empty()) return false;
    if (vacate(node.key(), node.mapped()) || vacate(node.key(), node.mapped())) return true;
    std::lock_guard const lock(mutex_);
    refused_.insert(std::move(node));
    return true;
  }

  /// As `growable` says. What another thread takes meanwhile and cannot use counts as there.
  bool map(void* p, std::size_t bytes) {
    return mapping_([&] { return try_to_map(p, bytes); });
  }

  bool alias(void* to, void* from, std::size_t bytes) {
    auto const [source, giver] = place_of(from, bytes);
    auto const [chunks, taker] = place_of(to, bytes);
    require(is_full(source), "alias", from, bytes, "where not everything is mapped");
    require_empty(chunks, "alias", to, bytes);
    if (giver != taker) disown(source);  // both may write
    chunks_.share(source, chunks);
    chunk_mapper::outcome const made = mapper_.map(to_address(to), chunks);
    if (made.code == CUDA_SUCCESS) return true;
    if (made.is_undone)
      chunks_.drop(chunks);
    else
      leave(left_, to_address(to), chunks);
    return refused(made);
  }

  /// Undoes what calls that failed could not undo, until the driver refuses; its answer. The same for ranges that it
  /// would not have back.
  CUresult undo_left() noexcept {
    std::lock_guard const lock(mutex_);  // which keeps the ranges, while the driver works too
    return try_again();
  }

  bool unmap(void* p, std::size_t bytes) noexcept {
    undo_left();
    std::span<chunk*> const chunks = find(p, bytes).chunks;
    if (chunks.data() == nullptr || !is_full(chunks)) {
      report_misuse("weir: virtual_memory: unmap of " + hex(p) + " (" + std::to_string(bytes) +
                    " B): there is not everywhere something mapped");
      return false;
    }
    if (is_some_gone(to_address(p), bytes)) return false;  // and another thread may map it again just now
    std::size_t const gone = mapper_.unmap(to_address(p), chunks);
    if (gone != chunks.size()) {
      // What is refused is tried again: it may have been an error of earlier work.
      bool is_mapped = false;
      for (int i = 0; i != 2 && !is_mapped; ++i)
        is_mapped = mapper_.map(to_address(p), chunks.first(gone)).code == CUDA_SUCCESS;
      if (!is_mapped) leave(gone_, to_address(p), chunks.first(gone));
      return false;
    }
    chunks_.drop(chunks);
    return true;
  }

 private:
  struct reservation {
    std::size_t bytes;
    std::uint64_t number;        // no other range has or had it
    std::vector<chunk*> chunks;  // nullptr: nothing is mapped there
  };
  /// Addresses in one range.
  struct place {
    std::span<chunk*> chunks;
    std::uint64_t range = 0;
  };
  /// What a call that failed could not undo.
  struct left_view {
    CUdeviceptr at;
    std::span<chunk*> chunks;
  };
  using range_map = std::map<CUdeviceptr, reservation>;

  static CUdeviceptr to_address(void* p) noexcept { return reinterpret_cast<CUdeviceptr>(p); }
  static void* to_pointer(CUdeviceptr address) noexcept { return reinterpret_cast<void*>(address); }
  static bool is_empty(std::span<chunk* const> chunks) noexcept {
    return std::all_of(chunks.begin(), chunks.end(), [](chunk const* c) { return c == nullptr; });
  }
  static bool is_full(std::span<chunk* const> chunks) noexcept {
    return std::none_of(chunks.begin(), chunks.end(), [](chunk const* c) { return c == nullptr; });
  }
  /// Throws what the driver would say to addresses that cannot be mapped.
  static void require(bool holds, char const* what, void* p, std::size_t bytes, char const* otherwise) {
    if (holds) return;
    std::string const call = std::string("virtual_memory: ") + what + " of " + hex(p) + " (" + std::to_string(bytes) +
                             " B), " + otherwise + ",";
    throw cuda_error(cudaErrorInvalidValue, call.c_str(), __FILE__, __LINE__);
  }
  /// Too little memory is an answer; anything else is an error.
  static bool refused(chunk_mapper::outcome const& made) {
    if (made.code == CUDA_ERROR_OUT_OF_MEMORY && made.is_undone) return false;
    throw cuda_error(runtime_code(made.code), made.call, __FILE__, __LINE__);
  }

  std::size_t chunk_bytes() const noexcept { return chunks_.chunk_bytes(); }

  bool try_to_map(void* p, std::size_t bytes) {
    auto const [chunks, range] = place_of(p, bytes);
    require_empty(chunks, "map", p, bytes);
    auto const fresh = chunks_.take(chunks);
    if (!fresh) return false;
    chunk_mapper::outcome const made = mapper_.map_for(range, to_address(p), chunks);
    if (made.code == CUDA_SUCCESS) return true;
    if (made.is_undone) {
      chunks_.drop(chunks);
      chunks_.trim(0, *fresh);
    } else if (!made.is_under_way) {
      leave(left_, to_address(p), chunks);
    }
    return refused(made);
  }
  void require_empty(std::span<chunk* const> chunks, char const* what, void* p, std::size_t bytes) {
    CUresult code = CUDA_SUCCESS;
    bool const empty = [&] {
      std::lock_guard const lock(mutex_);  // another thread may be unmapping what was left there
      code = try_again();
      return is_empty(chunks);
    }();
    if (!empty) check(code, "cuMemUnmap, after a call that failed,");
    require(empty, what, p, bytes, "where something is mapped");
  }
  /// `undo_left`, with the lock.
  CUresult try_again() noexcept {
    for (; !gone_.empty(); gone_.pop_back())
      for (auto& [at, chunks] = gone_.back(); !chunks.empty(); at += chunk_bytes(), chunks = chunks.subspan(1)) {
        mapper_.unmap(at, chunks.first(1));  // which may be mapped, but not for use
        if (CUresult const code = mapper_.map(at, chunks.first(1)).code; code != CUDA_SUCCESS) return code;
      }
    for (; !left_.empty(); left_.pop_back())
      for (auto& [at, chunks] = left_.back(); !chunks.empty(); at += chunk_bytes(), chunks = chunks.subspan(1))
        if (CUresult const code = take_away(at, chunks.first(1)); code != CUDA_SUCCESS) return code;
    for (auto at = refused_.begin(); at != refused_.end();)
      at = vacate(at->first, at->second) ? refused_.erase(at) : std::next(at);
    return CUDA_SUCCESS;
  }
  void leave(std::vector<left_view>& where, CUdeviceptr at, std::span<chunk*> chunks) noexcept try {
    std::lock_guard const lock(mutex_);
    where.push_back({at, chunks});
  } catch (std::bad_alloc const&) {  // then it stays until the range goes
  }

  bool is_some_gone(CUdeviceptr at, std::size_t bytes) const noexcept {
    std::lock_guard const lock(mutex_);
    return std::any_of(gone_.begin(), gone_.end(), [&](left_view const& gone) {
      return gone.at < at + bytes && at < gone.at + gone.chunks.size() * chunk_bytes();
    });
  }

  /// The place with these addresses; no slots where they are not whole chunks of one range. They stay where they are as
  /// long as the range does.
  place find(void* p, std::size_t bytes) noexcept {
    CUdeviceptr const address = to_address(p);
    std::lock_guard const lock(mutex_);
    auto above = ranges_.upper_bound(address);
    if (above == ranges_.begin()) return {};
    auto& [begin, reserved] = *--above;
    std::size_t const offset = address - begin;
    if (offset % chunk_bytes() != 0 || bytes % chunk_bytes() != 0) return {};
    if (offset >= reserved.bytes || bytes > reserved.bytes - offset) return {};
    return {std::span(reserved.chunks).subspan(offset / chunk_bytes(), bytes / chunk_bytes()), reserved.number};
  }
  place place_of(void* p, std::size_t bytes) {
    place const found = find(p, bytes);
    require(found.chunks.data() != nullptr, "use", p, bytes, "which is not in one range, or not in whole chunks");
    return found;
  }

  range_map::node_type take_out(address_range range) noexcept {
    std::lock_guard const lock(mutex_);
    auto const found = ranges_.find(to_address(range.begin));
    if (found == ranges_.end() || found->second.bytes != range.bytes) return {};
    auto const is_in_it = [&](left_view const& left) { return left.at - found->first < range.bytes; };
    std::erase_if(left_, is_in_it);
    std::erase_if(gone_, is_in_it);
    return ranges_.extract(found);
  }

  /// What they hold is no single range's any more.
  static void disown(std::span<chunk* const> chunks) noexcept {
    for (chunk* c : chunks) c->owner = 0;
  }

  /// Unmaps whatever is mapped in a range and gives its addresses back; false if the driver refuses. May be repeated.
  bool vacate(CUdeviceptr begin, reservation& r) noexcept {
    return take_away(begin, r.chunks) == CUDA_SUCCESS && driver_.cuMemAddressFree(begin, r.bytes) == CUDA_SUCCESS;
  }
  /// Unmaps whatever is mapped, until the driver refuses; its answer. May be repeated.
  CUresult take_away(CUdeviceptr at, std::span<chunk*> chunks) noexcept {
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      if (chunks[i] == nullptr) continue;
      CUresult const code = driver_.cuMemUnmap(at + i * chunk_bytes(), chunk_bytes());
      // An invalid value: nothing is mapped there, since a call failed between the two.
      if (code != CUDA_SUCCESS && code != CUDA_ERROR_INVALID_VALUE) return code;
      chunks_.drop({&chunks[i], 1});
    }
    return CUDA_SUCCESS;
  }

  process_exit life_;
  driver_functions const& driver_;
  physical_chunks& chunks_;
  chunk_mapper const mapper_;

  lone_attempts mapping_;

  std::mutex mutable mutex_;
  std::uint64_t made_ = 0;  // ranges, ever
  range_map ranges_;
  range_map refused_;            // given back, but the driver would not have them
  std::vector<left_view> left_;  // mapped, and to be unmapped
  std::vector<left_view> gone_;  // unmapped, and to be mapped again
};

}  // namespace weir::detail
