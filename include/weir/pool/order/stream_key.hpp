#pragma once
// Who a stream is, for pools: a number that no other stream of the process has or will have.

#include <weir/cuda/capture.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/pool/order/thread_registry.hpp>

#include <cstdint>

namespace weir::detail {

/// A stream's number: the low bits are its kind, the others a number within that. `none` in host order.
enum class stream_key : std::uint64_t { none };
/// A capture's number, which CUDA gives.
enum class capture_key : std::uint64_t { none, invalidated = invalidated_capture };

/// Handles are no identity, since CUDA gives a new stream the handle of a dead one. Any thread.
struct stream_identity {
  stream_ref stream;
  stream_key key = stream_key::none;
  capture_key capture = capture_key::none;  ///< that the stream takes part in
  cudaError_t code = cudaSuccess;           ///< else CUDA could not say

  static constexpr unsigned kind_bits = 3;
  static constexpr stream_key legacy_key{1 << kind_bits};
  /// `destroyable`: may be destroyed at any time. `promised`: the user says that it outlives the pool. `capturing`: the
  /// same, known by its handle, while it takes part in a capture; see `private_pool`. No streams: `captured`, what one
  /// freed in a capture, and `joint`, what was freed after the work of two lists.
  enum kind : std::uint64_t { legacy, per_thread, lasting, promised, destroyable, captured, joint, capturing };

  static constexpr stream_key key_for(kind k, std::uint64_t number) noexcept {
    return stream_key{number << kind_bits | k};
  }
  static constexpr std::uint64_t number_of(stream_key key) noexcept {
    return static_cast<std::uint64_t>(key) >> kind_bits;
  }
  static constexpr kind kind_of(stream_key key) noexcept {
    return static_cast<kind>(static_cast<std::uint64_t>(key) & ((1u << kind_bits) - 1));
  }

  /// A stream's key where that takes no call to CUDA, else `none`. `all_last`: every stream outlives the pool.
  static stream_key known_key(stream_ref stream, bool all_last) noexcept {
    return key_of(stream, all_last, &thread_registry::this_number);
  }
  /// The same without any call: one that nobody has for the default stream of a thread that was not seen yet.
  [[gnu::always_inline]] static stream_key key_at_hand(stream_ref stream, bool all_last) noexcept {
    return key_of(stream, all_last, &thread_registry::number_so_far);
  }

  /// True if only CUDA can say who the stream with this known key is, or whether it is being captured.
  static bool must_ask(stream_ref stream, stream_key known_key) noexcept {
    return captures_declared() || (known_key == stream_key::none && !stream.is_host_order());
  }

  /// Two calls for a stream that may be destroyed (`cudaStreamGetCaptureInfo`, `cudaStreamGetId`), one for others that
  /// can be captured. The capture comes first: CUDA does not say who a stream is that captures, and the question breaks
  /// the capture. `may_be_captured`: else the first call is left out.
  static stream_identity ask(stream_ref stream, stream_key known_key, bool may_be_captured = true) noexcept {
    stream_identity who = ask_capture(stream, known_key, may_be_captured);
    if (who.may_ask_id()) who.ask_id();
    return who;
  }
  /// The first call alone.
  [[gnu::noinline]] static stream_identity ask_capture(stream_ref stream, stream_key known_key,
                                                       bool may_be_captured) noexcept {
    stream_identity who{.stream = stream, .key = known_key};
    cudaStream_t const handle = stream.get();
    if (!may_be_captured || stream.is_host_order() || handle == cudaStreamLegacy) return who;
    std::uint64_t capture = 0;
    if (who.code = capture_of(handle, capture); who.code != cudaSuccess) return who;
    who.capture = capture_key{capture};
    if (known_key == stream_key::none && who.capture != capture_key::none)
      who.key = key_for(capturing, reinterpret_cast<std::uintptr_t>(handle));
    return who;
  }
  /// True if it is a stream that may be destroyed unnoticed.
  bool may_end() const noexcept { return kind_of(key) == destroyable; }
  /// True if it is a stream that may be destroyed, and is in no capture; who it is has not been asked.
  bool may_ask_id() const noexcept { return key == stream_key::none && code == cudaSuccess && !stream.is_host_order(); }
  /// The second call.
  void ask_id() noexcept {
    unsigned long long id = 0;
    if (code = cudaStreamGetId(stream.get(), &id); code == cudaSuccess) key = key_for(destroyable, id);
  }

 private:
  template <class Number>
  [[gnu::always_inline]] static stream_key key_of(stream_ref stream, bool all_last, Number this_thread) noexcept {
    if (std::uint64_t const id = stream.lasting_id(); id != 0) [[likely]]
      return key_for(lasting, id);
    if (stream.is_host_order()) return stream_key::none;
    cudaStream_t const handle = stream.get();
    if (handle == cudaStreamLegacy) return legacy_key;
    if (handle == cudaStreamPerThread) return key_for(per_thread, this_thread());
    return all_last ? key_for(promised, reinterpret_cast<std::uintptr_t>(handle)) : stream_key::none;
  }
};

}  // namespace weir::detail
