// Requests, frees, merges and whole segments in a `block_heap`, against a model that knows each unit of memory: who
// has it, and since when.
#include "target.hpp"

#include <weir/pool/heap/growable_heap.hpp>

#include <algorithm>
#include <bit>
#include <vector>

using namespace weir::detail;
using fuzz::require;

namespace {

constexpr std::uint16_t lists = 4;
constexpr list_id live{0xffff};
constexpr units splits_all = ~units{0};

constexpr std::size_t index(list_id list) { return static_cast<std::size_t>(list); }
constexpr sequence_number earlier(sequence_number s, std::uint64_t by) {
  auto const n = static_cast<std::uint64_t>(s);
  return sequence_number{n - std::min(n, by)};
}

/// One unit of memory. Those of one block have the same.
struct cell {
  list_id list = shared;  // or `live`
  sequence_number sequence{};
  std::size_t block = 0;  // of live ones: which request
};
struct segment {
  block_id id;
  std::uintptr_t address;
  std::vector<cell> cells;
};
struct request_made {
  block_id id;
  std::uintptr_t address;
  std::size_t number;
};
/// Cells [first, end) of one segment that make a free block.
struct run_of_cells {
  segment* in;
  std::size_t first, end;
  units size() const { return static_cast<units>(end - first); }
};

class subject {
 public:
  explicit subject(unsigned form)
      : ages_((form & 1) != 0), max_split_(form & 2 ? units{12} + (form >> 4) : splits_all) {
    store_.reserve_lists(lists);
    if (ages_) store_.keep_ages();
  }

  void add_segment(units size, bool touching) {
    if (segments_.size() == 8) return;
    next_ += touching ? 0 : std::uintptr_t{1} << 20;
    store_.reserve();
    segments_.push_back({store_.add_segment(next_, size), next_, std::vector<cell>(size)});
    next_ += std::uintptr_t{size} * unit_bytes;
  }

  void request(list_id from, list_id by, units size, unsigned alignment_log, bool extending) {
    auto r = block_heap::request::of(size * unit_bytes - index(by), size * unit_bytes, std::size_t{1} << alignment_log,
                                     max_split_);
    store_.reserve();
    block_id id = store_.find(from, r);
    if (id == 0) id = store_.find_hidden(from, r);
    if (id == 0) {
      if (max_split_ == splits_all)
        for (auto const& b : free_blocks())
          require(list_of(b) != from || b.size() < r.span(), "find: there is a block that would do");
      return;
    }
    auto const& found = store_.blocks()[id];
    require(found.is_free() && found.list == from && found.size >= r.span(),
            "find: gives a free block that is large enough");
    require(found.size < max_split_ || (r.span() >= max_split_ && found.size - r.size <= (20u << 20) / unit_bytes),
            "find: large blocks are for large requests");
    bool const was_whole = found.size >= max_split_;
    units const had = found.size;
    bool const own = extending && from == shared;
    block_id const taken = own ? store_.take_extending(by, id, r) : store_.take(id, r);
    block const& b = store_.blocks()[taken];
    require(b.state() == block_state::live, "take: what it gives is live");
    require(b.address() % (std::size_t{1} << alignment_log) == 0, "take: aligned as asked");
    require(b.requested() == size * unit_bytes - index(by) && b.alignment_log() == alignment_log,
            "take: remembers the request");
    require(was_whole ? b.size >= r.size && b.size <= had : b.size == r.size, "take: cut to size, or whole");
    segment& in = segment_at(b.address());
    std::size_t const first = (b.address() - in.address) / unit_bytes;
    require(first + b.size <= in.cells.size(), "take: inside one segment");
    for (std::size_t i = first; i < first + b.size; ++i) {
      list_id const was = in.cells[i].list;
      require(was == from || (own && was == by), "take: only of the free list asked, or the asker's own");
      in.cells[i] = {live, sequence_number::none, requests_};
    }
    live_.push_back({taken, b.address(), requests_++});
  }

  void give(std::size_t which, list_id list) {
    if (live_.empty()) return;
    std::swap(live_[which % live_.size()], live_.back());
    request_made const gone = live_.back();
    live_.pop_back();
    require(store_.find_live(gone.address) == gone.id, "find_live: a live block by its address");
    sequence_number const sequence = list == shared ? sequence_number::none : now_ = next(now_);
    block_id const id = store_.give(gone.id, list, sequence);
    require(store_.find_live(gone.address) == 0, "give: no longer found by its address");
    segment& in = segment_at(gone.address);
    std::size_t first = (gone.address - in.address) / unit_bytes, end = first;
    while (end < in.cells.size() && in.cells[end].list == live && in.cells[end].block == gone.number) ++end;
    for (std::size_t i = first; i < end; ++i) in.cells[i] = {list, sequence, 0};
    settle({&in, first, end});
    latest_[index(list)] = sequence;
    require(ages_ == false || list == shared || store_.sequence(id) == sequence,
            "give: has the sequence number of its free");
  }

  void complete(list_id list, sequence_number sequence) {
    store_.complete(list, sequence);
    for (auto const& b : free_blocks())
      if (list_of(b) == list && sequence_of(b) <= sequence) fill(b, shared, sequence_number::none);
  }

  void keep_ages() {
    store_.keep_ages();
    if (!ages_)
      for (auto const& b : free_blocks())
        if (list_of(b) != shared) fill(b, list_of(b), latest_[index(list_of(b))]);
    ages_ = true;
  }

  void merge(list_id from, unsigned mask, units size, unsigned alignment_log, list_id to) {
    auto const r =
        block_heap::request::of(size * unit_bytes, size * unit_bytes, std::size_t{1} << alignment_log, max_split_);
    auto const allowed = [&](list_id list) {
      return list != live && ((mask | 1u << index(from)) >> index(list) & 1u) != 0;
    };
    auto const found = store_.find_run(from, r, [&](block_id id) { return allowed(store_.blocks()[id].list); });
    std::uint64_t most = 0;  // the largest such run that the model sees
    run_of_cells best{};
    for (segment& s : segments_)
      for (std::size_t i = 0; i < s.cells.size();) {
        run_of_cells run{&s, i, i};
        bool has_from = false;
        while (run.end < s.cells.size() && allowed(s.cells[run.end].list)) {
          run_of_cells const b = block_from(s, run.end);
          if (b.size() >= max_split_) break;
          has_from = has_from || list_of(b) == from;
          run.end = b.end;
        }
        if (has_from && run.size() > most) best = run, most = run.size();
        i = run.size() != 0 ? run.end : block_from(s, i).end;
      }
    require((found.first != 0) == (most >= r.span()), "find_run: finds a run if there is one");
    if (found.first == 0) return;
    require(found.size >= r.span(), "find_run: large enough");
    block const& first = store_.blocks()[found.first];
    segment& in = segment_at(first.address());
    run_of_cells run{&in, (first.address() - in.address) / unit_bytes, 0};
    run.end = run.first + found.size;
    require(run.end <= in.cells.size(), "find_run: in one segment");
    bool has_from = false;
    for (std::size_t i = run.first; i < run.end; ++i) {
      require(allowed(in.cells[i].list), "find_run: only what may be used");
      has_from = has_from || in.cells[i].list == from;
    }
    require(has_from, "find_run: has some of the free list");
    std::uint64_t visited = 0;
    store_.for_each_in(found, [&](block_id id) { visited += store_.blocks()[id].size; });
    require(visited == found.size, "for_each_in: the whole run");
    sequence_number const sequence = to == shared ? sequence_number::none : now_ = next(now_);
    store_.merge(found, to, sequence);
    fill(run, to, sequence);
    settle(run);
    latest_[index(to)] = sequence;
  }

  void remove_segment(std::size_t which) {
    if (segments_.empty()) return;
    auto const at = segments_.begin() + static_cast<std::ptrdiff_t>(which % segments_.size());
    bool const idle = std::all_of(at->cells.begin(), at->cells.end(), [](cell const& c) { return c.list == shared; });
    bool const pending = std::any_of(at->cells.begin(), at->cells.end(),
                                     [](cell const& c) { return c.list != shared && c.list != live; });
    require(store_.is_idle(at->id) == idle, "is_idle: all free and done");
    require(store_.is_pending(at->id) == pending, "is_pending: some free and not done");
    if (!idle) return;
    store_.remove_segment(at->id);
    segments_.erase(at);
  }

  void check_live(std::uintptr_t offset) {
    auto const at = std::find_if(live_.begin(), live_.end(), [&](auto const& r) { return r.address == base + offset; });
    require(store_.find_live(base + offset) == (at == live_.end() ? 0 : at->id), "find_live: live blocks only");
  }

  void check_all() {
    if (checks_++ % 8 == 0) require(store_.valid(), "the store is valid");  // slow: looks at every size class
    std::size_t free[lists] = {}, largest[lists] = {}, blocks = 0;
    for (segment& s : segments_) {
      std::size_t at = 0;
      for (block_id id = s.id; id != 0; id = store_.blocks()[id].right) {
        block const& b = store_.blocks()[id];
        ++blocks;
        require(b.address() == s.address + at * unit_bytes, "blocks follow one another");
        run_of_cells const cells = block_from(s, at);
        require(b.size == cells.size(), "blocks are as large as the model's");
        require(b.is_free() == (list_of(cells) != live), "blocks are live as in the model");
        at = cells.end;
        if (!b.is_free()) continue;
        require(b.list == list_of(cells), "blocks stand in their free list");
        require(b.list == shared || store_.sequence(id) == sequence_of(cells),
                "blocks have the sequence number of their latest free");
        free[index(b.list)] += b.bytes();
        largest[index(b.list)] = std::max(largest[index(b.list)], b.bytes());
      }
      require(at == s.cells.size(), "blocks make up the segment");
    }
    require(blocks == store_.blocks().used() && live_.size() == store_.blocks().live(), "no block is lost");
    for (std::uint16_t i = 0; i < lists; ++i) {
      require(store_.free_bytes(list_id{i}) == free[i], "free_bytes");
      require(store_.largest_free(list_id{i}) == largest[i], "largest_free");
    }
  }

  void check_valid() const { require(store_.valid(), "the store is valid at the end"); }

  sequence_number now() const { return now_; }

 private:
  static constexpr std::uintptr_t base = 0x7f00'0000'0000;

  segment& segment_at(std::uintptr_t address) {
    for (segment& s : segments_)
      if (address >= s.address && address < s.address + s.cells.size() * unit_bytes) return s;
    fuzz::fail("a block lies in no segment");
  }
  /// The block that begins at a cell: live ones by their request, free ones as far as the free list goes.
  static run_of_cells block_from(segment& s, std::size_t first) {
    run_of_cells b{&s, first, first};
    cell const& c = s.cells[first];
    while (b.end < s.cells.size() && s.cells[b.end].list == c.list && s.cells[b.end].block == c.block) ++b.end;
    return b;
  }
  std::vector<run_of_cells> free_blocks() {
    std::vector<run_of_cells> all;
    for (segment& s : segments_)
      for (std::size_t i = 0; i < s.cells.size();) {
        run_of_cells const b = block_from(s, i);
        if (list_of(b) != live) all.push_back(b);
        i = b.end;
      }
    return all;
  }
  static list_id list_of(run_of_cells const& b) { return b.in->cells[b.first].list; }
  /// With ages, each block's own; without, the free list's latest.
  sequence_number sequence_of(run_of_cells const& b) const {
    return ages_ ? b.in->cells[b.first].sequence : latest_[index(list_of(b))];
  }
  static void fill(run_of_cells const& b, list_id list, sequence_number sequence) {
    for (std::size_t i = b.first; i < b.end; ++i) b.in->cells[i] = {list, sequence, 0};
  }
  /// Free neighbours of one free list are one block, with the sequence number of its latest free.
  static void settle(run_of_cells b) {
    cell const c = b.in->cells[b.first];
    while (b.first != 0 && b.in->cells[b.first - 1].list == c.list) --b.first;
    while (b.end < b.in->cells.size() && b.in->cells[b.end].list == c.list) ++b.end;
    fill(b, c.list, c.sequence);
  }

  growable_heap store_;
  bool ages_;
  units max_split_;
  std::uintptr_t next_ = base;
  std::vector<segment> segments_;
  std::vector<request_made> live_;
  std::size_t requests_ = 1, checks_ = 0;
  sequence_number now_{};
  sequence_number latest_[lists] = {};
};

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  fuzz::input in(data, size);
  subject s(in.byte());
  while (!in.empty()) {
    unsigned const what = in.byte(), more = in.byte();
    auto const list = static_cast<list_id>(more % lists), other = static_cast<list_id>(more / lists % lists);
    switch (what % 10) {
      case 0:
        s.add_segment(1 + more % 96, more >= 128);
        break;
      case 1:
      case 2:
        s.request(list, other, 1 + in.byte() % 40, more < 200 ? 8 : 8 + more % 5, what % 10 == 1);
        break;
      case 3:
      case 4:
      case 5:
        s.give(what / 10, list);
        break;
      case 6:
        if (list != shared) s.complete(list, earlier(s.now(), what / 10));
        break;
      case 7:
        if (list != shared) s.merge(list, what / 10, 1 + in.byte() % 64, more < 200 ? 8 : 9, other);
        break;
      case 8:
        s.remove_segment(more);
        break;
      default:
        if (more == 255) s.keep_ages();
        s.check_live(in.take<std::uint16_t>() * std::uintptr_t{128});
    }
    s.check_all();
  }
  s.check_valid();
  return 0;
}
