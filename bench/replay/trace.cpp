#include "trace.hpp"

#include "../support/random_numbers.hpp"

#include <weir/core/printable.hpp>
#include <weir/tools/torch_history.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>

#ifdef BENCH_ZLIB
#include <unistd.h>
#include <zlib.h>
#endif

namespace bench {
namespace {

/// A file that may be gzip-ed, by lines or as a whole.
class file {
 public:
  /// Reads all of it; throws `std::runtime_error` if it cannot be read or has, unpacked, more than `max_bytes`.
  file(std::string const& path, std::size_t max_bytes) : path_(path), max_bytes_(max_bytes) {
    char block[1 << 16];
#ifdef BENCH_ZLIB
    auto const close = [](gzFile_s* f) { gzclose(f); };
    std::unique_ptr<gzFile_s, decltype(close)> const opened(
        path == "-" ? gzdopen(dup(0), "rb") : gzopen(path.c_str(), "rb"), close);
    if (!opened) unreadable("cannot be opened");
    int got = 0;
    while ((got = gzread(opened.get(), block, sizeof block)) > 0) append({block, static_cast<std::size_t>(got)});
    int code = Z_OK;
    char const* const why = gzerror(opened.get(), &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) error_ = why;
#else
    auto const close = [](std::FILE* f) { std::fclose(f); };
    std::unique_ptr<std::FILE, decltype(close)> const opened(
        path == "-" ? std::fopen("/dev/stdin", "rb") : std::fopen(path.c_str(), "rb"), close);
    if (!opened) unreadable("cannot be opened");
    std::size_t got = 0;
    while ((got = std::fread(block, 1, sizeof block, opened.get())) > 0) append({block, got});
    if (std::ferror(opened.get())) unreadable("cannot be read");
    if (text_.starts_with("\x1f\x8b"))
      unreadable("is gzip-ed, and this was built without zlib; try gzip -dc FILE | bench_replay -");
#endif
    lines_ = weir::detail::text_lines(text_, path_);
  }

  bool is_pickle() const { return text_.starts_with('\x80'); }

  std::string_view whole() {
    next_line();
    if (!error_.empty()) damaged("the file breaks off: " + error_);
    return text_;
  }
  std::optional<std::string_view> next_line() {
    auto const line = lines_.next();
    if (!line && !error_.empty()) damaged("the file breaks off here: " + error_);
    return line;
  }
  weir::detail::text_lines const& lines() const { return lines_; }
  [[noreturn]] void damaged(std::string const& why) const { lines_.damaged(why); }

 private:
  void append(std::string_view more) {
    if (more.size() > max_bytes_ - text_.size())
      unreadable("has, unpacked, more than the " + std::to_string(max_bytes_) +
                 " bytes that are read of a trace; if you trust it, read more with --max-bytes");
    text_.append(more);
  }
  [[noreturn]] void unreadable(std::string const& why) const {
    throw std::runtime_error(weir::printable(path_) + ": " + why);
  }

  std::string path_;
  std::size_t max_bytes_;
  std::string text_;
  std::string error_;
  weir::detail::text_lines lines_{{}, {}};  // of `text_`, once that is read
};

std::uint32_t numbered(std::unordered_map<std::string, std::uint32_t>& known, std::string_view name) {
  return known.try_emplace(std::string(name), static_cast<std::uint32_t>(known.size())).first->second;
}

using weir::detail::fields_of;
using weir::detail::log_columns;

void read_log(file& in, trace& out, log_columns const& columns) {
  std::unordered_map<std::uint64_t, std::uint32_t> live;
  std::unordered_map<std::string, std::uint32_t> streams, threads;
  while (auto const line = in.next_line()) {
    if (line->empty()) continue;
    log_columns::line const e = columns.read(in.lines(), *line);
    if (e.is == e.fails) continue;
    // Nothing was allocated or freed there: no stream and no thread is counted for it.
    if (e.is == e.allocates ? e.bytes == 0 : e.address == 0) continue;
    std::uint32_t const thread = numbered(threads, e.thread);
    std::uint32_t const stream = numbered(streams, e.stream);
    std::string const pointer = in.lines().start_of(e.pointer);
    if (e.is == e.allocates) {
      auto const block = static_cast<std::uint32_t>(out.sizes.size());
      if (!live.emplace(e.address, block).second) in.damaged("allocates " + pointer + ", which is live");
      out.sizes.push_back(e.bytes);
      out.events.push_back({block, stream, thread, true});
    } else {
      auto const found = live.find(e.address);
      if (found == live.end()) in.damaged("frees " + pointer + ", which is not live");
      if (out.sizes[found->second] != e.bytes)
        in.damaged("frees " + std::to_string(e.bytes) + " B; " + std::to_string(out.sizes[found->second]) +
                   " B were allocated there");
      out.events.push_back({found->second, stream, thread, false});
      live.erase(found);
    }
  }
  out.streams = std::max<std::size_t>(streams.size(), 1);
  out.threads = std::max<std::size_t>(threads.size(), 1);
}

void read_lifetimes(file& in, trace& out) {
  struct moment {
    std::uint64_t time;
    bool allocates;
    std::uint32_t block;
  };
  std::vector<moment> moments;
  while (auto const line = in.next_line()) {
    if (line->empty()) continue;
    auto const f = fields_of(*line, 8);
    if (f.size() != 4) in.damaged("has " + std::to_string(f.size()) + " fields; 4 are needed: id,lower,upper,size");
    std::uint64_t const lower = in.lines().number(f[1], "lower"), upper = in.lines().number(f[2], "upper");
    std::uint64_t const bytes = in.lines().number(f[3], "size");
    if (upper < lower)
      in.damaged("ends at " + in.lines().start_of(f[2]) + ", before it begins at " + in.lines().start_of(f[1]));
    if (bytes == 0 || upper == lower) continue;
    auto const block = static_cast<std::uint32_t>(out.sizes.size());
    out.sizes.push_back(bytes);
    moments.push_back({lower, true, block});
    moments.push_back({upper, false, block});
  }
  // What ends at a moment is gone before what begins there comes.
  std::sort(moments.begin(), moments.end(), [](moment const& a, moment const& b) {
    return a.time != b.time ? a.time < b.time : a.allocates != b.allocates ? b.allocates : a.block < b.block;
  });
  for (moment const& m : moments) out.events.push_back({m.block, 0, 0, m.allocates});
}

/// Streams are numbered device by device: a handle means nothing on another.
std::vector<trace> read_snapshot(file& in, std::string const& name, std::string const& path,
                                 std::size_t max_bytes) try {
  std::vector<trace> found;
  using weir::detail::device_history;
  auto const histories = weir::detail::read_torch_snapshot(in.whole(), {.values = max_bytes / 16});
  for (device_history const& history : histories) {
    trace out;
    out.name = histories.size() == 1 ? name : name + ", device " + std::to_string(history.device);
    std::unordered_map<std::uint64_t, std::uint32_t> live;
    std::unordered_map<std::string, std::uint32_t> streams;
    for (device_history::event const& e : history.events) {
      bool const allocates = e.action == weir::trace_action::allocate;
      if (!allocates && e.action != weir::trace_action::free) continue;
      if (allocates) {
        live[e.address] = static_cast<std::uint32_t>(out.sizes.size());
        out.sizes.push_back(e.bytes);
      }
      out.events.push_back({live.at(e.address), numbered(streams, std::to_string(e.stream)), 0, allocates});
    }
    out.streams = streams.size();
    found.push_back(std::move(out));
  }
  return found;
} catch (weir::detail::damaged_pickle const& e) {
  throw damaged_trace(path + ": " + e.what());
}

}  // namespace

std::size_t trace::peak() const {
  std::size_t now = 0, most = 0;
  for (event const& e : events) {
    if (e.allocates)
      most = std::max(most, now += sizes[e.block]);
    else
      now -= sizes[e.block];
  }
  return most;
}

std::vector<trace> read_traces(std::string const& path, std::size_t max_bytes) {
  file in(path, max_bytes);
  std::string const name = path == "-" ? "standard input" : weir::printable(path.substr(path.rfind('/') + 1));
  if (in.is_pickle()) return read_snapshot(in, name, path, max_bytes);
  trace out;
  out.name = name;
  auto const header = in.next_line();
  if (auto const columns = log_columns::of(header.value_or("")))
    read_log(in, out, *columns);
  else if (header == "id,lower,upper,size")
    read_lifetimes(in, out);
  else
    in.damaged(
        "is neither 'Thread,Time,Action,Pointer,Size,Stream' nor 'id,lower,upper,size' nor the beginning of a pickle "
        "of "
        "protocol 2 to 5");
  return {out};
}

namespace {

/// Which block of `b` plays the part that each of `a` plays. Blocks correspond that are freed by the same event; of
/// those that are never freed, those of the same rank by size. Blocks from before the first free may stand in another
/// order.
std::vector<std::uint32_t> parts(trace const& a, trace const& b) {
  auto const unlike = [&] { throw std::runtime_error(a.name + " and " + b.name + " differ in more than sizes"); };
  bool const same_events =
      std::equal(a.events.begin(), a.events.end(), b.events.begin(), b.events.end(),
                 [](auto const& x, auto const& y) { return x.allocates == y.allocates && x.stream == y.stream; });
  if (!same_events) unlike();
  constexpr std::uint32_t none = ~std::uint32_t{0};
  std::vector<std::uint32_t> part(a.sizes.size(), none);
  std::vector<std::uint8_t> is_taken(b.sizes.size());
  std::size_t allocated = 0, in_front = 0;
  for (std::size_t i = 0; i < a.events.size(); ++i) {
    if (a.events[i].allocates) {
      ++allocated;
      continue;
    }
    if (in_front == 0) in_front = allocated;
    std::uint32_t const x = a.events[i].block, y = b.events[i].block;
    if (x != y && (x >= in_front || y >= in_front)) unlike();
    part[x] = y;
    is_taken[y] = 1;
  }
  std::vector<std::uint32_t> left_a, left_b;
  for (std::uint32_t x = 0; x < part.size(); ++x) {
    if (part[x] == none) left_a.push_back(x);
    if (is_taken[x] == 0) left_b.push_back(x);
  }
  std::stable_sort(left_a.begin(), left_a.end(), [&](auto x, auto y) { return a.sizes[x] < a.sizes[y]; });
  std::stable_sort(left_b.begin(), left_b.end(), [&](auto x, auto y) { return b.sizes[x] < b.sizes[y]; });
  for (std::size_t i = 0; i < left_a.size(); ++i) part[left_a[i]] = left_b[i];
  return part;
}

}  // namespace

trace interpolate(trace const& a, trace const& b, std::size_t runs, std::uint64_t seed) {
  std::vector<std::uint32_t> const part = parts(a, b);
  trace out;
  out.name = a.name + " .. " + b.name + ", " + std::to_string(runs) + " runs, seed " + std::to_string(seed);
  out.streams = a.streams;
  out.threads = a.threads;
  random_numbers random(seed);
  for (std::size_t run = 0; run < runs; ++run) {
    double const place = static_cast<double>(random.next() >> 11) / static_cast<double>(std::uint64_t{1} << 53);
    auto const first = static_cast<std::uint32_t>(out.sizes.size());
    for (std::size_t i = 0; i < a.sizes.size(); ++i) {
      double const between =
          static_cast<double>(a.sizes[i]) * (1 - place) + static_cast<double>(b.sizes[part[i]]) * place;
      out.sizes.push_back(static_cast<std::size_t>(std::llround(between)));
    }
    std::map<std::uint32_t, trace::event> live;  // and how it was allocated
    for (trace::event const& e : a.events) {
      out.events.push_back({first + e.block, e.stream, e.thread, e.allocates});
      if (e.allocates)
        live.emplace(e.block, e);
      else
        live.erase(e.block);
    }
    for (auto const& [block, e] : live) out.events.push_back({first + block, e.stream, e.thread, false});
  }
  return out;
}

}  // namespace bench
