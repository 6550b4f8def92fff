#pragma once
// Finds the slab that a pointer lies in.

#include <weir/pool/heap/slab.hpp>

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// A word for each page of 64 KiB that a slab covers, in tables of two levels for addresses below 2^48. The system
/// gives the tables page by page as they are touched, so they cost eight bytes of host memory a page of a slab.
/// Constant time. Not thread-safe.
class slab_map {
 public:
  slab_map() = default;
  ~slab_map() {
    for (std::size_t i = 0; root_ != nullptr && i < leaves; ++i) unmap(root_[i], leaf_bytes);
    unmap(root_, root_bytes);
  }
  slab_map(slab_map const&) = delete;
  slab_map& operator=(slab_map const&) = delete;

  /// The slab whose pages an address lies in, or null. The last page may be only partly the slab's.
  [[gnu::always_inline]] slab* find(std::uintptr_t address) const noexcept {
    if (root_ == nullptr || address >= end) return nullptr;
    slab* const* const leaf = root_[address / leaf_span];
    return leaf == nullptr ? nullptr : leaf[address / slab::page_bytes % entries];
  }

  /// False, and nothing changed, if there is no host memory or the addresses are too high.
  bool add(slab* added) noexcept {
    if (!has_room(added->begin()) || !has_room(last(*added))) return false;
    set(*added, added);
    return true;
  }
  void remove(slab const& gone) noexcept { set(gone, nullptr); }

  /// Bytes of host memory that are in use.
  std::size_t host_bytes() const noexcept { return host_bytes_; }

 private:
  static constexpr std::uintptr_t end = std::uintptr_t{1} << 48, leaf_span = std::uintptr_t{1} << 31;
  static constexpr std::size_t leaves = end / leaf_span, entries = leaf_span / slab::page_bytes;
  static constexpr std::size_t root_bytes = leaves * sizeof(void*), leaf_bytes = entries * sizeof(void*);
  static constexpr std::size_t touched_bytes = 4096;

  static std::uintptr_t last(slab const& s) noexcept { return s.begin() + s.bytes() - 1; }
  static void* map(std::size_t bytes) noexcept {
    void* const p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
  }
  static void unmap(void* p, std::size_t bytes) noexcept {
    if (p != nullptr) ::munmap(p, bytes);
  }

  bool has_room(std::uintptr_t address) noexcept {
    if (address >= end) return false;
    if (root_ == nullptr && (root_ = static_cast<slab***>(map(root_bytes))) != nullptr) host_bytes_ += touched_bytes;
    if (root_ == nullptr) return false;
    slab**& leaf = root_[address / leaf_span];
    if (leaf == nullptr && (leaf = static_cast<slab**>(map(leaf_bytes))) != nullptr) host_bytes_ += touched_bytes;
    return leaf != nullptr;
  }
  void set(slab const& of, slab* to) noexcept {
    for (std::uintptr_t page = of.begin(); page < of.begin() + of.bytes(); page += slab::page_bytes)
      root_[page / leaf_span][page / slab::page_bytes % entries] = to;
  }

  slab*** root_ = nullptr;
  std::size_t host_bytes_ = 0;
};

}  // namespace weir::detail
