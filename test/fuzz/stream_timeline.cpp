// Frees, events and waits in a `stream_timeline`, and the lists of its streams, against a model that knows how far each
// stream's work really is.
#include "target.hpp"

#include <weir/pool/order/stream_lists.hpp>
#include <weir/pool/order/stream_timeline.hpp>

#include <algorithm>
#include <map>
#include <vector>

using fuzz::require;
using ledger = weir::detail::stream_timeline<int>;
using sequence = weir::detail::sequence_number;
using weir::detail::list_id;
using weir::detail::shared;

namespace {

constexpr sequence earlier(sequence t, std::uint64_t by) {
  auto const n = static_cast<std::uint64_t>(t);
  return sequence{n - std::min(n, by)};
}

/// A stream as it is. Its work runs in order, so one number says what is done.
struct stream {
  list_id list = shared;
  std::vector<sequence> frees;
  sequence done{};                           // frees up to this one have run
  std::map<std::uint64_t, sequence> waited;  // for which other streams, by key, up to where
  sequence last() const { return frees.empty() ? sequence::none : frees.back(); }
};
/// What an event handle stands for: everything freed on the stream before it was recorded.
struct event {
  std::uint64_t stream = 0;
  sequence upto{};
};

class subject {
 public:
  void open(std::uint64_t key) {
    bool opened = false;
    std::size_t const spare = lists_.closed_count();
    auto const list = lists_.find_or_open(key, opened);
    auto const known = streams_.find(key);
    if (known != streams_.end()) {
      require(list == known->second.list && !opened, "find_or_open: a stream keeps its free list");
      return;
    }
    require(opened == (spare != 0) && (list != shared) == opened, "find_or_open: opens a spare free list");
    if (!opened) return;
    for (auto const& s : streams_) require(s.second.list != list, "find_or_open: no two streams share a free list");
    ledger_.begin(list);
    streams_[key].list = list;
    require(lists_.key(list) == key && lists_.is_open(list), "find_or_open: the free list has the key");
  }
  void reserve(std::size_t spare) {
    std::size_t const has = lists_.closed_count(), all = lists_.count() + (has < spare ? spare - has : 0);
    ledger_.grow(all);
    lists_.add(all - lists_.count());
    require(lists_.closed_count() == std::max(has, spare), "add: so many are spare");
  }

  void free(std::uint64_t key) {
    stream* const s = find(key);
    if (s == nullptr) return;
    sequence const t = ledger_.issue(s->list);
    require(t > last_, "issue: sequence numbers rise over all streams");
    s->frees.push_back(last_ = t);
  }
  void record(std::uint64_t key, unsigned epoch, bool works) {
    stream* const s = find(key);
    if (s == nullptr || s->frees.empty()) return;
    int& handle = ledger_.event_to_record(s->list, epoch);
    if (handle == 0) handle = ++handles_;
    if (!works) return ledger_.not_recorded(s->list);
    events_[handle] = {key, s->last()};
    ledger_.recorded(s->list);
    require(ledger_.covered(s->list) == s->last(), "recorded: all frees so far are covered");
  }
  void run(std::uint64_t key, std::size_t count) {
    stream* const s = find(key);
    if (s == nullptr || s->frees.empty()) return;
    auto const at = std::upper_bound(s->frees.begin(), s->frees.end(), s->done) - s->frees.begin();
    s->done = s->frees[std::min(static_cast<std::size_t>(at) + count, s->frees.size() - 1)];
  }
  void advance(std::uint64_t key) {
    stream* const s = find(key);
    if (s == nullptr) return;
    bool all = true;
    ledger_.advance(s->list, [&](int handle) {
      require(events_.at(handle).stream == key, "advance: asks for the stream's own events");
      return all = events_.at(handle).upto <= s->done;
    });
    if (all && ledger_.covered(s->list) != sequence::none)
      require(ledger_.completed(s->list) == ledger_.covered(s->list),
              "advance: with all events done, all they cover is");
  }
  void synchronize(std::uint64_t key, sequence upto) {
    stream* const s = find(key);
    if (s == nullptr || s->frees.empty()) return;
    upto = std::min(upto, s->last());
    s->done = std::max(s->done, upto);
    ledger_.complete(s->list, upto);
    require(ledger_.completed(s->list) >= upto, "complete: up to there");
  }
  void wait(std::uint64_t taker_key, std::uint64_t giver_key, sequence t) {
    stream *const taker = find(taker_key), *const giver = find(giver_key);
    if (taker == nullptr || giver == nullptr || taker == giver) return;
    auto const* const behind = ledger_.covering(giver->list, t);
    if (behind == nullptr) {
      require(ledger_.covered(giver->list) < t || t <= ledger_.completed(giver->list),
              "covering: what is covered has an event");
      return;
    }
    event const& e = events_.at(behind->event);
    require(e.stream == giver_key, "covering: an event of that stream");
    require(behind->upto == e.upto && e.upto >= t, "covering: an event that stands behind it");
    // The stream waits for the event, and for all that its stream had waited for.
    sequence& upto = taker->waited[giver_key];
    upto = std::max(upto, e.upto);
    ledger_.joined(taker->list, giver->list, behind->upto);
    require(ledger_.available(taker->list, giver->list, t), "joined: it may be had now");
  }
  void close(std::uint64_t key) {
    stream* const s = find(key);
    if (s == nullptr) return;
    if (!s->frees.empty()) synchronize(key, s->last());
    lists_.close(s->list);
    require(!lists_.is_open(s->list), "close: the free list is closed");
    streams_.erase(key);
    for (auto& other : streams_) other.second.waited.erase(key);  // the key may come again
  }

  void check_all() {
    require(ledger_.valid(), "the ledger is valid");
    require(lists_.valid(), "the lists are valid");
    require(lists_.open_count() == streams_.size(), "open_count");
    for (auto const& [key, s] : streams_) {
      require(lists_.find(key) == s.list, "find: every open stream");
      auto const cached = lists_.find_cached(key);
      require(cached == s.list || cached == shared, "find_cached: its free list, or nothing");
      require(s.frees.empty() || ledger_.issued(s.list) == s.last(), "issued");
      require(s.frees.empty() || ledger_.completed(s.list) <= std::max(s.done, earlier(s.frees.front(), 1)),
              "completed: only what has run");
      for (auto const& [other_key, other] : streams_)
        for (sequence const t : s.frees) {
          if (other_key == key || !ledger_.available(other.list, s.list, t)) continue;
          auto const w = other.waited.find(key);
          require(t <= s.done || (w != other.waited.end() && t <= w->second),
                  "available: only what has run, or was waited for");
        }
    }
  }
  void check_unknown(std::uint64_t key) {
    if (find(key) == nullptr) require(lists_.find(key) == shared, "find: no stream that is not open");
  }
  sequence last() const { return last_; }

 private:
  stream* find(std::uint64_t key) {
    auto const at = streams_.find(key);
    return at == streams_.end() ? nullptr : &at->second;
  }

  weir::detail::stream_lists<> lists_;
  ledger ledger_;
  std::map<std::uint64_t, stream> streams_;  // by key
  std::map<int, event> events_;
  int handles_ = 0;
  sequence last_{};
};

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  if (size > 600) size = 600;  // the check of all pairs is quadratic
  fuzz::input in(data, size);
  subject s;
  // Twelve keys; the last four may meet in one place of the cache.
  auto const key_of = [](unsigned n) {
    return n % 12 < 8 ? 1 + std::uint64_t{n % 12} : 1 + std::uint64_t{n % 12} * 89;
  };
  while (!in.empty()) {
    unsigned const what = in.byte(), more = in.byte();
    std::uint64_t const key = key_of(more);
    switch (what % 10) {
      case 0:
        s.reserve(1 + more % 4);
        break;
      case 1:
        s.open(key);
        break;
      case 2:
      case 3:
        s.free(key);
        break;
      case 4:
      case 5:
        s.record(key, 1 + what / 10 % 3, what < 200);
        break;
      case 6:
        s.run(key, what / 10);
        break;
      case 7:
        s.advance(key);
        break;
      case 8:
        s.wait(key, key_of(in.byte()), earlier(s.last(), what / 10));
        break;
      default:
        if (what < 100)
          s.synchronize(key, earlier(s.last(), what / 10));
        else if (what < 180)
          s.close(key);
        else
          s.check_unknown(key);
    }
    s.check_all();
  }
  return 0;
}
