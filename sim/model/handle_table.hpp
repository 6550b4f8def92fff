#pragma once
// Gives out opaque handle values and finds what they stand for.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace weir::sim::detail {

/// Handle values are numbers that nobody can dereference, so a stale or foreign handle is recognised, not followed. The
/// value given back last is given out next: code that keys state by a handle meets the reuse that CUDA allows. Not
/// thread-safe: the runtime's mutex guards it.
template <class Handle, class T, std::uintptr_t first_value>
class handle_table {
 public:
  Handle add(T value) {
    if (free_.empty()) {
      free_.reserve(slots_.size() + 1);  // so that `remove` cannot fail
      slots_.push_back(std::move(value));
      return handle_of(slots_.size() - 1);
    }
    std::size_t const index = free_.back();
    slots_[index] = std::move(value);
    free_.pop_back();
    return handle_of(index);
  }

  /// Null if no such handle is valid now.
  T* find(Handle handle) {
    std::uintptr_t const offset = reinterpret_cast<std::uintptr_t>(handle) - first_value;
    std::size_t const index = offset / stride;
    if (offset % stride != 0 || index >= slots_.size() || !slots_[index]) return nullptr;
    return &*slots_[index];
  }

  void remove(Handle handle) {
    std::size_t const index = (reinterpret_cast<std::uintptr_t>(handle) - first_value) / stride;
    slots_[index].reset();
    free_.push_back(index);
  }

  template <class Condition>
  void remove_if(Condition condition) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i] && condition(*slots_[i])) remove(handle_of(i));
    }
  }

  template <class Visitor>
  void for_each(Visitor visitor) {
    for (auto& slot : slots_) {
      if (slot) visitor(*slot);
    }
  }

 private:
  static constexpr std::uintptr_t stride = 16;

  static Handle handle_of(std::size_t index) { return reinterpret_cast<Handle>(first_value + index * stride); }

  std::vector<std::optional<T>> slots_;
  std::vector<std::size_t> free_;
};

}  // namespace weir::sim::detail
