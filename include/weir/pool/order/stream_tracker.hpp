#pragma once
// The ledger of a pool's frees, tied to CUDA: keys of streams, events behind frees, waits between streams.

#include <weir/cuda/capture.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/process_exit.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/pool/order/stream_key.hpp>
#include <weir/pool/order/stream_timeline.hpp>
#include <weir/pool/order/thread_registry.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// Orders frees and takes between streams with as few CUDA calls as is sound. Guarded by its pool's lock; makes no call
/// that blocks. What a free costs depends on whether the stream can still be asked later:
/// - legacy, per-thread and lasting streams: nothing now; an event is recorded when another stream wants the memory;
/// - any other stream may be destroyed after the call, so an event is left behind at once.
class stream_tracker {
 public:
  explicit stream_tracker(int device) : device_(device), streams_(1) {}

  ~stream_tracker() {
    if (life_.is_exiting()) return;
    for (std::size_t lane = 1; lane < ledger_.lane_count(); ++lane)
      ledger_.for_each_event(static_cast<list_id>(lane), [](cudaEvent_t& event) {
        if (event != nullptr) succeeded(cudaEventDestroy(event));
      });
  }
  stream_tracker(stream_tracker const&) = delete;
  stream_tracker& operator=(stream_tracker const&) = delete;

  /// True if few lanes are left for streams not seen before.
  bool is_short_of_lanes() const noexcept { return ledger_.closed_count() < spare_lanes; }
  /// Half as many again; enough at first that a program with few streams is never asked which of them ended.
  std::size_t lanes_to_add() const noexcept {
    std::size_t const more = 2 * spare_lanes + ledger_.lane_count() / 2,
                      most = ledger_.max_lanes - ledger_.lane_count();
    return more < most ? more : most;
  }
  /// May throw `std::bad_alloc`.
  void add_lanes() {
    std::size_t const more = lanes_to_add();
    streams_.grow(ledger_.lane_count() + more);
    ledger_.reserve(ledger_.closed_count() + more);
  }
  std::size_t lane_count() const noexcept { return ledger_.lane_count(); }
  std::size_t open_count() const noexcept { return ledger_.open_count(); }

  /// The stream's lane; `shared` in host order, and for a new stream if there is no room for it or CUDA does not say
  /// which device it is of.
  list_id lane_of(stream_key key, stream_ref stream) noexcept {
    list_id const lane = ledger_.find_cached(key);
    return lane != shared ? lane : find_or_open(key, stream);
  }

  /// The same for a stream that was not seen of late.
  [[gnu::noinline]] list_id find_or_open(stream_key key, stream_ref stream) noexcept {
    life_.settle();
    if (key == stream_key::none) return shared;
    bool opened = false;
    list_id const lane = ledger_.find_or_open(key, opened);
    if (opened && !meet(lane, stream.get())) [[unlikely]] {
      ledger_.close(lane);
      return shared;
    }
    return lane;
  }

  /// A lane of no stream, for memory in a capture: what is freed there is not done before the lane is ended, and nobody
  /// can wait for it. `shared` if there is no room.
  list_id open_captured() noexcept {
    life_.settle();
    bool opened = false;
    list_id const lane = ledger_.find_or_open(identity::key_for(identity::captured, ++captured_lanes_), opened);
    // The events that an earlier stream left in the lane stay, and so does what device they are of.
    if (opened) streams_[lane] = {nullptr, streams_[lane].device, 0};
    return lane;
  }
  bool is_captured(list_id lane) const noexcept { return kind(lane) == identity::captured; }
  /// The graph is gone: what was freed in this lane is done, and the lane is closed. Returns its last ticket.
  sequence end_captured(list_id lane) noexcept {
    ledger_.complete(lane, ledger_.issued(lane));
    ledger_.close(lane);
    return ledger_.issued(lane);
  }

  /// Numbers a free on `lane` by the calling thread and leaves an event behind if the stream may die.
  sequence on_free(list_id lane) noexcept {
    sequence const t = ledger_.issue(lane);
    if (kind(lane) == identity::mortal) record_on(lane, streams_[lane].handle, frees_an_event);
    return t;
  }

  /// Puts an event behind all frees of `lane` so far, where that can be done without holding up other streams.
  bool cover(list_id lane) noexcept {
    if (ledger_.covered(lane) == ledger_.issued(lane)) return true;
    // Of a mortal one the record failed, and the handle may be another stream's by now.
    if (kind(lane) == identity::mortal || is_captured(lane)) return false;
    return record(lane);
  }

  /// Asks CUDA which frees of `lane` are done; never waits. Returns the last ticket that is. Frees with no event behind
  /// them get one, if that does not move one that is still to come: else a busy stream would never be seen done.
  sequence poll(list_id lane, relaxed_capture& calls) noexcept {
    auto const done = [&](cudaEvent_t event) { return calls.enter(), succeeded(cudaEventQuery(event)); };
    ledger_.advance(lane, done);
    if (ledger_.covered(lane) != ledger_.issued(lane) && !ledger_.is_full(lane) && cover(lane))
      ledger_.advance(lane, done);
    return ledger_.completed(lane);
  }

  /// Does everything freed on `giver` up to `t` come before what `taker` does next?
  bool available(list_id taker, list_id giver, sequence t) const noexcept { return ledger_.available(taker, giver, t); }

  /// Makes `taker`'s stream wait for what was freed on `giver` up to `t`. False if that cannot be done.
  bool join(list_id taker, stream_ref stream, list_id giver, sequence t) noexcept {
    if (ledger_.available(taker, giver, t)) return true;
    if (ledger_.covered(giver) < t && !cover(giver) && !cover_through_legacy(giver)) return false;
    auto const* const behind = ledger_.covering(giver, t);
    if (behind == nullptr || may_break_capture(stream.get()) ||
        !succeeded(cudaStreamWaitEvent(stream.get(), behind->event, 0)))
      return false;
    ledger_.joined(taker, giver, behind->upto);
    return true;
  }

  /// The event that the host may wait for, without the lock, to see all of `lane` done; null if there is none. Until
  /// `end_wait` the lane keeps its stream, so that the event is not destroyed meanwhile.
  cudaEvent_t begin_wait(list_id lane) noexcept {
    ++streams_[lane].waiting;
    if (!cover(lane) && !cover_through_legacy(lane)) return nullptr;
    auto const* const behind = ledger_.covering(lane, ledger_.issued(lane));
    return behind == nullptr ? nullptr : behind->event;
  }
  void end_wait(list_id lane) noexcept { --streams_[lane].waiting; }

  /// False where a wait for the whole device would break a capture on a stream that is known here.
  bool may_wait_for_device() const noexcept {
    bool broken = may_break_capture(cudaStreamLegacy, device_);
    for (std::size_t i = 1; i < lane_count() && !broken; ++i) {
      list_id const lane{static_cast<std::uint16_t>(i)};
      broken = (kind(lane) == identity::lasting || kind(lane) == identity::promised) &&
               may_break_capture(streams_[lane].handle);
    }
    return !broken;
  }

  sequence issued(list_id lane) const noexcept { return ledger_.issued(lane); }
  /// The caller knows, from a wait for the whole device, that everything freed on `lane` up to `t` is done.
  void complete(list_id lane, sequence t) noexcept { ledger_.complete(lane, t); }

  /// The pool's device, and that of a lane's stream.
  int device() const noexcept { return device_; }
  int device_of(list_id lane) const noexcept { return streams_[lane].device; }
  bool is_exiting() const noexcept { return life_.is_exiting(); }  ///< then call nothing more: what is held stays

  bool is_open(list_id lane) const noexcept { return ledger_.is_open(lane); }
  /// Forgets a stream that has no free blocks here, if it may have ended; it is met anew if it comes again.
  void retire(list_id lane) noexcept {
    bool const may_end = kind(lane) == identity::mortal || kind(lane) == identity::per_thread;
    if (may_end && streams_[lane].waiting == 0) ledger_.close(lane);
  }

 private:
  using identity = stream_identity;
  static constexpr std::size_t spare_lanes = 4;
  static constexpr unsigned frees_an_event = 32;

  struct known_stream {
    cudaStream_t handle = nullptr;
    int device = 0;
    unsigned waiting = 0;  // threads that wait for one of its events just now
  };

  identity::kind kind(list_id lane) const noexcept { return identity::kind_of(ledger_.key(lane)); }
  /// The thread whose default stream this is.
  std::uint64_t thread(list_id lane) const noexcept { return identity::number_of(ledger_.key(lane)); }

  bool meet(list_id lane, cudaStream_t handle) noexcept {
    int device = device_;
#if CUDART_VERSION >= 12080
    bool const is_default = handle == cudaStreamLegacy || handle == cudaStreamPerThread;
    if (!is_default && !succeeded(cudaStreamGetDevice(handle, &device))) return false;
#endif
    known_stream& s = streams_[lane];
    if (s.device != device)  // an event can only be recorded on the device it was made on
      ledger_.for_each_event(lane, [](cudaEvent_t& event) {
        if (event != nullptr) succeeded(cudaEventDestroy(event));
        event = nullptr;
      });
    s = {handle, device, 0};
    return true;
  }

  /// On a stream that the caller does not use just now.
  bool record_elsewhere_on(list_id lane, cudaStream_t handle) noexcept {
    record_elsewhere const record;
    return record.allowed() && !may_break_capture(handle, streams_[lane].device) && record_on(lane, handle, 1);
  }

  bool record(list_id lane) noexcept {
    if (kind(lane) == identity::per_thread && thread(lane) != thread_registry::this_number())
      return thread_registry::has_ended(thread(lane)) && cover_through_legacy(lane);
    return record_elsewhere_on(lane, streams_[lane].handle);
  }

  /// Another thread's default stream has no name here, but the legacy stream comes after it (and after every other
  /// blocking stream): wide, so only for who would otherwise go without, and once for a thread that ended.
  bool cover_through_legacy(list_id lane) noexcept {
    return kind(lane) == identity::per_thread && record_elsewhere_on(lane, cudaStreamLegacy);
  }

  bool record_on(list_id lane, cudaStream_t handle, unsigned epoch) noexcept {
    cudaEvent_t& event = ledger_.event_to_record(lane, epoch);
    bool const is_default = handle == cudaStreamLegacy || handle == cudaStreamPerThread;
    bool const done = event == nullptr || is_default ? record_there(event, handle, streams_[lane].device)
                                                     : succeeded(cudaEventRecord(event, handle));
    if (done)
      ledger_.recorded(lane);
    else
      ledger_.not_recorded(lane);
    return done;
  }

  /// New events belong to the current device, and so do the default streams.
  static bool record_there(cudaEvent_t& event, cudaStream_t handle, int device) noexcept {
    int current = 0;
    if (!succeeded(cudaGetDevice(&current)) || (current != device && !succeeded(cudaSetDevice(device)))) return false;
    if (event == nullptr && !succeeded(cudaEventCreateWithFlags(&event, cudaEventDisableTiming))) event = nullptr;
    bool const done = event != nullptr && succeeded(cudaEventRecord(event, handle));
    if (current != device) succeeded(cudaSetDevice(current));
    return done;
  }

  process_exit life_;
  int device_;
  std::uint64_t captured_lanes_ = 0;  // opened so far
  stream_timeline<cudaEvent_t, stream_key> ledger_;
  grown_array<known_stream> streams_;
};

}  // namespace weir::detail
