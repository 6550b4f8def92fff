#pragma once
// A growable resource on host memory for tests: it counts chunks, runs out of them, and fails when it is told to.

#include <weir/core/bytes.hpp>
#include <weir/core/error.hpp>
#include <weir/core/growable.hpp>
#include <weir/core/report.hpp>
#include <weir/pool/growable_range.hpp>

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

namespace weir::test {

/// Ranges are addresses without access; mapped chunks can be read and written, so that a touch of a hole crashes. Keeps
/// what it is asked for in plain view. Not thread-safe.
class test_growable {
 public:
  static constexpr bool host_accessible = true;
  static constexpr bool host_ordered = true;
  static constexpr std::size_t chunk = std::size_t{2} << 20;

  explicit test_growable(std::size_t most = ~std::size_t{0}) : capacity(most) {}
  test_growable(test_growable const&) = delete;
  test_growable& operator=(test_growable const&) = delete;
  ~test_growable() {
    for (auto const& [begin, bytes] : ranges) ::munmap(reinterpret_cast<void*>(begin), bytes);
  }

  void* allocate(stream_ref stream, std::size_t bytes, std::size_t = default_alignment) {
    throw out_of_memory({bytes, bytes, stream}, "test_growable", {});
  }
  void deallocate(stream_ref, void*, std::size_t, std::size_t = default_alignment) noexcept {}
  void describe(report& out) const { out.below("test_growable", std::to_string(mapped.size()) + " chunks"); }
  int device() const noexcept { return 0; }

  std::size_t chunk_bytes() const noexcept { return chunk; }
  address_range reserve_range(std::size_t most) {
    std::size_t const bytes = (most < range_bytes ? most : range_bytes) / chunk * chunk;
    if (bytes == 0) throw out_of_memory({bytes, bytes, host_order}, "test_growable", {});
    auto* const p = static_cast<std::byte*>(
        ::mmap(nullptr, bytes + chunk, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    auto const at = reinterpret_cast<std::uintptr_t>(p), begin = (at + chunk - 1) / chunk * chunk;
    if (begin != at) ::munmap(p, begin - at);
    ::munmap(reinterpret_cast<void*>(begin + bytes), at + chunk - begin);
    ranges[begin] = bytes;
    return {reinterpret_cast<void*>(begin), bytes};
  }
  void release_range(address_range range) noexcept {
    ::munmap(range.begin, range.bytes);
    ranges.erase(reinterpret_cast<std::uintptr_t>(range.begin));
  }
  bool map(void* p, std::size_t bytes) {
    if (fail_map != cudaSuccess && maps_before_failure-- == 0) {
      maps_before_failure = 0;
      throw cuda_error(std::exchange(fail_map, cudaSuccess), "cuMemMap", __FILE__, __LINE__);
    }
    if (in_use() + bytes > capacity) return false;
    ++map_calls;
    for (std::size_t at = 0; at < bytes; at += chunk) {
      auto const [place, added] = mapped.emplace(reinterpret_cast<std::uintptr_t>(p) + at, true);
      wrong += !added;
    }
    chunks_mapped += bytes / chunk;
    if (in_use() > peak) peak = in_use();
    return ::mprotect(p, bytes, PROT_READ | PROT_WRITE) == 0;
  }
  bool unmap(void* p, std::size_t bytes) noexcept {
    if (refuse_unmap) return false;
    for (std::size_t at = 0; at < bytes; at += chunk)
      wrong += mapped.erase(reinterpret_cast<std::uintptr_t>(p) + at) == 0;
    chunks_unmapped += bytes / chunk;
    ::madvise(p, bytes, MADV_DONTNEED);
    return ::mprotect(p, bytes, PROT_NONE) == 0;
  }
  bool alias(void*, void*, std::size_t) { return false; }

  bool movable() const noexcept { return is_movable; }

  std::size_t in_use() const noexcept { return mapped.size() * chunk; }

  std::size_t capacity;
  std::size_t range_bytes = std::size_t{64} << 30;
  std::map<std::uintptr_t, std::size_t> ranges;
  std::map<std::uintptr_t, bool> mapped;
  std::size_t peak = 0, map_calls = 0, chunks_mapped = 0, chunks_unmapped = 0;
  std::size_t wrong = 0;               // calls that broke the rules: mapped twice, or unmapped without
  cudaError_t fail_map = cudaSuccess;  // once, after so many calls that work
  std::size_t maps_before_failure = 0;
  bool refuse_unmap = false;
  bool is_movable = true;
};

/// The same for several pools.
class shared_growable : public test_growable {
 public:
  explicit shared_growable(std::size_t most) : test_growable(most), tenants_(most) {}
  tenants& tenancy() noexcept { return tenants_; }
  void describe(report& out) const {
    test_growable::describe(out);
    tenants_.describe(out);
  }

 private:
  tenants tenants_;
};

/// Lets something happen while a thread takes memory away, or puts some where none is, once: as another thread would do
/// it then.
template <class Memory>
class busy : public Memory {
 public:
  using Memory::Memory;
  bool unmap(void* p, std::size_t bytes) noexcept {
    if (meanwhile) std::exchange(meanwhile, nullptr)();
    return !std::exchange(refuse_once, false) && Memory::unmap(p, bytes);
  }
  bool map(void* p, std::size_t bytes) {
    if (while_mapping) std::exchange(while_mapping, nullptr)();
    return Memory::map(p, bytes);
  }
  std::function<void()> meanwhile, while_mapping;
  bool refuse_once = false;
};
using busy_growable = busy<test_growable>;

}  // namespace weir::test
