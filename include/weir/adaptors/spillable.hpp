#pragma once
// Elements in a memory with `spill`: on the device while they are pinned, and on the host if the room is needed.

#include <weir/adaptors/detail/spiller.hpp>
#include <weir/adaptors/spill.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <cstddef>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>

namespace weir {

/// Elements that stay on the device, at one address, while this lives. What `spillable::pin` returns; move-only.
/// Work on its stream may use them; other streams after they were ordered behind that one, and they must be joined to
/// it before the pin ends. Must end before its handle. A pointer that is kept longer than the pin is wrong: the memory
/// may be someone else's by then. To end a pin makes one CUDA call on a `weir::stream`, two on others; none of them
/// blocks.
template <class T>
class spill_pin {
 public:
  T* data() const noexcept { return static_cast<T*>(use_.data()); }
  std::size_t size() const noexcept { return size_; }
  T* begin() const noexcept { return data(); }
  T* end() const noexcept { return data() + size_; }

  spill_pin(spill_pin&& other) noexcept : use_(std::move(other.use_)), size_(std::exchange(other.size_, 0)) {}
  spill_pin& operator=(spill_pin&&) = delete;

 private:
  template <class U>
  friend class spillable;
  spill_pin() = default;
  spill_pin(detail::spiller& owner, detail::spiller::block block, stream_ref stream, std::size_t size)
      : use_(owner, block, stream), size_(size) {}

  detail::spiller::pin use_;
  std::size_t size_ = 0;
};

/// Owns `size()` elements of a trivially copyable `T` in a stack with a `spill` layer, which must outlive it.
/// Move-only; share one by `std::shared_ptr`. Any thread may pin it, several at once; it must not be moved or destroyed
/// meanwhile.
///
///     weir::spillable<float> x(memory, stream, n);
///     {
///       auto const p = x.pin(stream);
///       kernel<<<grid, block, 0, stream>>>(p.data(), p.size());
///     }                                                            // from here on it may be spilled
///
/// It takes its memory of the outermost `spill` layer; layers above do not see it. The destructor frees in stream
/// order: on the stream of the last pin if that is a `weir::stream`, else behind it on a stream of the layer's. When
/// not to use it: for memory whose address others keep, such as that of a container or a graph.
template <class T>
class spillable {
  static_assert(std::is_trivially_copyable_v<T>,
                "weir: spillable<T> copies the bytes of its elements to the host and back, so T must be trivially "
                "copyable");

 public:
  /// Elements with undefined values, on the device. Throws as `allocate` of the `spill` layer does,
  /// `std::bad_array_new_length` where the bytes cannot be counted, `std::invalid_argument` in host order,
  /// `std::logic_error` where `stream` is being captured, and `cuda_error`.
  template <class Top>
  spillable(Top&& memory, stream_ref stream, std::size_t count) : size_(count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    if (count == 0) return;
    owner_ = &weir::find<spill_resource>(memory).spiller_;
    block_ = owner_->add(stream, count * sizeof(T), alignof(T) > default_alignment ? alignof(T) : default_alignment);
  }
  ~spillable() {
    if (owner_ != nullptr) owner_->drop(block_);
  }
  spillable(spillable&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)), block_(other.block_), size_(std::exchange(other.size_, 0)) {}
  spillable& operator=(spillable&& other) noexcept {
    spillable taken(std::move(other));
    std::swap(owner_, taken.owner_);
    std::swap(block_, taken.block_);
    std::swap(size_, taken.size_);
    return *this;
  }

  /// Keeps the elements on the device while what is returned lives, and puts `stream` behind all pins that have ended.
  /// Elements that were spilled are brought back: their memory is taken in the order of `stream`, which may spill other
  /// handles, and the copy is queued there; the host does not wait. Then throws as the constructor does, and the
  /// contents stay where they are. Refused with `std::logic_error` where `stream` is being captured: pin before the
  /// capture, on another stream or the same, and hold the pin as long as the graph may run; and where it moves just now
  /// and the calling thread is inside of a move itself, as a reclaimer may be. On a default stream, the stack's device
  /// has to be current, here and where the pin ends; a pin on the per-thread one ends on its thread. Not while a pool
  /// below is parked: that is not asked for, and there may be no memory at the address.
  [[nodiscard]] spill_pin<T> pin(stream_ref stream) {
    return owner_ == nullptr ? spill_pin<T>() : spill_pin<T>(*owner_, block_, stream, size_);
  }

  /// How many elements. 0 after a move.
  std::size_t size() const noexcept { return size_; }
  /// Whether a pin would find the elements on the device at this moment. For diagnosis: another thread may change it.
  bool is_on_device() const noexcept { return owner_ == nullptr || owner_->is_on_device(block_); }

 private:
  detail::spiller* owner_ = nullptr;
  detail::spiller::block block_{};
  std::size_t size_;
};

}  // namespace weir
