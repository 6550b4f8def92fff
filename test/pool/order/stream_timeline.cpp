#include <weir/pool/order/stream_timeline.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

using namespace weir::detail;

namespace {

// The ledger never looks into an event: a number does. 0 is none.
using ledger = stream_timeline<int>;

struct open_ledger : ledger {
  int last_event = 0;
  std::size_t lists = 1;

  /// A list that begins to stand for a stream.
  list_id open() {
    grow(lists + 1);
    list_id const list{static_cast<std::uint16_t>(lists++)};
    begin(list);
    return list;
  }
  int record(list_id list, unsigned epoch = 1) {
    int& event = event_to_record(list, epoch);
    if (event == 0) event = ++last_event;
    recorded(list);
    return event;
  }
  /// The same, not confirmed.
  int add(list_id list) {
    int* const event = event_to_add(list);
    REQUIRE(event != nullptr);
    if (*event == 0) *event = ++last_event;
    recorded(list);
    return *event;
  }
};

}  // namespace

TEST_CASE("sequence numbers rise over all free lists") {
  open_ledger l;
  list_id const a = l.open(), b = l.open();
  auto const first = l.issue(a);
  auto const second = l.issue(b);
  auto const third = l.issue(a);
  CHECK(first < second);
  CHECK(second < third);
  CHECK(l.issued(a) == third);
  CHECK(l.issued(b) == second);
}

TEST_CASE("one free on two free lists has one number, which is the latest of both") {
  open_ledger l;
  list_id const a = l.open(), b = l.open();
  l.record(b);
  sequence_number const t = l.issue(a);
  l.issue_again(b);
  CHECK(l.issued(b) == t);
  CHECK(l.covered(b) < t);
  l.record(b);
  CHECK(l.covered(b) == t);
  CHECK(l.issue(a) > t);
  CHECK(l.valid());
}

TEST_CASE("an event covers what was issued before it was recorded, and completes just that") {
  open_ledger l;
  list_id const a = l.open(), b = l.open();
  auto const before = l.issue(a);
  int const event = l.record(a);
  auto const after = l.issue(a);
  CHECK(l.covered(a) == before);
  REQUIRE(l.covering(a, before) != nullptr);
  CHECK(l.covering(a, before)->event == event);
  CHECK(l.covering(a, after) == nullptr);

  l.advance(a, [](int) { return false; });
  CHECK_FALSE(l.available(b, a, before));
  l.advance(a, [](int) { return true; });
  CHECK(l.completed(a) == before);
  CHECK(l.available(b, a, before));
  CHECK_FALSE(l.available(b, a, after));
  CHECK(l.available(a, a, after));  // its own
}

TEST_CASE("events are asked in order, up to the first that is not done") {
  open_ledger l;
  list_id const a = l.open();
  sequence_number sequences[4];
  int events[4];
  for (int i = 0; i < 4; ++i) {
    sequences[i] = l.issue(a);
    events[i] = l.record(a);
  }
  CHECK(std::set<int>(events, events + 4).size() == 4);
  std::vector<int> asked;
  l.advance(a, [&](int e) {
    asked.push_back(e);
    return e != events[2];
  });
  CHECK(asked == std::vector<int>{events[0], events[1], events[2]});
  CHECK(l.completed(a) == sequences[1]);
}

TEST_CASE("a free list has at most eight events, and then records again one that is not the oldest") {
  open_ledger l;
  list_id const a = l.open();
  std::set<int> events;
  int newest = 0;
  for (int i = 0; i < 100; ++i) {
    l.issue(a);
    events.insert(newest = l.record(a));
    REQUIRE(l.valid());
  }
  CHECK(events.size() == ledger::max_events);
  CHECK(l.is_full(a));
  CHECK(l.covered(a) == l.issued(a));
  CHECK(l.covering(a, l.issued(a))->event == newest);
  // A done event is used again, but only behind those that are not.
  l.advance(a, [first = true](int) mutable { return std::exchange(first, false); });
  CHECK_FALSE(l.is_full(a));
  l.issue(a);
  int const again = l.record(a);
  CHECK(events.count(again) == 1);
  CHECK(again != newest);
}

TEST_CASE("an event is recorded again for an epoch, so that a busy stream does not need an event a free") {
  open_ledger l;
  list_id const a = l.open();
  int const first = l.record(a, 32);
  for (int i = 1; i < 32; ++i) {
    l.issue(a);
    CHECK(l.record(a, 32) == first);
  }
  CHECK(l.record(a, 32) != first);
}

TEST_CASE("an event that could not be recorded stands for nothing") {
  open_ledger l;
  list_id const a = l.open();
  auto const t = l.issue(a);
  static_cast<void>(l.event_to_record(a, 1));
  l.not_recorded(a);
  CHECK(l.covered(a) < t);
  CHECK(l.covering(a, t) == nullptr);
  l.advance(a, [](int) { return true; });
  CHECK(l.completed(a) < t);

  SUBCASE("and an earlier record of it still counts") {
    l.record(a, 32);
    auto const later = l.issue(a);
    static_cast<void>(l.event_to_record(a, 32));
    l.not_recorded(a);
    CHECK(l.covering(a, t) != nullptr);
    CHECK(l.covering(a, later) == nullptr);
  }
  CHECK(l.valid());
}

TEST_CASE("who waited once need not wait again for what came before") {
  open_ledger l;
  list_id const giver = l.open(), taker = l.open(), other = l.open();
  auto const t = l.issue(giver);
  l.record(giver);
  l.joined(taker, giver, t);
  CHECK(l.available(taker, giver, t));
  CHECK_FALSE(l.available(other, giver, t));
  CHECK_FALSE(l.available(giver, taker, l.issue(taker)));  // not the other way round
  auto const later = l.issue(giver);
  CHECK_FALSE(l.available(taker, giver, later));
  l.joined(taker, giver, later);
  l.joined(taker, giver, t);  // an older wait takes nothing back
  CHECK(l.available(taker, giver, later));
}

TEST_CASE("a free list remembers eight others, and forgets the one that it met first") {
  open_ledger l;
  list_id const taker = l.open();
  std::vector<std::pair<list_id, sequence_number>> waited;
  for (int others = 0; others < 9; ++others) {
    list_id const giver = l.open();
    waited.emplace_back(giver, l.issue(giver));
    l.joined(taker, giver, waited.back().second);
  }
  CHECK_FALSE(l.available(taker, waited[0].first, waited[0].second));
  for (std::size_t i = 1; i < waited.size(); ++i) CHECK(l.available(taker, waited[i].first, waited[i].second));
}

TEST_CASE("a free list that takes the place of one that is forgotten is known for its own waits alone") {
  open_ledger l;
  list_id const taker = l.open(), ninth = l.open();
  auto const waited_for = l.issue(ninth), not_waited_for = l.issue(ninth);
  for (int others = 0; others < 8; ++others) {  // all later
    list_id const giver = l.open();
    l.joined(taker, giver, l.issue(giver));
  }
  l.joined(taker, ninth, waited_for);
  CHECK(l.available(taker, ninth, waited_for));
  CHECK_FALSE(l.available(taker, ninth, not_waited_for));
}

TEST_CASE("a free list that comes to stand for another stream inherits nothing") {
  open_ledger l;
  list_id const list = l.open(), other = l.open();
  auto const given = l.issue(other);
  auto const old = l.issue(list);
  l.record(list);
  l.joined(list, other, given);
  l.joined(other, list, old);
  l.complete(list, old);
  l.issue(other);

  l.begin(list);
  CHECK(l.covered(list) == l.issued(list));  // there is nothing yet to put an event behind
  auto const t = l.issue(list);
  CHECK(t > old);
  CHECK(l.covering(list, t) == nullptr);  // the old stream's event says nothing of this one
  CHECK_FALSE(l.available(list, other, given));
  CHECK_FALSE(l.available(other, list, t));
  l.advance(list, [](int) { return true; });
  CHECK_FALSE(l.available(other, list, t));
  int events = 0;
  l.for_each_event(list, [&](int e) { events += e != 0; });
  CHECK(events == 1);  // kept, to be recorded anew
  CHECK(l.valid());
}

TEST_CASE("what is known by other means is done, and its events are not asked any more") {
  open_ledger l;
  list_id const a = l.open(), b = l.open();
  auto const first = l.issue(a);
  l.record(a);
  auto const second = l.issue(a);
  l.record(a);
  auto const third = l.issue(a);
  l.complete(a, second);
  CHECK(l.completed(a) == second);
  CHECK(l.available(b, a, first));
  CHECK_FALSE(l.available(b, a, third));
  l.advance(a, [](int) {
    FAIL("there is none to ask");
    return false;
  });
  l.complete(a, first);  // nothing is taken back
  CHECK(l.completed(a) == second);
  l.complete(a, third);
  CHECK(l.covered(a) == third);
  CHECK(l.valid());
}

TEST_CASE("an event that is not confirmed stands behind what was freed since the one before it") {
  open_ledger l;
  list_id const a = l.open(), b = l.open();
  auto const first = l.issue(a);
  int const sure = l.record(a);
  auto const second = l.issue(a);
  int const added = l.add(a);
  auto const third = l.issue(a);
  int const last = l.add(a);
  REQUIRE(l.valid());

  SUBCASE("so the way to it leads over those before it") {
    CHECK(l.covering(a, first)->event == sure);
    CHECK(l.covering(a, third)->event == sure);
    CHECK(l.covering(a, third, first)->event == added);
    CHECK(l.covering(a, third, second)->event == last);
    CHECK(l.covering(a, l.issue(a)) == nullptr);
  }
  SUBCASE("and it is asked after those before it") {
    l.advance(a, [&](int e) { return e != sure; });
    CHECK_FALSE(l.available(b, a, third));
    l.advance(a, [&](int e) { return e != added; });
    CHECK(l.completed(a) == first);
    l.advance(a, [&](int) { return true; });
    CHECK(l.completed(a) == third);
  }
  SUBCASE("once it is confirmed it stands behind all, and the others are free") {
    l.confirm(a, 32);
    CHECK(l.covering(a, first)->event == last);
    CHECK(l.covering(a, third)->event == last);
    for (int i = 0; i < ledger::max_unconfirmed; ++i) {
      l.issue(a);
      CHECK(l.add(a) != last);
    }
    CHECK(l.covering(a, first)->event == last);
    CHECK(l.event_to_add(a) == nullptr);
  }
  SUBCASE("one that could not be recorded stands for nothing") {
    auto const missed = l.issue(a);
    REQUIRE(l.event_to_add(a) != nullptr);
    l.not_recorded(a);
    CHECK(l.covering(a, missed) == nullptr);
    CHECK(l.covering(a, third, second)->event == last);
  }
  CHECK(l.valid());
}

TEST_CASE("events that are confirmed become as many as those that are recorded again") {
  open_ledger l;
  list_id const a = l.open();
  std::set<int> kept;
  for (int i = 0; i < 250; ++i) {
    auto const t = l.issue(a);
    int const event = l.add(a);
    l.confirm(a, 32);
    CHECK(l.covering(a, t)->event == event);
    kept.insert(event);
    REQUIRE(l.valid());
  }
  CHECK(kept.size() <= ledger::max_events + 1);
  CHECK(l.is_full(a));
  CHECK(l.covering(a, sequence_number{32})->upto == sequence_number{32});
  CHECK(l.covering(a, sequence_number{33})->upto == sequence_number{64});
}

TEST_CASE("of a stream that goes on while nobody asks, what is done can be told whenever somebody does") {
  for (std::size_t const frees : {1000u, 40'000u})
    for (std::size_t const behind : {50u, 300u, 3000u, 20'000u})
      for (bool const confirms : {false, true}) {
        if (behind > frees) continue;
        CAPTURE(frees);
        CAPTURE(behind);
        CAPTURE(confirms);
        open_ledger l;
        list_id const a = l.open();
        std::map<int, std::size_t> recorded_at;
        for (std::size_t i = 1; i <= frees; ++i) {
          l.issue(a);
          if (confirms) {
            recorded_at[l.add(a)] = i;
            l.confirm(a, 32);
          } else {
            recorded_at[l.record(a, 32)] = i;
          }
        }
        REQUIRE(l.valid());
        std::size_t const done = frees - behind;
        l.advance(a, [&](int event) { return recorded_at[event] <= done; });
        CHECK(static_cast<std::size_t>(l.completed(a)) <= done);
        CHECK(static_cast<std::size_t>(l.completed(a)) + 4 * (behind + 32) >= frees);
        REQUIRE(l.valid());
      }
}

// Streams that really make progress and events that really are snapshots: whatever the ledger calls available must
// have happened, or be waited for.
TEST_CASE("random histories never make anything available too early") {
  struct stream {
    std::uint64_t key = 0;
    std::uint64_t queued = 0, done = 0;
    std::map<std::uint64_t, std::uint64_t> waits;  // for which stream, up to where
  };
  struct snapshot {
    std::uint64_t key, place;
  };
  struct free {
    list_id list;
    sequence_number sequence;
    std::uint64_t key, place;
  };
  for (unsigned seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    auto const below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    open_ledger l;
    std::map<std::uint64_t, stream> streams;  // by key, those that ended too: their work goes on
    std::map<int, snapshot> events;
    std::map<list_id, std::uint64_t> key_of;  // of open lists
    std::vector<list_id> open, closed;
    std::vector<free> pending;
    std::map<list_id, std::uint64_t> successor;  // that has the handle of the list's stream, which ended
    std::uint64_t last_key = 0;
    int last_event = 0;
    auto const done = [&](int e) { return streams[events[e].key].done >= events[e].place; };
    std::size_t available = 0;
    for (int step = 0; step < 4000; ++step) {
      if (open.size() < 2 || (open.size() < 6 && below(50) == 0)) {
        if (closed.empty()) {
          open.push_back(l.open());
        } else {  // it comes to stand for another stream
          l.begin(closed.back());
          open.push_back(closed.back());
          closed.pop_back();
        }
        ++last_key;
        key_of[open.back()] = streams[last_key].key = last_key;
      }
      list_id const list = open[below(open.size())], other = open[below(open.size())];
      bool const ended = successor.count(list) != 0;
      stream& s = streams[ended ? successor[list] : key_of[list]];
      switch (below(10)) {
        case 0:
        case 1:
          if (ended) break;
          l.confirm(list, static_cast<unsigned>(1 + below(4)));
          pending.push_back({list, l.issue(list), s.key, ++s.queued});
          break;
        case 8:
          if (below(10) != 0) break;
          successor[list] = ++last_key;
          streams[last_key].key = last_key;
          break;
        case 9: {
          if (l.covered(list) != l.issued(list)) break;
          int* const e = l.event_to_add(list);
          if (e == nullptr) break;
          if (below(8) == 0) {
            l.not_recorded(list);
            break;
          }
          if (*e == 0) *e = ++last_event;
          events[*e] = {s.key, ++s.queued};
          l.recorded(list);
          pending.push_back({list, l.issue(list), s.key, s.queued});
          l.stands_for_latest(list);
          break;
        }
        case 2:
        case 3: {
          if (ended) break;
          l.confirm(list, static_cast<unsigned>(1 + below(4)));
          int& e = l.event_to_record(list, static_cast<unsigned>(1 + below(4)));
          if (below(8) == 0) {
            l.not_recorded(list);
            break;
          }
          if (e == 0) e = ++last_event;
          events[e] = {s.key, s.queued};
          l.recorded(list);
          break;
        }
        case 4:
          l.advance(list, done);
          break;
        case 5:
          if (list != other && !ended) {
            sequence_number const t{1 + below(static_cast<std::size_t>(l.issued(other)) + 1)};
            for (sequence_number since{}; since < t;) {
              auto const* const behind = l.covering(other, t, since);
              if (behind == nullptr) break;
              snapshot const& at = events[behind->event];
              auto& waited = s.waits[at.key];
              waited = std::max(waited, at.place);
              since = behind->upto;
              l.joined(list, other, since);
            }
          }
          break;
        case 6:
          s.done += below(s.queued - s.done + 1);
          break;
        default:
          if (below(20) == 0) {  // all its frees were seen done
            for (free const& f : pending)
              if (f.list == list) streams[f.key].done = streams[f.key].queued;
            successor.erase(list);
            l.complete(list, l.issued(list));
            std::erase_if(pending, [&](free const& f) { return f.list == list; });
            std::erase(open, list);
            closed.push_back(list);
          }
      }
      REQUIRE(l.valid());
      for (free const& f : pending)
        for (list_id const taker : open) {
          if (taker == f.list || !l.available(taker, f.list, f.sequence)) continue;
          ++available;
          stream& waiting = streams[key_of[taker]];
          REQUIRE((streams[f.key].done >= f.place || waiting.waits[f.key] >= f.place));
        }
      std::erase_if(pending, [&](free const& f) { return f.sequence <= l.completed(f.list) && below(4) == 0; });
    }
    REQUIRE(available > 1000);
  }
}
