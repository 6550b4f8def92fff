#pragma once
// Standard containers on a stack: an allocator for std::vector, std::map, std::basic_string and the rest.

#include <weir/core/any_ref.hpp>
#include <weir/core/handle.hpp>
#include <weir/core/resource.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

namespace weir {

/// Gives a standard container memory from `memory`, which must outlive the container (an `any_resource` keeps itself
/// alive).
///
///     std::vector<int, weir::allocator<int>> v(100, memory);                  // the type does not name the stack
///     std::vector<int, weir::allocator<int, decltype(memory)>> v(memory);     // no indirect call; as `allocator_for`
///
/// Without a stream it lives in host order: on a pool that makes no CUDA call, and the container must not be destroyed
/// or grown while queued work still reads it. With a stream, memory is ready for the host at once all the same, but
/// what is freed is reused only after the work queued on that stream so far: for pinned vectors that `cudaMemcpyAsync`
/// reads. It follows its container on copy, move and swap. Equal allocators have the same memory and stream. As
/// thread-safe as the stack is; throws what the stack throws, and `std::bad_array_new_length` where the bytes cannot be
/// counted. When not to use it: for kernels' data (`weir::device_vector`); for many tiny nodes, since a stack rounds
/// sizes up.
template <class T, class R = any_host_ref>
class allocator {
  static_assert(resource<R>, "weir::allocator<T, R>: R must be a memory resource, such as decltype(memory)");
  static_assert(host_accessible<R>,
                "weir::allocator: the host cannot reach this memory, and standard containers live on the host. "
                "Use pinned, managed or host memory, or weir::device_vector for memory on the device.");

 public:
  using value_type = T;
  using handle_type = handle_to<R>;
  using propagate_on_container_copy_assignment = std::true_type;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;
  using is_always_equal = std::false_type;

  /// Implicit, so that a container can be given the stack itself.
  allocator(R& memory, stream_ref freed_on = host_order) noexcept requires held_by_reference<R> : memory_(memory),
                                                                                                  freed_on_(freed_on) {}
  allocator(handle_type memory, stream_ref freed_on = host_order) noexcept
      : memory_(std::move(memory)), freed_on_(freed_on) {}
  /// The type that does not name the stack takes every one, and every handle to one.
  template <class M>
  requires(std::same_as<R, any_host_ref> && !std::same_as<std::remove_cvref_t<M>, any_host_ref> &&
           std::convertible_to<M, any_host_ref>) allocator(M&& memory, stream_ref freed_on = host_order)
  noexcept : memory_(std::forward<M>(memory)), freed_on_(freed_on) {}

  // A move leaves the source as it was, as an allocator's has to: a container that was moved from still allocates.
  allocator(allocator const&) noexcept = default;
  allocator& operator=(allocator const&) noexcept = default;
  template <class U>
  allocator(allocator<U, R> const& other) noexcept : memory_(other.memory()), freed_on_(other.freed_on()) {}

  [[nodiscard]] T* allocate(std::size_t n) {
    if (n > SIZE_MAX / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(memory_.allocate(host_order, n * sizeof(T), alignof(T)));
  }
  void deallocate(T* p, std::size_t n) noexcept { memory_.deallocate(freed_on_, p, n * sizeof(T), alignof(T)); }

  handle_type const& memory() const noexcept { return memory_; }
  stream_ref freed_on() const noexcept { return freed_on_; }

  template <class U>
  friend bool operator==(allocator const& a, allocator<U, R> const& b) noexcept {
    return a.memory() == b.memory() && a.freed_on() == b.freed_on();
  }

 private:
  handle_type memory_;
  stream_ref freed_on_;
};

/// The allocator whose type is found from `memory`: `std::vector v({1, 2, 3}, weir::allocator_for<int>(memory));`
template <class T, resource R>
requires held_by_reference<R>
[[nodiscard]] allocator<T, R> allocator_for(R& memory, stream_ref freed_on = host_order) noexcept {
  return allocator<T, R>(memory, freed_on);
}
/// A handle is copied, so it may be a temporary; an owning one keeps its stack alive.
template <class T, handle H>
[[nodiscard]] allocator<T, H> allocator_for(H const& memory, stream_ref freed_on = host_order) noexcept {
  return allocator<T, H>(memory, freed_on);
}
/// One from `share` gives the same type as the stack it refers to.
template <class T, resource R>
[[nodiscard]] allocator<T, R> allocator_for(resource_ref<R> const& memory, stream_ref freed_on = host_order) noexcept {
  return allocator<T, R>(memory.upstream(), freed_on);
}

}  // namespace weir
