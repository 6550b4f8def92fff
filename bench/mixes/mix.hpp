#pragma once
// A mix: what a program asks of a pool, drawn from a seed.

#include "../support/random_numbers.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

namespace bench {

enum class sizes_are { equal, uniform, log_uniform, few, small_and_large };
enum class freed { at_random, oldest_first, latest_first, all_at_once };
enum class freed_on { its_stream, any_stream, one_stream, its_stream_after_others };
enum class streams_take { at_random, by_turns, by_phases };

inline constexpr std::array size_names{"equal", "uniform", "log", "few", "small+large"};
inline constexpr std::array order_names{"random", "oldest", "latest", "all"};
inline constexpr std::array where_names{"own", "any", "one", "after"};
inline constexpr std::array turn_names{"random", "turns", "phases"};

/// Numbers by their probability, beside `random_numbers`.
class draws {
 public:
  explicit draws(std::uint64_t seed) : random_(seed) {}
  std::uint64_t next() { return random_.next(); }
  std::size_t below(std::size_t end) { return random_numbers::high(random_.next(), end); }
  double unit() { return static_cast<double>(random_.next() >> 11) * 0x1p-53; }
  bool once_in(double times) { return unit() * times < 1; }
  /// From one to the other, each doubling as likely as the next.
  std::size_t log(double from, double to) { return static_cast<std::size_t>(from * std::pow(to / from, unit())); }
  template <class Enum>
  Enum one_of(std::size_t count) {
    return static_cast<Enum>(below(count));
  }

 private:
  random_numbers random_;
};

struct mix {
  std::uint64_t seed;
  std::size_t streams, live, most_bytes;
  sizes_are sizes;
  freed order;
  freed_on where;
  streams_take turns;
  bool may_end;             // streams that the pool has to ask about
  std::size_t alignment;    // bytes
  double after_others;      // so many of the blocks were used on two streams more
  std::uint64_t work_time;  // so many calls later it is done
  std::size_t burst;        // blocks at a time, where the latest go first
  std::size_t trimmed;      // each so many steps; 0: never
  bool has_favourites;      // a tenth of the blocks is replaced in nine of ten steps

  explicit mix(std::uint64_t number) : seed(number) {
    draws d(seed * 7919 + 13);
    streams = d.once_in(2.5) ? 1 : d.log(2, 64);
    live = d.log(1, 60'000);
    most_bytes = d.log(256, 64 << 20);
    while (static_cast<double>(live) * static_cast<double>(most_bytes) > 4e11) live = live / 2 + 1;
    sizes = d.one_of<sizes_are>(size_names.size());
    order = d.one_of<freed>(order_names.size());
    where = streams == 1 ? freed_on::its_stream : d.one_of<freed_on>(where_names.size());
    turns = d.one_of<streams_take>(turn_names.size());
    may_end = d.once_in(4);
    alignment = std::size_t{1} << (d.once_in(7) ? 8 + d.below(14) : 8);
    after_others = where == freed_on::its_stream_after_others ? d.unit() / 2 : 0;
    work_time = d.once_in(2) ? 0 : d.log(4, 20'000);
    burst = d.log(2, 2.0 + static_cast<double>(live));
    trimmed = d.once_in(10) ? d.log(1000, 30'000) : 0;
    has_favourites = d.once_in(5);
  }

  std::string text() const {
    auto const name = [](auto const& names, auto value) { return names[static_cast<std::size_t>(value)]; };
    std::string s = std::to_string(streams) + (may_end ? " plain streams, " : " streams, ") + std::to_string(live) +
                    " live <= " + std::to_string(most_bytes) + " B " + name(size_names, sizes) + ", " +
                    name(turn_names, turns) + ", freed " + name(order_names, order) + " on " + name(where_names, where);
    if (alignment > 256) s += ", aligned " + std::to_string(alignment);
    if (work_time != 0) s += ", done " + std::to_string(work_time) + " later";
    if (trimmed != 0) s += ", trimmed each " + std::to_string(trimmed);
    if (has_favourites) s += ", favourites";
    return s;
  }
};

}  // namespace bench
