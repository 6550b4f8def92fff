// How much of the host's memory reading takes, of files that somebody made up to have it take much.
#include <weir/tools/read_trace.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace {

std::size_t taken = 0, most_taken = 0;  // bytes that `operator new` gave

constexpr std::size_t room = alignof(std::max_align_t);  // in front of each, for how many they are

}  // namespace

void* operator new(std::size_t bytes) {
  void* const p = std::malloc(room + bytes);
  if (p == nullptr) throw std::bad_alloc();
  *static_cast<std::size_t*>(p) = bytes;
  most_taken = std::max(most_taken, taken += bytes);
  return static_cast<std::byte*>(p) + room;
}
// Not inlined, or g++ sees `free` beside `operator new` and takes them for a mismatch.
[[gnu::noinline]] void operator delete(void* p) noexcept {
  if (p == nullptr) return;
  void* const whole = static_cast<std::byte*>(p) - room;
  taken -= *static_cast<std::size_t*>(whole);
  std::free(whole);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { operator delete(p); }

namespace {

/// How many times its own bytes reading a file takes at most. `make(n)` is one of about n bytes; where memory is
/// doubled as it fills up, some sizes are worse than others.
template <class Make>
std::size_t most_times(Make make) {
  std::size_t times = 0;
  for (std::size_t bytes = 1 << 16; bytes < 1 << 17; bytes += bytes / 7) {
    std::string const file = make(bytes);
    std::size_t const before = most_taken = taken;
    try {
      weir::read_memory(file);
    } catch (weir::damaged_trace const&) {
    }
    times = std::max(times, (most_taken - before) / file.size());
  }
  return times;
}

std::string repeated(std::string const& part, std::size_t bytes) {
  std::string all;
  while (all.size() < bytes) all += part;
  return all;
}

// Parts of pickles.
std::string text(std::string const& s) {
  std::string out = "X";
  for (int i = 0; i < 4; ++i) out += static_cast<char>(s.size() >> 8 * i & 0xff);
  return out + s;
}
std::string number(int n) { return std::string("K") + static_cast<char>(n); }
std::string remember(int n) { return std::string("q") + static_cast<char>(n); }
std::string recall(int n) { return std::string("h") + static_cast<char>(n); }
std::string list(std::string const& items) { return "(" + items + "l"; }
struct field {
  char const* name;
  std::string value;
};
std::string dict(std::vector<field> const& fields) {
  std::string out = "(";
  for (auto const& [name, value] : fields) out += text(name) + value;
  return out + "d";
}
std::string entry(char const* action) {
  return dict({{"action", text(action)}, {"addr", number(1)}, {"size", number(1)}, {"stream", number(0)}});
}
std::string snapshot(std::string const& entries, std::string const& segments, std::string const& rest) {
  return "\x80\x02" + dict({{"device_traces", list(list(entries))}, {"segments", list(segments)}, {"rest", rest}}) +
         ".";
}
std::string segment(std::string const& blocks) {
  return dict({{"device", number(0)}, {"address", number(1)}, {"stream", number(0)}, {"blocks", list(blocks)}});
}
std::string live_block(std::string const& category) {
  return dict({{"size", number(1)}, {"state", text("active_allocated")}, {"category", text(category)}});
}

std::string json(std::string const& frames) { return R"({"action":"free","frames":[)" + frames + "]}\n"; }

}  // namespace

std::size_t const most = 50;  // as `read_memory` says

TEST_CASE("pickles of many values take no more memory than it is said") {
  CHECK(most_times([](std::size_t n) {
          return "\x80\x02(" + repeated(")", n / 2 - 9) + "t0" + text(std::string(n / 2, 'x')) + ".";
        }) <= most);
  CHECK(most_times([](std::size_t n) { return "\x80\x02]" + repeated("]a", n) + "."; }) <= most);
  CHECK(most_times([](std::size_t n) {
          return "\x80\x02]" +
                 repeated(
                     "N\x94"
                     "a",
                     n) +
                 ".";
        }) <= most);
}

TEST_CASE("nor do snapshots that hold one entry, segment, block or tag in many places") {
  std::string const pair = entry("alloc") + remember(0) + entry("free_requested") + remember(1);
  std::string const again = recall(0) + recall(1), other = recall(2);
  auto const filled = [](std::size_t n) { return text(std::string(n, 'x')); };
  SUBCASE("more than are read") {
    CHECK(most_times([&](std::size_t n) { return snapshot(pair + repeated(again, n), "", "N"); }) <= most);
    CHECK(most_times([&](std::size_t n) {
            return snapshot(pair, segment("") + remember(2) + repeated(other, n), "N");
          }) <= most);
    CHECK(most_times([&](std::size_t n) {
            return snapshot(pair, segment(live_block("") + remember(2) + repeated(other, n)), "N");
          }) <= most);
  }
  SUBCASE("as many as are read") {
    CHECK(most_times([&](std::size_t n) { return snapshot(pair + repeated(again, n / 5), "", filled(n * 4 / 5)); }) <=
          most);
    CHECK(most_times([&](std::size_t n) {
            return snapshot(pair, segment("") + remember(2) + repeated(other, n / 5), filled(n * 4 / 5));
          }) <= most);
    for (std::size_t const tag : {0u, 63u, 64u, 5000u})
      CHECK(most_times([&](std::size_t n) {
              std::string const blocks = live_block(std::string(tag, 'x')) + remember(2) + repeated(other, n / 5);
              return snapshot(pair, segment(blocks), filled(n * 4 / 5));
            }) <= most);
  }
  SUBCASE("beside as many other values as there can be") {
    CHECK(most_times([&](std::size_t n) {
            std::string const blocks = live_block(std::string(63, 'x')) + remember(2) + repeated(other, n / 5 - 700);
            return snapshot(pair, segment(blocks), "]" + repeated(")a", n * 4 / 5));
          }) <= most);
  }
}

TEST_CASE("nor do lines of JSON, nor a log") {
  std::string const header = "{\"weir_trace\":1}\n", log(weir::detail::log_columns::plain);
  CHECK(most_times([&](std::size_t n) { return header + json(repeated("\"\",", n) + "\"\""); }) <= most);
  CHECK(most_times([&](std::size_t n) {
          std::string lines = header;
          for (int i = 0; lines.size() < n; ++i) lines += json("\"" + std::to_string(i) + "\"");
          return lines;
        }) <= most);
  CHECK(most_times([&](std::size_t n) { return header + repeated("{\"action\":\"free\"}\n", n); }) <= most);
  CHECK(most_times([&](std::size_t n) { return log + "\n" + repeated(",,free,1,1,\n", n); }) <= most);
}
