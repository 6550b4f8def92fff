#pragma once
// Memory that remembers who has it: the resource that the bridges' tests stand on.

#include <weir/core/resource.hpp>

#include <cstddef>
#include <map>
#include <new>
#include <vector>

/// Aligned host memory; counts what is live and what was given back wrongly, and remembers each call's order.
template <bool Device, bool Host>
class checked_memory {
 public:
  static constexpr bool device_accessible = Device;
  static constexpr bool host_accessible = Host;
  static constexpr bool host_ordered = true;

  checked_memory() = default;
  checked_memory(checked_memory const&) = delete;
  checked_memory& operator=(checked_memory const&) = delete;

  void* allocate(weir::stream_ref stream, std::size_t bytes, std::size_t alignment) {
    if (bytes == 0) return nullptr;
    if (refuse) throw std::bad_alloc();
    void* const p = ::operator new (bytes, std::align_val_t{alignment});
    live[p] = {bytes, alignment};
    allocated_on.push_back(stream);
    return p;
  }
  void deallocate(weir::stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    if (p == nullptr) return;
    auto const found = live.find(p);
    if (found == live.end() || found->second != block{bytes, alignment}) {
      ++wrong;
      return;
    }
    live.erase(found);
    freed_on.push_back(stream);
    ::operator delete (p, std::align_val_t{alignment});
  }

  bool clean() const { return live.empty() && wrong == 0; }

  struct block {
    std::size_t bytes, alignment;
    friend bool operator==(block const&, block const&) = default;
  };
  std::map<void*, block> live;
  std::vector<weir::stream_ref> allocated_on, freed_on;
  int wrong = 0;
  bool refuse = false;
};

using host_memory = checked_memory<false, true>;
using device_memory = checked_memory<true, false>;
using pinned_memory = checked_memory<true, true>;
