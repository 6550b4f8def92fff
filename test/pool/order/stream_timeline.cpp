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

  open_ledger() { reserve(12); }
  list_id open(std::uint64_t key) {
    bool opened = false;
    list_id const list = find_or_open(key, opened);
    REQUIRE(opened);
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

TEST_CASE("a stream keeps its free list until it is closed") {
  open_ledger l;
  list_id const a = l.open(100), b = l.open(200);
  CHECK(a != shared);
  CHECK(a != b);
  bool opened = true;
  CHECK(l.find_or_open(100, opened) == a);
  CHECK_FALSE(opened);
  CHECK(l.find(200) == b);
  CHECK(l.find(300) == shared);
  CHECK(l.open_count() == 2);
  l.close(a);
  CHECK(l.find(100) == shared);
  CHECK_FALSE(l.is_open(a));
  CHECK(l.key(b) == 200);
  CHECK(l.valid());
}

// The cache goes by a key's low half.
constexpr std::uint64_t with_the_same_place(std::uint64_t i) { return i << 32 | 5; }

TEST_CASE("keys that share a place in the cache are told apart") {
  open_ledger l;
  std::map<std::uint64_t, list_id> lists;
  for (std::uint64_t i = 0; i < 12; ++i) lists[with_the_same_place(i)] = l.open(with_the_same_place(i));
  for (int round = 0; round < 2; ++round)
    for (auto const& [key, list] : lists) CHECK(l.find(key) == list);
}

TEST_CASE("four keys that share a place in the cache are known at once, until their free lists are closed") {
  open_ledger l;
  std::map<std::uint64_t, list_id> lists;
  for (std::uint64_t i = 0; i < 4; ++i) lists[with_the_same_place(i)] = l.open(with_the_same_place(i));
  while (!lists.empty()) {
    for (auto const& [key, list] : lists) CHECK(l.find_cached(key) == list);
    auto const [key, list] = *lists.begin();
    lists.erase(key);
    l.close(list);
    CHECK(l.find_cached(key) == shared);
  }
  // Their places are free again.
  for (std::uint64_t i = 4; i < 8; ++i) lists[with_the_same_place(i)] = l.open(with_the_same_place(i));
  for (auto const& [key, list] : lists) CHECK(l.find_cached(key) == list);
}

TEST_CASE("of five keys that share a place in the cache, the one that was forgotten is known when it comes again") {
  open_ledger l;
  std::map<std::uint64_t, list_id> lists;
  for (std::uint64_t i = 0; i < 5; ++i) lists[with_the_same_place(i)] = l.open(with_the_same_place(i));
  CHECK(l.find_cached(with_the_same_place(4)) == lists[with_the_same_place(4)]);
  for (int round = 0; round < 3; ++round) {
    std::uint64_t forgotten = 0;
    for (auto const& [key, list] : lists)
      if (list_id const known = l.find_cached(key); known != list) {
        CHECK(known == shared);
        CHECK(forgotten == 0);
        forgotten = key;
      }
    REQUIRE(forgotten != 0);
    bool opened = true;
    CHECK(l.find_or_open(forgotten, opened) == lists[forgotten]);
    CHECK_FALSE(opened);
    CHECK(l.find_cached(forgotten) == lists[forgotten]);
  }
}

TEST_CASE("without a spare free list there is no free list, and reserving makes some") {
  open_ledger l;
  for (std::uint64_t key = 1; key <= 12; ++key) l.open(key);
  bool opened = true;
  CHECK(l.find_or_open(13, opened) == shared);
  CHECK_FALSE(opened);
  l.reserve(1);
  CHECK(l.find_or_open(13, opened) != shared);
  CHECK(opened);
  CHECK(l.list_count() == 14);
}

TEST_CASE("as many free lists as there can be are each found by their key, also after others closed") {
  ledger l;
  for (std::size_t spare = 1; l.list_count() < ledger::max_lists; spare *= 2) l.reserve(spare);
  l.reserve(ledger::max_lists);
  REQUIRE(l.list_count() == ledger::max_lists);
  bool opened = false;
  std::set<list_id> lists;
  for (std::uint64_t key = 1; key < ledger::max_lists; ++key) lists.insert(l.find_or_open(key, opened));
  CHECK(lists.size() == ledger::max_lists - 1);
  CHECK(l.find_or_open(ledger::max_lists, opened) == shared);
  for (std::uint64_t key = 1; key < ledger::max_lists; key += 2) l.close(l.find(key));
  for (std::uint64_t key = 1; key < ledger::max_lists; ++key) {
    list_id const list = l.find(key);
    REQUIRE(key % 2 == (list == shared));
    if (list != shared) REQUIRE(l.key(list) == key);
  }
  CHECK(l.find_or_open(ledger::max_lists, opened) != shared);
  CHECK(opened);
  CHECK(l.valid());
}

TEST_CASE("sequence numbers rise over all free lists") {
  open_ledger l;
  list_id const a = l.open(1), b = l.open(2);
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
  list_id const a = l.open(1), b = l.open(2);
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
  list_id const a = l.open(1), b = l.open(2);
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
  list_id const a = l.open(1);
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
  list_id const a = l.open(1);
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
  list_id const a = l.open(1);
  int const first = l.record(a, 32);
  for (int i = 1; i < 32; ++i) {
    l.issue(a);
    CHECK(l.record(a, 32) == first);
  }
  CHECK(l.record(a, 32) != first);
}

TEST_CASE("an event that could not be recorded stands for nothing") {
  open_ledger l;
  list_id const a = l.open(1);
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
  list_id const giver = l.open(1), taker = l.open(2), other = l.open(3);
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
  list_id const taker = l.open(1);
  std::vector<std::pair<list_id, sequence_number>> waited;
  for (std::uint64_t key = 2; key <= 10; ++key) {
    list_id const giver = l.open(key);
    waited.emplace_back(giver, l.issue(giver));
    l.joined(taker, giver, waited.back().second);
  }
  CHECK_FALSE(l.available(taker, waited[0].first, waited[0].second));
  for (std::size_t i = 1; i < waited.size(); ++i) CHECK(l.available(taker, waited[i].first, waited[i].second));
}

TEST_CASE("a free list that takes the place of one that is forgotten is known for its own waits alone") {
  open_ledger l;
  list_id const taker = l.open(1), ninth = l.open(2);
  auto const waited_for = l.issue(ninth), not_waited_for = l.issue(ninth);
  for (std::uint64_t key = 3; key <= 10; ++key) {  // all later
    list_id const giver = l.open(key);
    l.joined(taker, giver, l.issue(giver));
  }
  l.joined(taker, ninth, waited_for);
  CHECK(l.available(taker, ninth, waited_for));
  CHECK_FALSE(l.available(taker, ninth, not_waited_for));
}

TEST_CASE("a free list that comes to stand for another stream inherits nothing") {
  open_ledger l;
  list_id const list = l.open(1), other = l.open(2);
  auto const given = l.issue(other);
  auto const old = l.issue(list);
  l.record(list);
  l.joined(list, other, given);
  l.joined(other, list, old);
  l.complete(list, old);
  l.close(list);
  l.issue(other);

  REQUIRE(l.open(3) == list);
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
  list_id const a = l.open(1), b = l.open(2);
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
  list_id const a = l.open(1), b = l.open(2);
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
  list_id const a = l.open(1);
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
        list_id const a = l.open(1);
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
    ledger l;
    std::map<std::uint64_t, stream> streams;  // by key, those that ended too: their work goes on
    std::map<int, snapshot> events;
    std::vector<list_id> open;
    std::vector<free> pending;
    std::map<list_id, std::uint64_t> successor;  // that has the handle of the list's stream, which ended
    std::uint64_t last_key = 0;
    int last_event = 0;
    auto const done = [&](int e) { return streams[events[e].key].done >= events[e].place; };
    std::size_t available = 0;
    for (int step = 0; step < 4000; ++step) {
      if (open.size() < 2 || (open.size() < 6 && below(50) == 0)) {
        l.reserve(1);
        bool opened = false;
        open.push_back(l.find_or_open(++last_key, opened));
        REQUIRE(opened);
        streams[last_key].key = last_key;
      }
      list_id const list = open[below(open.size())], other = open[below(open.size())];
      bool const ended = successor.count(list) != 0;
      stream& s = streams[ended ? successor[list] : l.key(list)];
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
            l.close(list);
            std::erase(open, list);
          }
      }
      REQUIRE(l.valid());
      for (free const& f : pending)
        for (list_id const taker : open) {
          if (taker == f.list || !l.available(taker, f.list, f.sequence)) continue;
          ++available;
          stream& waiting = streams[l.key(taker)];
          REQUIRE((streams[f.key].done >= f.place || waiting.waits[f.key] >= f.place));
        }
      std::erase_if(pending, [&](free const& f) { return f.sequence <= l.completed(f.list) && below(4) == 0; });
    }
    REQUIRE(available > 1000);
  }
}
