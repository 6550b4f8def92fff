#pragma once
// A stream whose handle outlives every pool, so that pools need no CUDA call to recognise it.

#include <weir/cuda/capture.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/process_exit.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/support/grown_array.hpp>
#include <weir/support/mutex.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace weir {
namespace detail {

struct persistent_stream {
  cudaStream_t handle = nullptr;
  std::uint64_t id = 0;
  int device = 0;
  unsigned flags = 0;
};

inline std::uint64_t stream_id(cudaStream_t handle) {
  unsigned long long id = 0;
  check(cudaStreamGetId(handle, &id), "cudaStreamGetId");
  return id;
}

/// The streams that `weir::stream`s have given back. Never destroyed (nor freed at exit): that is the point. A forked
/// child begins with an empty one: the streams are its parent's, and so may the lock be.
class stream_cache {
 public:
  /// The process's own.
  static stream_cache& instance() {
    stream_cache* known = __atomic_load_n(&latest, __ATOMIC_ACQUIRE);
    while (known == nullptr || known->made_after_ != forks) {
      auto* const made = new stream_cache;
      if (__atomic_compare_exchange_n(&latest, &known, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return *made;
      delete made;
    }
    return *known;
  }

  persistent_stream take(unsigned flags) {
    int const device = current_device();
    {
      mutex_guard const lock(mutex_);
      for (std::size_t i = 0; i < count_;) {
        persistent_stream& candidate = idle_[i];
        bool const fits = candidate.device == device && candidate.flags == flags;
        // What joined a capture is part of it until that ends, and would draw its next user's work into the graph.
        if (!fits || may_break_capture(candidate.handle)) {
          ++i;
          continue;
        }
        persistent_stream const found = candidate;
        candidate = idle_[--count_];
        if (!is_gone(found)) return found;
        --made_;
      }
      if (++made_ > idle_.size()) idle_.grow(made_ + made_ / 2);  // so that `give_back` never allocates
    }
    persistent_stream made{.device = device, .flags = flags};
    check(cudaStreamCreateWithFlags(&made.handle, flags), "cudaStreamCreateWithFlags");
    try {
      made.id = stream_id(made.handle);
    } catch (...) {
      succeeded(cudaStreamDestroy(made.handle));
      throw;
    }
    return made;
  }

  void give_back(persistent_stream stream) noexcept {
    mutex_guard const lock(mutex_);
    idle_[count_++] = stream;
  }

 private:
  /// Whether `cudaDeviceReset` took the stream along: then its handle is nobody's, or that of another stream. Not for
  /// one that captures.
  static bool is_gone(persistent_stream const& known) noexcept {
    unsigned long long id = 0;
    cudaError_t const code = cudaStreamGetId(known.handle, &id);
    return succeeded(code) ? id != known.id : code == cudaErrorInvalidResourceHandle;
  }

  static inline constinit stream_cache* latest = nullptr;

  process_exit life_;  // sees to it that forks are counted
  unsigned made_after_ = forks;
  mutex mutex_;
  grown_array<persistent_stream> idle_;
  std::size_t count_ = 0;  // of them
  std::size_t made_ = 0;
};

}  // namespace detail

/// Owns a stream on the current device; a pool serves it without any CUDA call as long as it frees where it allocated.
///
/// The destructor does not destroy the CUDA stream but keeps it for the next `weir::stream` of the same device and
/// kind (work still queued simply comes first in that one; the next is another one while this captures, and where
/// `cudaDeviceReset` took this along). Use it for streams that carry allocations; not where each of thousands of short
/// tasks must have a stream that no earlier task used.
class stream {
 public:
  enum class kind : unsigned {
    non_blocking = cudaStreamNonBlocking,  ///< independent of the legacy default stream
    blocking = cudaStreamDefault,          ///< synchronises implicitly with the legacy default stream
  };

  explicit stream(kind k = kind::non_blocking)
      : stream_(detail::stream_cache::instance().take(static_cast<unsigned>(k))) {}
  ~stream() {
    if (stream_.handle != nullptr && !life_.is_exiting()) detail::stream_cache::instance().give_back(stream_);
  }
  stream(stream&& other) noexcept : stream_(std::exchange(other.stream_, {})), life_(other.life_) {}
  stream& operator=(stream&& other) noexcept {
    stream taken(std::move(other));
    std::swap(stream_, taken.stream_);
    std::swap(life_, taken.life_);
    return *this;
  }

  /// What `stream_ref` recognises a persistent stream by.
  std::uint64_t lasting_id() const noexcept { return stream_.id; }
  /// Throws `std::logic_error` if this was moved from; so do the conversion to `stream_ref` and `synchronize`.
  cudaStream_t get() const {
    if (stream_.handle == nullptr) [[unlikely]]
      detail::refuse_moved_from("stream");
    return stream_.handle;
  }
  int device() const noexcept { return stream_.device; }

  /// Blocks the host until all work queued so far is done.
  void synchronize() const { detail::check(cudaStreamSynchronize(get()), "cudaStreamSynchronize"); }

 private:
  detail::persistent_stream stream_;
  detail::process_exit life_;
};

}  // namespace weir
