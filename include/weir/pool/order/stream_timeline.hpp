#pragma once
// Who may have what was freed where: numbers the frees of every stream and knows which are done, or waited for by whom.

#include <weir/pool/heap/sequence.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace weir::detail {

/// Sequence numbers are given to frees in one rising sequence over all free lists, so that a free list that comes to
/// stand for another stream can never be mistaken for the one before. For every free list it knows up to which sequence
/// number an event was recorded (`covered`), up to which all work is done (`completed`), and up to which another free
/// list has waited (`knows`). Whose a list is, is not known here: see `stream_lists`.
///
/// An event that is *confirmed* stands behind all that was freed on its list before. One that is not was recorded on a
/// stream that may have been another one by then, with the handle of the list's: it stands behind what was freed since
/// the event before it, no more. `Event` is a handle, default-constructed to none; the ledger keeps handles but makes
/// no call. Not thread-safe.
template <class Event>
class stream_timeline {
 public:
  static constexpr int max_events = 8;       ///< a free list, of those that are confirmed
  static constexpr int max_unconfirmed = 4;  ///< beside these

  stream_timeline() : issued_(1), lists_(1) {}

  /// Room for free lists below `lists`. May throw `std::bad_alloc`.
  void grow(std::size_t lists) {
    issued_.grow(lists);
    lists_.grow(lists);
  }
  /// The list stands for another stream from now on, of which nothing is known yet.
  void begin(list_id list) noexcept {
    stream_state& l = lists_[list];
    issued_[list] = l.covered = l.completed = last_;
    l.count = l.unconfirmed = 0;  // the handles stay, to be recorded anew
    l.knows = {};
  }

  /// The number of a free made now on `list`.
  sequence_number issue(list_id list) noexcept { return issued_[list] = last_ = next(last_); }
  /// The latest number is that of a free on `list` too.
  void issue_again(list_id list) noexcept { issued_[list] = last_; }

  /// Frees that were numbered.
  std::uint64_t frees() const noexcept { return static_cast<std::uint64_t>(last_); }
  sequence_number issued(list_id list) const noexcept { return issued_[list]; }
  sequence_number covered(list_id list) const noexcept { return lists_[list].covered; }
  sequence_number completed(list_id list) const noexcept { return lists_[list].completed; }

  /// The event to record next on this free list's stream, when all are confirmed: the latest one again until it was
  /// recorded `epoch` times, then another; where `max_events` are outstanding, one of those between the oldest and the
  /// latest, whose frees the next one stands for from then on. Re-recording makes a wait wider, never too narrow.
  Event& event_to_record(list_id list, unsigned epoch) noexcept {
    stream_state& l = lists_[list];
    if (needs_entry(l, epoch)) add_confirmed(l);
    return l.entries[newest(l)].event;
  }
  /// The event to record behind a free of a stream that is not known to be the list's: one that stands for nothing yet,
  /// and is not confirmed. Null if there are too many of these.
  Event* event_to_add(list_id list) noexcept {
    stream_state& l = lists_[list];
    if (l.unconfirmed == max_unconfirmed) return nullptr;
    ++l.unconfirmed;
    return &add_entry(l).event;
  }
  /// All that was freed on the list was freed on its stream. So the latest event stands behind all of it: it takes the
  /// place of those before it that were not confirmed, and of one that was while that was recorded less than `epoch`
  /// times.
  void confirm(list_id list, unsigned epoch) noexcept {
    stream_state& l = lists_[list];
    if (l.unconfirmed == 0) return;
    entry& latest = l.entries[newest(l)];
    int const added = l.unconfirmed;
    l.count -= added;
    l.unconfirmed = 0;
    entry& place = needs_entry(l, epoch) ? add_confirmed(l) : l.entries[newest(l)];
    Event const unused = place.event;
    place = {latest.event, latest.upto, place.records + static_cast<unsigned>(added)};
    if (&place != &latest) latest.event = unused;
  }
  bool is_full(list_id list) const noexcept { return lists_[list].count == max_events; }
  /// That event now stands behind everything issued on the free list so far.
  void recorded(list_id list) noexcept {
    stream_state& l = lists_[list];
    entry& e = l.entries[newest(l)];
    ++e.records;
    e.upto = l.covered = issued_[list];
  }
  /// It stands behind the free that was numbered since, too, whose work came before the record.
  void stands_for_latest(list_id list) noexcept {
    stream_state& l = lists_[list];
    l.entries[newest(l)].upto = l.covered = issued_[list];
  }
  /// That event could not be recorded, so it stands for nothing: a fresh one is taken back, a re-recorded one is kept
  /// (a failed record leaves its earlier snapshot in place).
  void not_recorded(list_id list) noexcept {
    stream_state& l = lists_[list];
    if (l.entries[newest(l)].records != 0) return;
    --l.count;
    if (l.unconfirmed != 0) --l.unconfirmed;
  }

  /// Asks `done(event)` of the oldest events and moves `completed` up to the last that is.
  template <class Done>
  void advance(list_id list, Done done) {
    stream_state& l = lists_[list];
    while (l.count != 0 && done(l.entries[l.first].event)) {
      l.completed = l.entries[l.first].upto;
      drop_oldest(l);
    }
  }

  /// The caller knows by other means that everything up to `t` is done.
  void complete(list_id list, sequence_number t) noexcept {
    stream_state& l = lists_[list];
    if (l.covered < t) l.covered = t;
    if (l.completed < t) l.completed = t;
    while (l.count != 0 && l.entries[l.first].upto <= t) drop_oldest(l);
  }

  /// The event to wait for next, after all up to `since`, on the way to `t`: the oldest one that stands behind `t`.
  /// Where none does that is confirmed, first the latest that is confirmed, and then each of the others. Null if no
  /// event was recorded behind `t`.
  struct cover {
    Event event{};
    sequence_number upto{};
  };
  cover const* covering(list_id list, sequence_number t, sequence_number since = {}) noexcept {
    stream_state& l = lists_[list];
    if (l.count == 0 || l.entries[newest(l)].upto < t) return nullptr;
    int const confirmed = l.count - l.unconfirmed;
    for (int i = 0; i < l.count; ++i) {
      entry const& e = at(l, i);
      bool const next_is_behind = e.upto < t && i + 1 < confirmed;
      if (next_is_behind || e.upto <= since) continue;
      answer_ = {e.event, e.upto};
      return &answer_;
    }
    return nullptr;
  }

  /// `taker` has been made to wait for everything up to `upto` on `giver`.
  void joined(list_id taker, list_id giver, sequence_number upto) noexcept {
    stream_state& l = lists_[taker];
    for (int i = 0; i < known_lists; ++i) {
      if (l.knows.giver[i] != giver) continue;
      if (l.knows.upto[i] < upto) l.knows.upto[i] = upto;
      return;
    }
    l.knows.giver[l.next_known] = giver;
    l.knows.upto[l.next_known] = upto;
    l.next_known = (l.next_known + 1) % known_lists;
  }

  /// May `taker` use at once what `giver` freed with sequence number `t`?
  bool available(list_id taker, list_id giver, sequence_number t) const noexcept {
    if (taker == giver || t <= lists_[giver].completed) return true;
    known const& knows = lists_[taker].knows;
    for (int i = 0; i < known_lists; ++i)
      if (knows.giver[i] == giver) return t <= knows.upto[i];
    return false;
  }

  /// Calls `f(event)` for every event handle the ledger holds.
  template <class F>
  void for_each_event(list_id list, F f) {
    for (auto& e : lists_[list].entries) f(e.event);
  }

  /// Bytes of host memory in use, beside itself.
  std::size_t host_bytes() const noexcept { return issued_.bytes() + lists_.bytes(); }

  bool valid() const {
    for (std::size_t i = 1; i < issued_.size(); ++i) {
      stream_state const& l = lists_[i];
      if (l.covered > issued_[i] || l.completed > l.covered || issued_[i] > last_) return false;
      if (l.unconfirmed > l.count || l.unconfirmed > max_unconfirmed || l.count - l.unconfirmed > max_events)
        return false;
      for (int e = 1; e < l.count; ++e)
        if (at(l, e - 1).upto > at(l, e).upto) return false;
    }
    return true;
  }

 private:
  static constexpr int known_lists = 8;
  static constexpr int places = max_events + max_unconfirmed;

  struct entry {
    Event event{};
    sequence_number upto{};
    unsigned records = 0;
  };
  struct known {
    list_id giver[known_lists] = {};
    sequence_number upto[known_lists] = {};
  };
  struct stream_state {
    sequence_number covered{};
    sequence_number completed{};
    entry entries[places] = {};  // a ring, oldest at `first`
    int first = 0;
    int count = 0;
    int unconfirmed = 0;  // the latest of them
    int next_known = 0;
    known knows;  // the latest few; a forgotten one costs another wait, never an error
  };
  /// A place in the ring, of one that is less than a turn beyond.
  static int wrapped(int place) noexcept { return place < places ? place : place - places; }
  static void drop_oldest(stream_state& l) noexcept {
    // The next entry takes its event over rather than have one made.
    if (entry& next = l.entries[wrapped(l.first + l.count)]; next.event == Event{})
      next.event = std::exchange(l.entries[l.first].event, Event{});
    l.first = wrapped(l.first + 1);
    --l.count;
    if (l.unconfirmed > l.count) l.unconfirmed = l.count;
  }
  static bool needs_entry(stream_state const& l, unsigned epoch) noexcept {
    return l.count == 0 || l.entries[newest(l)].records >= epoch;
  }
  /// Frees on all lists.
  std::uint64_t since(sequence_number t) const noexcept {
    return static_cast<std::uint64_t>(last_) - static_cast<std::uint64_t>(t);
  }
  entry& add_confirmed(stream_state& l) noexcept {
    if (l.count == max_events) thin_out(l);
    return add_entry(l);
  }
  /// Of a stream that goes on and on, while nobody asks what is done: if only the latest events were recorded again,
  /// all that was freed since the others were would seem not to be done, whenever somebody asks. So one in between
  /// goes, where those before and behind it are closest by their ages' ratio: what is left is spread from the latest
  /// frees to the oldest, and of what is done an answer misses a part, however long that took.
  void thin_out(stream_state& l) noexcept {
    auto const age = [&](int i) { return static_cast<double>(since(at(l, i).upto) + 1); };
    int least = 1;
    for (int i = 2; i + 1 < l.count; ++i)
      if (age(i - 1) * age(least + 1) < age(least - 1) * age(i + 1)) least = i;
    Event const unused = at(l, least).event;
    for (int i = least; i + 1 < l.count; ++i) at(l, i) = at(l, i + 1);
    at(l, --l.count).event = unused;
  }
  static entry& add_entry(stream_state& l) noexcept {
    entry& e = l.entries[wrapped(l.first + l.count++)];
    e.records = 0;
    return e;
  }
  static entry const& at(stream_state const& l, int i) noexcept { return l.entries[wrapped(l.first + i)]; }
  static entry& at(stream_state& l, int i) noexcept { return l.entries[wrapped(l.first + i)]; }
  static int newest(stream_state const& l) noexcept { return wrapped(l.first + l.count - 1); }

  sequence_number last_{};
  grown_array<sequence_number> issued_;  // the latest of each free list
  grown_array<stream_state> lists_;
  cover answer_{};
};

}  // namespace weir::detail
