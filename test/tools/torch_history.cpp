#include <weir/tools/torch_history.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace {

using weir::detail::damaged_pickle;
using weir::detail::device_history;
using weir::detail::read_torch_snapshot;

// Pickles are put together here from these; that Python's are read alike, the tests of the pickle show.
std::string text(std::string const& s) { return std::string("U") + static_cast<char>(s.size()) + s; }
std::string number(std::uint64_t n) {
  std::string s("\x8a\x09", 2);
  for (int i = 0; i < 9; ++i, n >>= 8) s += static_cast<char>(n & 0xff);
  return s;
}
std::string list(std::vector<std::string> const& items) {
  std::string s = "(";
  for (std::string const& item : items) s += item;
  return s + "l";
}
struct field {
  char const* name;
  std::string value;
};
std::string dict(std::vector<field> const& fields) {
  std::string s = "(";
  for (auto const& [name, value] : fields) s += text(name) + value;
  return s + "d";
}
std::string pickled(std::string const& body) { return "\x80\x02" + body + "."; }

std::string entry(char const* action, std::uint64_t address, std::uint64_t bytes, std::uint64_t stream = 0) {
  return dict({{"action", text(action)},
               {"addr", number(address)},
               {"size", number(bytes)},
               {"stream", number(stream)},
               {"time_us", number(1)},
               {"frames", list({dict({{"name", text("f")}, {"line", number(3)}})})}});
}
std::string snapshot(std::vector<std::string> const& devices, std::vector<std::string> const& segments = {}) {
  return pickled(dict({{"segments", list(segments)}, {"device_traces", list(devices)}}));
}

std::string written(device_history const& h) {
  std::string out;
  constexpr char const* marks[] = {"+", "-", "!", "grow ", "trim ", "map ", "unmap "};
  for (auto const& e : h.events)
    out += marks[static_cast<int>(e.action)] + std::to_string(e.address) + ":" + std::to_string(e.bytes) + "@" +
           std::to_string(e.stream) + " ";
  return out;
}
std::string history(std::vector<std::string> const& entries, std::vector<std::string> const& segments = {}) {
  auto const found = read_torch_snapshot(snapshot({list(entries)}, segments));
  REQUIRE(found.size() == 1);
  return written(found[0]);
}
std::string refusal(std::string const& bytes) {
  try {
    read_torch_snapshot(bytes);
    return {};
  } catch (damaged_pickle const& e) {
    return e.what();
  }
}
std::string entries_refused(std::vector<std::string> const& entries, std::vector<std::string> const& segments = {}) {
  return refusal(snapshot({list(entries)}, segments));
}
bool mentions(std::string const& text, char const* part) { return text.find(part) != std::string::npos; }

TEST_CASE("a category is what the program said its memory is for, where the entry has none of its own") {
  auto const named = [](char const* category, char const* metadata) {
    return dict({{"action", text("alloc")},
                 {"addr", number(256)},
                 {"size", number(1)},
                 {"stream", number(0)},
                 {"category", text(category)},
                 {"user_metadata", text(metadata)}});
  };
  auto const category = [](std::string const& entry) {
    std::string const bytes = snapshot({list({entry})});
    return std::string(read_torch_snapshot(bytes).at(0).events.at(0).category);
  };
  CHECK(category(named("weights", "layer")) == "weights");
  CHECK(category(named("", "layer")) == "layer");
  CHECK(category(named("", "")).empty());
}

TEST_CASE("allocations, frees and segments come out in order, with their streams") {
  CHECK(history({entry("segment_alloc", 0, 2048), entry("alloc", 256, 100), entry("alloc", 512, 200, 7),
                 entry("free_requested", 256, 100), entry("free_completed", 256, 100), entry("alloc", 256, 50, 7),
                 entry("annotate", 512, 200), entry("segment_free", 0, 2048), entry("snapshot", 0, 0)}) ==
        "grow 0:2048@0 +256:100@0 +512:200@7 -256:100@0 +256:50@7 trim 0:2048@0 ");
  CHECK(history({entry("segment_map", 4096, 64, 7), entry("alloc", 4096, 1), entry("segment_unmap", 4096, 32),
                 entry("segment_map", 8192, 0)}) == "map 4096:64@7 +4096:1@0 unmap 4096:32@0 ");
}

TEST_CASE("a free counts when it is asked for, or when it is done if that was not recorded") {
  CHECK(history({entry("alloc", 256, 100), entry("free_requested", 256, 100), entry("alloc", 512, 1),
                 entry("free_completed", 256, 100)}) == "+256:100@0 -256:100@0 +512:1@0 ");
  CHECK(history({entry("alloc", 256, 100), entry("free_completed", 256, 100)}) == "+256:100@0 -256:100@0 ");
  CHECK(history({entry("free_completed", 256, 100), entry("alloc", 256, 1)}) == "+256:1@0 ");
}

TEST_CASE("what was live before the first entry is allocated at the start") {
  auto const block = [](std::uint64_t size, char const* state) {
    return dict({{"size", number(size)}, {"requested_size", number(size - 12)}, {"state", text(state)}});
  };
  auto const segment = [&](std::uint64_t device) {
    return dict({{"device", number(device)},
                 {"address", number(1024)},
                 {"stream", number(3)},
                 {"blocks", list({block(512, "active_allocated"), block(512, "inactive"),
                                  block(512, "active_allocated"), block(512, "active_pending_free")})}});
  };
  // 9000 is freed without having been allocated; 2048 and 1024 are in the segment, and 1024 is known from the entries.
  CHECK(history({entry("alloc", 1024, 500, 3), entry("free_requested", 9000, 40, 5)}, {segment(0), segment(1)}) ==
        "+2048:500@3 +9000:40@5 +1024:500@3 -9000:40@5 ");
}

TEST_CASE("each device has a history of its own, and devices without one are left out") {
  auto const found =
      read_torch_snapshot(snapshot({list({entry("alloc", 256, 1)}), list({}), list({entry("alloc", 256, 2)})}));
  REQUIRE(found.size() == 2);
  CHECK(found[0].device == 0);
  CHECK(found[1].device == 2);
  CHECK(written(found[1]) == "+256:2@0 ");
}

TEST_CASE("a segment is looked at for its own device alone") {
  std::vector<std::string> devices, segments;
  for (std::uint64_t i = 0; i < 60; ++i) {
    devices.push_back(list({entry("alloc", 256, 1)}));
    segments.push_back(
        dict({{"device", number(i)}, {"address", number(0)}, {"stream", number(0)}, {"blocks", list({})}}));
  }
  weir::detail::pickle_limits const limits{.values = 3000};  // 60 times 60 are more
  CHECK(read_torch_snapshot(snapshot(devices, segments), limits).size() == 60);
}

TEST_CASE("a small snapshot that holds one list in many places is refused before it is read for ever") {
  std::vector<std::string> const entries(20, entry("free_completed", 256, 100));
  auto const holding = [&](std::size_t places) {  // the list itself, remembered as number 0, and then as often
    std::string devices = list(entries) + std::string("q\0", 2);
    for (std::size_t i = 1; i < places; ++i) devices += std::string("h\0", 2);
    return pickled(dict({{"device_traces", "(" + devices + "l"}}));
  };
  weir::detail::pickle_limits const limits{.values = 1000};
  CHECK_THROWS_WITH_AS(static_cast<void>(read_torch_snapshot(holding(50), limits)),
                       doctest::Contains("holds no allocation"), damaged_pickle);  // 50 times 20 are read
  CHECK_THROWS_WITH_AS(static_cast<void>(read_torch_snapshot(holding(51), limits)),
                       doctest::Contains("device 50, entry 0: more entries and blocks than are read"), damaged_pickle);
}

TEST_CASE("histories of more devices than a machine has are refused") {
  std::vector<std::string> devices(4096, list({}));
  devices[4095] = list({entry("alloc", 256, 1)});
  CHECK(read_torch_snapshot(snapshot(devices)).at(0).device == 4095);
  devices.push_back(list({}));
  CHECK(mentions(refusal(snapshot(devices)), "'device_traces' has 4097 lists, one for each device; no machine has so"));
}

TEST_CASE("empty allocations are left out") {
  CHECK(history({entry("alloc", 256, 0), entry("free_requested", 256, 0), entry("alloc", 256, 3)}) == "+256:3@0 ");
}

TEST_CASE("a refusal has the bytes that were asked for, and what was written with it") {
  std::string const bytes = snapshot({list(
      {entry("alloc", 256, 3),
       dict({{"action", text("oom")}, {"device_free", number(5)}, {"size", number(9)}, {"report", text("full")}})})});
  auto const found = read_torch_snapshot(bytes);
  CHECK(written(found.at(0)) == "+256:3@0 !0:9@0 ");
  CHECK(found[0].events[1].report == "full");
}

TEST_CASE("a refusal has the stream that the file names") {
  CHECK(history({entry("alloc", 256, 3, 7), entry("oom", 0, 9, 8)}) == "+256:3@7 !0:9@8 ");
}

TEST_CASE("entries that cannot be are refused, with device and entry") {
  auto const good = entry("alloc", 256, 100);
  CHECK(mentions(entries_refused({good, good}), "device 0, entry 1: allocates 0x100, which is live"));
  CHECK(
      mentions(entries_refused({good, entry("free_requested", 256, 99)}), "entry 1: frees 99 B at 0x100; 100 B were"));
  CHECK(mentions(entries_refused({good, entry("free_requested", 256, 100), entry("free_requested", 256, 100)}),
                 "entry 2: frees 0x100, which is not live"));
  CHECK(mentions(entries_refused({good, entry("resize", 256, 100)}), "entry 1: action is 'resize'; it can be alloc"));
  CHECK(mentions(entries_refused({good, text("x")}), "entry 1: is no dict"));
  CHECK(mentions(entries_refused({dict({})}), "entry 0: has no text 'action'"));
  CHECK(mentions(entries_refused({dict({{"action", text("alloc")}, {"addr", text("x")}})}), "no whole number 'addr'"));
  CHECK(mentions(entries_refused({dict({{"action", text("alloc")}, {"addr", "J\xff\xff\xff\xff"}})}),
                 "no whole number 'addr'"));
  CHECK(mentions(entries_refused({dict({{"action", text("alloc")}, {"addr", number(1)}})}), "no whole number 'size'"));
  CHECK(mentions(entries_refused({good}, {text("x")}), "device 0: has no whole number 'device'"));
}

TEST_CASE("what holds no history is refused") {
  CHECK(mentions(refusal(pickled(list({}))), "there is no list 'device_traces'"));
  CHECK(mentions(refusal(pickled(dict({{"device_traces", text("x")}}))), "there is no list 'device_traces'"));
  CHECK(mentions(refusal(snapshot({})), "holds no allocation"));
  CHECK(mentions(refusal(snapshot({list({})})), "holds no allocation"));
  CHECK(mentions(refusal(snapshot({list({entry("segment_alloc", 256, 512)})})), "holds no allocation"));
  CHECK(mentions(refusal(snapshot({text("x")})), "device 0, entry 0: is no list"));
}

}  // namespace
