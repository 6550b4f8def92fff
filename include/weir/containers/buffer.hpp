#pragma once
// Bytes of a stack that live on a stream, and go back when their owner ends.

#include <weir/containers/any_handle.hpp>
#include <weir/containers/detail/stream_work.hpp>
#include <weir/core/handle.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/process_exit.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

namespace weir {
namespace detail {

/// What a container on `R` is given as its memory: a stack of that type, or what its handle is made from.
template <class M, class R>
concept memory_for = std::convertible_to<M, handle_to<R>> ||(held_by_reference<R>&& std::same_as<M, R&>);

}  // namespace detail

/// Owns bytes with undefined values on a stream. Move-only; `copy` is explicit. What is moved from is empty, and may be
/// assigned to or destroyed.
///
///     weir::buffer scratch(64_MiB, stream, memory);
///     kernel<<<grid, block, 0, stream.get()>>>(scratch.data());
///
/// Its memory is taken, resized and given back in the order of `stream()`, so work that is queued there when it ends
/// still has it. Nothing waits but `read` and `write`. Work of your own on other streams you order, as with any memory.
/// Members that take another stream order it themselves, by events: it comes after what `stream()` was given so far,
/// and `stream()` after what they gave it. All streams are of the stack's device, which need not be current.
///
/// `R` says how the memory is held. By default (`any_handle`) the type does not name the stack: a stack, a
/// `share(memory)` or an `any_ref` is referred to and must outlive the buffer, an `any_resource` stays alive with it.
/// Where `R` is `decltype(memory)`, or a handle's type, there is no indirect call, and memory that the host reaches is
/// known to be such. On a pool and a `weir::stream` neither begin nor end makes a CUDA call.
///
/// Thread-safe as a standard container is. It must not be used with the per-thread default stream in several threads,
/// nor in host order (`std::invalid_argument`). When not to use it: for typed elements (`vector`), for scratch memory
/// that lives as long as one call (`allocate` does), or where work on many streams uses it at once.
template <resource R = any_handle>
class buffer {
 public:
  using handle_type = handle_to<R>;

  /// Throws what the stack throws.
  template <detail::memory_for<R> M>
  buffer(std::size_t bytes, stream_ref stream, M&& memory, std::size_t alignment = default_alignment)
      : buffer(handle_type(std::forward<M>(memory)), stream, alignment) {
    reallocate(bytes);
    size_ = bytes;
  }
  template <detail::cannot_be_shared F>
  buffer(std::size_t, stream_ref, F const&, auto...) = delete;  // weir: make the recipe first: `weir::make(recipe)`
  ~buffer() { give_back(); }
  buffer(buffer const&) = delete;             // weir: a copy is explicit and names its stream: `x.copy(stream)`
  buffer& operator=(buffer const&) = delete;  // weir: a copy is explicit and names its stream: `y = x.copy(stream)`
  buffer(buffer&& other) noexcept
      : memory_(std::move(other.memory_)),
        work_(other.work_),
        alignment_(other.alignment_),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)),
        life_(other.life_) {}
  buffer& operator=(buffer&& other) noexcept {
    buffer taken(std::move(other));
    std::swap(memory_, taken.memory_);
    std::swap(work_, taken.work_);
    std::swap(alignment_, taken.alignment_);
    std::swap(data_, taken.data_);
    std::swap(size_, taken.size_);
    std::swap(capacity_, taken.capacity_);
    std::swap(life_, taken.life_);
    return *this;
  }

  /// Another buffer on the same memory with the same bytes, which lives on `stream`. Throws what the stack throws, and
  /// `cuda_error`.
  [[nodiscard]] buffer copy(stream_ref stream) const {
    buffer made(memory_, stream, alignment_);
    made.work_.on_device_of(work_);
    work_.on(stream, [&] {  // in a capture of `stream()` the memory is the capture's, too
      made.reallocate(size_);
      made.size_ = size_;
      detail::copy_bytes(made.data_, data_, size_, stream);
    });
    return made;
  }
  [[nodiscard]] buffer copy() const { return copy(stream()); }

  void* data() noexcept { return data_; }
  void const* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  /// Bytes that it has memory for.
  std::size_t capacity() const noexcept { return capacity_; }
  std::size_t alignment() const noexcept { return alignment_; }
  stream_ref stream() const noexcept { return work_.stream(); }
  handle_type const& memory() const noexcept { return memory_; }
  /// The device of its memory; the one current at its making where no layer of the stack says.
  int device() const noexcept { return work_.device(); }

  /// Has `bytes` bytes: those there were, and undefined ones. Beyond `capacity()` it takes exactly that much anew and
  /// copies on the stream; until then both are held. Throws what the stack throws, and `cuda_error`; then nothing has
  /// changed.
  void resize(std::size_t bytes) {
    reserve(bytes);
    size_ = bytes;
  }
  /// Has memory for `bytes` bytes at least. Throws as `resize` does.
  void reserve(std::size_t bytes) {
    if (bytes > capacity_) reallocate(bytes);
  }
  /// Has memory for no more than its bytes. Throws as `resize` does.
  void shrink_to_fit() {
    if (size_ < capacity_) reallocate(size_);
  }
  /// Sets all bytes to 0, on the stream. Throws `cuda_error`.
  void set_to_zero() {
    work_.on(stream(), [&] {
      if constexpr (device_accessible<handle_type>)
        detail::zero_bytes(data_, size_, stream());
      else
        detail::zero_bytes_on_host(static_cast<std::byte*>(data_), size_, stream());
    });
  }

  /// Lives on `stream` from now on, which is put behind the work that `stream()` was given so far. The old stream may
  /// end then. Throws `cuda_error`, also where it has memory and one of the two streams is in a capture that the other
  /// is no part of; then nothing has changed.
  void set_stream(stream_ref stream) { work_.move_to(stream, data_ != nullptr); }

  /// Copies `bytes` bytes from `offset` on to the host, on `stream`, and waits for that. Throws `std::out_of_range`,
  /// and `cuda_error`, which is also what it does where waiting would break a stream capture.
  void read(std::size_t offset, void* to, std::size_t bytes, stream_ref stream) const {
    require_inside(offset, bytes);
    work_.wait_on(stream, [&] { detail::copy_bytes(to, at(offset), bytes, stream); });
  }
  void read(std::size_t offset, void* to, std::size_t bytes) const { read(offset, to, bytes, stream()); }
  /// The same in the other direction: on return `from` was read.
  void write(std::size_t offset, void const* from, std::size_t bytes, stream_ref stream) {
    require_inside(offset, bytes);
    work_.wait_on(stream, [&] { detail::copy_bytes(at(offset), from, bytes, stream); });
  }
  void write(std::size_t offset, void const* from, std::size_t bytes) { write(offset, from, bytes, stream()); }
  /// The same without the wait: `from` has to stay as it is until the work on `stream` has come so far, and where that
  /// is being captured, as long as the graph may run. Throws `std::out_of_range` and `cuda_error`.
  void write_async(std::size_t offset, void const* from, std::size_t bytes, stream_ref stream) {
    require_inside(offset, bytes);
    work_.on(stream, [&] { detail::copy_bytes(at(offset), from, bytes, stream); });
  }
  void write_async(std::size_t offset, void const* from, std::size_t bytes) {
    write_async(offset, from, bytes, stream());
  }

 private:
  buffer(handle_type memory, stream_ref stream, std::size_t alignment)
      : memory_(std::move(memory)), work_(stream, memory_), alignment_(alignment) {}

  std::byte* at(std::size_t offset) const noexcept { return static_cast<std::byte*>(data_) + offset; }

  void require_inside(std::size_t offset, std::size_t bytes) const {
    if (offset > size_ || bytes > size_ - offset)
      throw std::out_of_range("weir: bytes " + std::to_string(offset) + " to " + std::to_string(offset) + " + " +
                              std::to_string(bytes) + " of a buffer that has " + std::to_string(size_));
  }

  /// Takes memory for `capacity` bytes, not less than `size_`, and copies those there are.
  void reallocate(std::size_t capacity) {
    work_.at_home([&] {
      void* const fresh = memory_.allocate(stream(), capacity, alignment_);
      try {
        detail::copy_bytes(fresh, data_, size_, stream());
      } catch (...) {
        memory_.deallocate(stream(), fresh, capacity, alignment_);
        throw;
      }
      give_back();
      data_ = fresh;
      capacity_ = capacity;
    });
  }
  void give_back() noexcept {
    if (data_ == nullptr || life_.is_exiting()) return;
    work_.free_at_home([&] { memory_.deallocate(stream(), data_, capacity_, alignment_); });
  }

  handle_type memory_;
  detail::stream_work work_;
  std::size_t alignment_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
  detail::process_exit life_;
};

}  // namespace weir
