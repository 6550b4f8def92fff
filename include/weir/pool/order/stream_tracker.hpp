#pragma once
// The ledger of a pool's frees, tied to CUDA: keys of streams, events behind frees, waits between streams.

#include <weir/cuda/capture.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/process_exit.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/pool/heap/size_class.hpp>
#include <weir/pool/order/joint_lists.hpp>
#include <weir/pool/order/known_streams.hpp>
#include <weir/pool/order/spare_lists.hpp>
#include <weir/pool/order/stream_key.hpp>
#include <weir/pool/order/stream_lists.hpp>
#include <weir/pool/order/stream_timeline.hpp>
#include <weir/pool/order/thread_registry.hpp>
#include <weir/pool/order/trailing_stream.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// Orders frees and takes between streams with as few CUDA calls as is sound. Guarded by its pool's lock; makes no call
/// that blocks. What a free costs depends on whether the stream can still be asked later:
/// - legacy, per-thread and persistent streams: nothing now; an event is recorded when another stream wants the memory;
/// - any other stream may be destroyed after the call, so an event is left behind at once. Who it is need not be asked
///   for that: see `on_free_unasked`.
class stream_tracker {
 public:
  using timeline = stream_timeline<cudaEvent_t>;

  explicit stream_tracker(int device) : device_(device) {}

  ~stream_tracker() {
    if (life_.is_exiting()) return;
    for (std::size_t list = 1; list < list_count(); ++list)
      timeline_.for_each_event(static_cast<list_id>(list), [](cudaEvent_t& event) {
        if (event != nullptr) succeeded(cudaEventDestroy(event));
      });
  }
  stream_tracker(stream_tracker const&) = delete;
  stream_tracker& operator=(stream_tracker const&) = delete;

  /// True if few free lists are left for streams not seen before.
  bool is_short_of_lists() const noexcept { return !has_spare(spare_.wanted()); }
  bool has_spare(std::size_t lists) const noexcept { return lists_.closed_count() >= lists; }
  /// Half as many again; at first as many as a program with one stream needs.
  std::size_t lists_to_add() const noexcept {
    std::size_t const missing = spare_.wanted() + 1 - lesser(spare_.wanted(), lists_.closed_count());
    return lesser(greater(missing, list_count() / 2), keyed_lists::most - list_count());
  }
  /// True if there are too few for one allocation.
  bool lacks_lists() const noexcept { return !has_spare(spare_lists::least); }
  /// The host waits for what a stream freed, for which there was no list.
  [[gnu::noinline, gnu::cold]] void missed_list(stream_key key) noexcept { spare_.missed(key, !has_spare(1)); }
  /// True if there are as few as a program with few streams needs, which is never asked which of them ended.
  bool has_few_lists() const noexcept { return list_count() < few_lists; }
  /// True if most of the streams met since this was asked before had been forgotten shortly before.
  bool most_come_again() noexcept { return spare_.most_come_again(); }
  /// May throw `std::bad_alloc`.
  void add_lists() {
    std::size_t const more = lists_to_add();
    streams_.grow(list_count() + more);
    timeline_.grow(list_count() + more);
    lists_.add(more);
    spare_.made_room();
  }
  std::size_t list_count() const noexcept { return lists_.count(); }
  std::size_t open_count() const noexcept { return lists_.open_count(); }
  /// Bytes of host memory in use for bookkeeping.
  std::size_t host_bytes() const noexcept {
    return lists_.host_bytes() + timeline_.host_bytes() + streams_.host_bytes();
  }

  /// The stream's free list if it was seen of late, else `shared`.
  [[gnu::always_inline]] list_id list_seen(stream_key key) const noexcept { return lists_.find_cached(key); }

  /// The same for every stream.
  list_id find(stream_key key) const noexcept { return key == stream_key::none ? shared : lists_.find(key); }

  /// The stream's free list; `shared` in host order, and for a new stream if there is no room for it (the last list is
  /// for the trailing stream) or CUDA does not say which device it is of.
  list_id list_of(stream_key key, stream_ref stream) noexcept {
    list_id const list = lists_.find_at_once(key);
    return list != shared ? list : find_or_open(key, stream);
  }

  /// The same for a stream that was not seen of late.
  [[gnu::noinline]] list_id find_or_open(stream_key key, stream_ref stream) noexcept {
    life_.settle();
    if (key == stream_key::none) return shared;
    bool opened = false;
    list_id const list = open(key, opened, may_open());
    if (opened && !meet(list, stream.get())) [[unlikely]] {
      lists_.close(list);
      return shared;
    }
    if (opened) spare_.met(key);
    return list;
  }

  /// The list of the trailing stream, which comes after the work of `stream` so far from now on: for a stream that
  /// there is no room for. `shared` if CUDA fails, or the stream is being captured.
  [[gnu::noinline, gnu::cold]] list_id list_behind(stream_ref stream) noexcept {
    int device = device_;
    if (may_break_capture(stream.get(), device_) || !known_streams::ask_device(stream.get(), device) ||
        !trailing_.make(device_))
      return shared;
    bool opened = false;
    auto const handle = reinterpret_cast<std::uintptr_t>(trailing_.get());
    list_id const list = open(identity::key_for(identity::promised, handle), opened, true);
    if (opened) {
      set_device(list, device_);
      streams_.set(list, trailing_.get(), device_, true);
      trailing_list_ = list;
    }
    return list != shared && trailing_.follow(stream, device) ? list : shared;
  }

  /// A free list of no stream, for memory in a capture: what is freed there is not done before the free list is ended,
  /// and nobody can wait for it. `shared` if there is no room.
  list_id open_captured() noexcept {
    life_.settle();
    bool opened = false;
    stream_key const key = identity::key_for(identity::captured, ++captured_lists_);
    list_id const list = open(key, opened, may_open());
    // The events that an earlier stream left in the free list stay, and so does what device they are of.
    if (opened) streams_.set_none(list);
    return list;
  }
  bool is_captured(list_id list) const noexcept { return kind(list) == identity::captured; }
  /// The graph is gone: what was freed in this free list is done, and the free list is closed. Returns its last
  /// sequence number.
  sequence_number end_captured(list_id list) noexcept {
    timeline_.complete(list, timeline_.issued(list));
    lists_.close(list);
    return timeline_.issued(list);
  }

  /// The free list of what is freed after the work of both lists; `shared` if there is no room. Done when both are,
  /// and whoever waits for it waits for both, so that neither stream has to wait for the other. Both stay open until it
  /// is retired.
  list_id both(list_id a, list_id b) noexcept {
    return joint_.both(a, b, [this](stream_key key, joint_lists::two_lists of) { return open_joint(key, of); });
  }
  /// Joint lists that are open.
  std::size_t joint_count() const noexcept { return joint_count_; }
  bool is_joint(list_id list) const noexcept { return joint_.is_joint(list); }
  /// True if a joint list needs this one, whatever is in it.
  bool is_kept_open(list_id list) const noexcept { return streams_.is_kept(list); }

  /// CUDA was asked in this call who the stream is: so whatever was freed on its handle since it was asked before was
  /// freed on it.
  void confirm(list_id list) noexcept {
    if (kind(list) != identity::destroyable) return;
    timeline_.confirm(list, frees_an_event);
    streams_.confirm_handle(list);
  }

  /// Numbers a free on `list` by the calling thread and leaves an event behind if the stream may die: then CUDA was
  /// asked in this call who it is.
  sequence_number on_free(list_id list) noexcept {
    sequence_number const t = timeline_.issue(list);
    if (kind(list) >= identity::destroyable) [[unlikely]]
      leave_event(list);
    return t;
  }

  /// The list of the stream that had this handle when CUDA was asked about it last. That may be another stream by now:
  /// then it is one that CUDA was not asked about since, and has no list. `shared` if that is not known.
  list_id list_asked(stream_ref stream) const noexcept {
    list_id const list = streams_.had_handle(stream.get());
    return kind(list) == identity::destroyable ? list : shared;
  }
  /// The same, if what is freed on the handle now may go there, whoever has it; else `shared`.
  list_id list_unasked(stream_ref stream) const noexcept {
    list_id const list = list_asked(stream);
    // Whoever waits for an event without the lock goes by that event, and may find that it was recorded anew.
    bool const may_add = !streams_.is_kept(list) && timeline_.covered(list) == timeline_.issued(list);
    return may_add ? list : shared;
  }
  /// As `on_free`, on such a list: the event says nothing of what was freed there before, until `confirm`. `none`, and
  /// nothing changed, where there is no such event.
  sequence_number on_free_unasked(list_id list) noexcept {
    cudaEvent_t* const event = timeline_.event_to_add(list);
    if (event == nullptr || !record_on(list, streams_.handle(list), *event)) return sequence_number::none;
    sequence_number const t = timeline_.issue(list);
    timeline_.stands_for_latest(list);
    return t;
  }

  /// As `on_free`, for a list whose stream cannot end unnoticed.
  sequence_number number_free(list_id list) noexcept { return timeline_.issue(list); }
  /// True if a list's stream does not end, or its end is noticed: memory may be kept for it.
  bool is_lasting(list_id list) const noexcept { return kind(list) < identity::destroyable; }
  /// True if nothing more comes from a list's stream.
  bool has_ended(list_id list) const noexcept {
    return kind(list) == identity::per_thread && thread_registry::has_ended(thread(list));
  }

  /// Puts an event behind all frees of `list` so far, where that can be done without holding up other streams.
  bool cover(list_id list) noexcept { return try_to_cover(list) == recording::done; }

  /// Questions to CUDA, one after the other: what is done is asked of each stream once.
  class questions {
   public:
    explicit questions(stream_tracker& tracker) noexcept : number_(++tracker.questions_) {}

   private:
    friend stream_tracker;
    void enter() noexcept { calls_.enter(); }

    unsigned number_;
    relaxed_capture calls_;
  };
  /// Asks CUDA which frees of `list` are done; never waits. Returns the last sequence number that is. Frees with no
  /// event behind them get one, if that does not move one that is still to come: else a busy stream would never be seen
  /// done.
  sequence_number poll(list_id list, questions& calls) noexcept {
    if (is_joint(list)) return poll_joint(list, calls);
    if (!streams_.is_first_of(calls.number_, list)) return timeline_.completed(list);
    auto const done = [&](cudaEvent_t event) { return calls.enter(), succeeded(cudaEventQuery(event)); };
    timeline_.advance(list, done);
    if (timeline_.covered(list) != timeline_.issued(list) && !timeline_.is_full(list) && cover(list))
      timeline_.advance(list, done);
    return timeline_.completed(list);
  }

  /// Does everything freed on `giver` up to `t` come before what `taker` does next?
  bool available(list_id taker, list_id giver, sequence_number t) const noexcept {
    if (!is_joint(giver)) return timeline_.available(taker, giver, t);
    auto const [first, second] = joint_.parts(giver);
    return available(taker, first, t) && available(taker, second, t);
  }

  /// Makes `taker`'s stream wait for what was freed on `giver` up to `t`. False if that cannot be done.
  bool join(list_id taker, stream_ref stream, list_id giver, sequence_number t) noexcept {
    if (is_joint(giver)) {
      auto const [first, second] = joint_.parts(giver);
      return join(taker, stream, first, t) && join(taker, stream, second, t);
    }
    if (timeline_.available(taker, giver, t)) return true;
    if (timeline_.covered(giver) < t && cover_in_any_way(giver) != recording::done) return false;
    sequence_number since{};
    do {
      auto const* const behind = timeline_.covering(giver, t, since);
      if (behind == nullptr || may_break_capture(stream.get()) ||
          !succeeded(cudaStreamWaitEvent(stream.get(), behind->event, 0)))
        return false;
      since = behind->upto;
      timeline_.joined(taker, giver, since);
    } while (since < t);
    return true;
  }

  /// What the host may wait for, without the lock, to see a list done up to some number, or some of it first.
  struct awaited {
    cudaEvent_t event;           ///< or none
    sequence_number upto;        ///< what was freed up to here is done then
    bool capture_is_in_the_way;  ///< of an event
  };
  /// Until `end_wait` the free list keeps its stream, so that the event is not destroyed meanwhile.
  awaited begin_wait(list_id list, sequence_number upto) noexcept {
    streams_.keep(list);
    recording const covered = cover_in_any_way(list);
    auto const* const behind = covered == recording::done ? timeline_.covering(list, upto) : nullptr;
    if (behind != nullptr) return {behind->event, behind->upto, false};
    return {nullptr, upto, covered == recording::would_break_capture};
  }
  /// True if all work of the list's device may be waited for, where there was no event or CUDA could not wait for it.
  /// Not where a capture was in the event's way: it may have ended by now, but another one that is not known here may
  /// have begun.
  bool may_wait_for_device(list_id list, awaited const& behind) const noexcept {
    return !behind.capture_is_in_the_way && knows_device_of(list) && may_wait_for_device();
  }
  void end_wait(list_id list) noexcept { streams_.end_keep(list); }
  /// Until `end_wait` the free list keeps its stream, though nothing may be in it.
  void keep_open(list_id list) noexcept { streams_.keep(list); }

  /// False where a wait for the whole device would break a capture on a stream that is known here.
  bool may_wait_for_device() const noexcept {
    bool broken = may_break_capture(cudaStreamLegacy, device_);
    for (std::size_t i = 1; i < list_count() && !broken; ++i) {
      list_id const list{static_cast<std::uint16_t>(i)};
      broken = (kind(list) == identity::lasting || kind(list) == identity::promised) &&
               may_break_capture(streams_.handle(list));
    }
    return !broken;
  }

  /// How many were numbered so far, on all lists.
  std::uint64_t frees() const noexcept { return timeline_.frees(); }
  sequence_number issued(list_id list) const noexcept { return timeline_.issued(list); }
  /// True if all up to `t` that was freed on `list` is known to be done.
  bool is_done(list_id list, sequence_number t) const noexcept { return t <= timeline_.completed(list); }
  /// True if all frees on `list` are known to be done.
  bool is_done(list_id list) const noexcept { return timeline_.completed(list) == timeline_.issued(list); }
  /// The caller knows, from a wait for the whole device, that everything freed on `list` up to `t` is done.
  void complete(list_id list, sequence_number t) noexcept { timeline_.complete(list, t); }

  /// The pool's device, and that of a free list's stream.
  int device() const noexcept { return device_; }
  int device_of(list_id list) const noexcept { return streams_.device(list); }
  /// False while it is taken for the pool's, since CUDA could not be asked.
  bool knows_device_of(list_id list) const noexcept { return streams_.is_device_known(list); }
  /// The stream's handle as a number; 0 for a list that is not of one stream.
  std::uint64_t stream_number(list_id list) const noexcept {
    return reinterpret_cast<std::uintptr_t>(streams_.handle(list));
  }
  bool is_exiting() const noexcept { return life_.is_exiting(); }  ///< then call nothing more: what is held stays
  bool is_exiting_or(unsigned count) const noexcept { return life_.is_exiting_or(count); }

  bool is_open(list_id list) const noexcept { return lists_.is_open(list); }
  /// True if its stream may have ended, and nobody waits for its events.
  bool may_retire(list_id list) const noexcept {
    bool const may_end = kind(list) == identity::destroyable || kind(list) == identity::per_thread || is_joint(list);
    return may_end && !streams_.is_kept(list);
  }
  /// Forgets a stream that has no free blocks here, if it may have ended; it is met anew if it comes again.
  void retire(list_id list) noexcept {
    if (!may_retire(list)) return;
    if (is_joint(list)) {
      auto const [first, second] = joint_.parts(list);
      end_wait(first);
      end_wait(second);
      --joint_count_;
    }
    spare_.forgot(lists_.key(list));
    lists_.close(list);
  }

 private:
  using identity = stream_identity;
  using keyed_lists = stream_lists<stream_key>;
  static constexpr std::size_t few_lists = 9;
  static constexpr unsigned frees_an_event = 32;

  /// What became of an event that was to be recorded.
  enum class recording : std::uint8_t { done, failed, would_break_capture };

  list_id open_joint(stream_key key, joint_lists::two_lists const& of) noexcept {
    bool opened = false;
    list_id const list = open(key, opened, may_open());
    if (!opened) return list;
    streams_.set_none(list);
    keep_open(of.first);
    keep_open(of.second);
    ++joint_count_;
    return list;
  }
  sequence_number poll_joint(list_id list, questions& calls) noexcept {
    auto const [first, second] = joint_.parts(list);
    sequence_number const one = poll(first, calls), other = poll(second, calls), issued = timeline_.issued(list);
    sequence_number const both_done = one < other ? one : other;
    timeline_.complete(list, both_done < issued ? both_done : issued);
    return timeline_.completed(list);
  }
  [[gnu::noinline]] void leave_event(list_id list) noexcept {
    if (kind(list) == identity::destroyable) {
      confirm(list);
      record_on(list, streams_.handle(list), timeline_.event_to_record(list, frees_an_event));
    }
    if (!is_joint(list)) return;
    auto const [first, second] = joint_.parts(list);
    timeline_.issue_again(first);
    timeline_.issue_again(second);
    leave_event(first);
    leave_event(second);
  }

  /// The list of a key; opens one if it may and there is one. `shared` if not.
  list_id open(stream_key key, bool& opened, bool may) noexcept {
    list_id const list = lists_.find_or_open(key, opened, may);
    if (opened) timeline_.begin(list);
    return list;
  }
  /// Whether there is a list for one more stream.
  bool may_open() const noexcept { return has_spare(trailing_list_ == shared ? 2 : 1); }

  identity::kind kind(list_id list) const noexcept { return identity::kind_of(lists_.key(list)); }
  /// The thread whose default stream this is.
  std::uint64_t thread(list_id list) const noexcept { return identity::number_of(lists_.key(list)); }

  bool meet(list_id list, cudaStream_t handle) noexcept {
    // One that captures is not asked, since that would break the capture: it is taken for one of the pool's device
    // until an event is to be recorded on it. Who may be destroyed does not capture, since `stream_identity::ask` has
    // asked just now.
    bool const says = is_default_stream(handle) || kind(list) == identity::destroyable || !may_break_capture(handle);
    int device = device_;
    if (says && !known_streams::ask_device(handle, device)) return false;
    set_device(list, device);
    streams_.set(list, handle, device, says);
    return true;
  }
  /// The same for one that captured when it was met, and does not now.
  bool learn_device(list_id list) noexcept {
    if (knows_device_of(list)) return true;
    int device = device_of(list);
    if (!known_streams::ask_device(streams_.handle(list), device)) return false;
    set_device(list, device);
    streams_.confirm_device(list);
    return true;
  }
  void set_device(list_id list, int device) noexcept {
    if (device_of(list) != device)  // an event can only be recorded on the device it was made on
      timeline_.for_each_event(list, [](cudaEvent_t& event) {
        if (event != nullptr) succeeded(cudaEventDestroy(event));
        event = nullptr;
      });
    streams_.set_device(list, device);
  }

  /// On a stream that the caller does not use just now.
  recording record_elsewhere_on(list_id list, cudaStream_t handle) noexcept {
    if (list == trailing_list_ && list != shared)  // nobody else has it, to capture it
      return record_on(list, handle, timeline_.event_to_record(list, 1)) ? recording::done : recording::failed;
    record_elsewhere const record;
    if (!record.allowed() || may_break_capture(handle, streams_.device(list))) return recording::would_break_capture;
    bool const done = learn_device(list) && record_on(list, handle, timeline_.event_to_record(list, 1));
    return done ? recording::done : recording::failed;
  }

  recording try_to_cover(list_id list) noexcept {
    if (timeline_.covered(list) == timeline_.issued(list)) return recording::done;
    if (is_captured(list)) return recording::would_break_capture;
    // Of a destroyable one the record failed, and the handle may be another stream's by now.
    if (kind(list) == identity::destroyable) return recording::failed;
    if (kind(list) == identity::per_thread && thread(list) != thread_registry::this_number())
      return thread_registry::has_ended(thread(list)) ? cover_through_legacy(list) : recording::failed;
    return record_elsewhere_on(list, streams_.handle(list));
  }

  /// Another thread's default stream has no name here, but the legacy stream comes after it (and after every other
  /// blocking stream): wide, so only for who would otherwise go without, and once for a thread that ended.
  recording cover_through_legacy(list_id list) noexcept { return record_elsewhere_on(list, cudaStreamLegacy); }
  /// As `cover`, for who would otherwise go without.
  recording cover_in_any_way(list_id list) noexcept {
    recording const covered = try_to_cover(list);
    if (covered != recording::failed || kind(list) != identity::per_thread) return covered;
    return cover_through_legacy(list);
  }

  /// `event`: one that the timeline said is to be recorded.
  bool record_on(list_id list, cudaStream_t handle, cudaEvent_t& event) noexcept {
    bool const done = event == nullptr || is_default_stream(handle) ? record_there(event, handle, streams_.device(list))
                                                                    : succeeded(cudaEventRecord(event, handle));
    if (done)
      timeline_.recorded(list);
    else
      timeline_.not_recorded(list);
    return done;
  }

  /// New events belong to the current device, and so do the default streams.
  static bool record_there(cudaEvent_t& event, cudaStream_t handle, int device) noexcept {
    device_switch const on_device(device);
    if (!on_device.is_current()) return false;
    if (event == nullptr && !succeeded(cudaEventCreateWithFlags(&event, cudaEventDisableTiming))) event = nullptr;
    return event != nullptr && succeeded(cudaEventRecord(event, handle));
  }

  process_exit life_;
  int device_;
  std::uint64_t captured_lists_ = 0;  // opened so far
  keyed_lists lists_;
  joint_lists joint_{lists_};
  timeline timeline_;
  known_streams streams_;
  trailing_stream trailing_;
  list_id trailing_list_ = shared;  // until there is one
  spare_lists spare_;
  std::size_t joint_count_ = 0;
  unsigned questions_ = 0;
};

}  // namespace weir::detail
