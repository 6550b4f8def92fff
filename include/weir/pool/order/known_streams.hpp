#pragma once
// Which stream a free list stands for: its handle, its device, and who needs the list to stay that stream's.

#include <weir/cuda/error.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/pool/heap/sequence.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace weir::detail {

/// By the numbers of free lists. What a number stands for changes: a list that is closed may become another stream's.
/// Knows nothing of what was freed. Guarded by its pool's lock.
class known_streams {
 public:
  known_streams() : streams_(1) {}

  /// Has lists below `lists`. May throw `std::bad_alloc`.
  void grow(std::size_t lists) { streams_.grow(lists); }
  std::size_t host_bytes() const noexcept { return streams_.bytes(); }

  /// From now on the list is this stream's. `is_device_known`: CUDA said so; else it is taken for this device's.
  void set(list_id list, cudaStream_t handle, int device, bool is_device_known) noexcept {
    streams_[list] = {handle, device, 0, is_device_known, 0};
  }
  /// From now on it is of no one stream. Its device stays: that is the one of the events which it has.
  void set_none(list_id list) noexcept { set(list, nullptr, device(list), true); }
  void set_device(list_id list, int device) noexcept { streams_[list].device = device; }
  /// CUDA said which device its stream is of.
  void confirm_device(list_id list) noexcept { streams_[list].is_device_known = true; }

  /// Null for a list of no one stream.
  cudaStream_t handle(list_id list) const noexcept { return streams_[list].handle; }
  int device(list_id list) const noexcept { return streams_[list].device; }
  bool is_device_known(list_id list) const noexcept { return streams_[list].is_device_known; }

  /// Until `end_keep` the list is to stay this stream's. May be called several times.
  void keep(list_id list) noexcept { ++streams_[list].kept; }
  void end_keep(list_id list) noexcept { --streams_[list].kept; }
  bool is_kept(list_id list) const noexcept { return streams_[list].kept != 0; }

  /// True the first time that it is asked with this number, which is not 0, since it was asked with another one.
  bool is_first_of(unsigned number, list_id list) noexcept {
    return std::exchange(streams_[list].asked, number) != number;
  }

  /// CUDA says that the list's stream has its handle now.
  void confirm_handle(list_id list) noexcept { of_handles_[place_of(handle(list))] = list; }
  /// The list whose stream had this handle when that was said last, as far as it is remembered; else `shared`.
  list_id had_handle(cudaStream_t wanted) const noexcept {
    list_id const list = of_handles_[place_of(wanted)];
    return handle(list) == wanted ? list : shared;
  }

  /// Which device a stream is of, where CUDA can say that: leaves `device` as it is for a default stream. False if
  /// CUDA fails. Not for a stream that is being captured, since that would break the capture.
  static bool ask_device([[maybe_unused]] cudaStream_t handle, [[maybe_unused]] int& device) noexcept {
#if CUDART_VERSION >= 12080
    return is_default_stream(handle) || succeeded(cudaStreamGetDevice(handle, &device));
#else
    return true;
#endif
  }

 private:
  static constexpr std::size_t places = 64;

  struct known_stream {
    cudaStream_t handle = nullptr;
    int device = 0;
    unsigned kept = 0;
    bool is_device_known = true;
    unsigned asked = 0;  // the number that it was asked with last
  };

  static std::size_t place_of(cudaStream_t handle) noexcept {
    return static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(handle) * 0x9e3779b97f4a7c15u >> 58);
  }

  grown_array<known_stream> streams_;
  list_id of_handles_[places] = {};
};

}  // namespace weir::detail
