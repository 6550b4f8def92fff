#include "../../bench/trace.hpp"

#include <doctest/doctest.h>

#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace {

// Traces are read by path.
bench::trace read(std::string const& lines) {
  std::string const text = "Thread,Time,Action,Pointer,Size,Stream\n" + lines;
  int const file = ::memfd_create("log", MFD_CLOEXEC);
  REQUIRE(::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  auto const found = bench::read_traces("/proc/self/fd/" + std::to_string(file));
  ::close(file);
  REQUIRE(found.size() == 1);
  return found[0];
}

}  // namespace

TEST_CASE("streams and threads are numbered by first appearance") {
  bench::trace const t = read(
      "7,now,allocate,0x100,10,0x51\n"
      "8,now,allocate,0x200,20,0x52\n"
      "8,now,free,0x100,10,0x51\n");
  REQUIRE(t.events.size() == 3);
  CHECK(t.streams == 2);
  CHECK(t.threads == 2);
  CHECK(t.events[1].stream == 1);
  CHECK(t.events[2].stream == 0);
  CHECK(t.events[2].thread == 1);
  CHECK(t.peak() == 30);
}

TEST_CASE("what asked for nothing, gave nothing back or failed takes no number of a stream or a thread") {
  bench::trace const t = read(
      "1,now,allocate,0x0,0,0x51\n"
      "2,now,free,0x0,0,0x52\n"
      "3,now,allocate failure,0x0,10,0x53\n"
      "4,now,allocate,0x100,10,0x54\n");
  REQUIRE(t.events.size() == 1);
  CHECK(t.events[0].stream == 0);
  CHECK(t.events[0].thread == 0);
  CHECK(t.streams == 1);
  CHECK(t.threads == 1);
}

TEST_CASE("a line that asked for nothing is still looked at") {
  CHECK_THROWS_AS(read("1,now,allocate,nothing,0,0x51\n"), bench::damaged_trace);
}
