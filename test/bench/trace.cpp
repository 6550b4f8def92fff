#include "../../bench/replay/trace.hpp"

#include <doctest/doctest.h>
#include <support/memory_file.hpp>

#include <stdexcept>
#include <string>

using weir::test::memory_file;

namespace {

char const* const header = "Thread,Time,Action,Pointer,Size,Stream\n";

/// Traces are read by path.
memory_file log_of(std::string const& lines) { return memory_file(header + lines); }

bench::trace read(std::string const& lines) {
  auto const found = bench::read_traces(log_of(lines).path());
  REQUIRE(found.size() == 1);
  return found[0];
}

/// Why a log is not read; empty if it is.
std::string refusal(std::string const& lines, std::size_t max_bytes = bench::most_trace_bytes) {
  try {
    bench::read_traces(log_of(lines).path(), max_bytes);
    return {};
  } catch (std::runtime_error const& e) {
    return e.what();
  }
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

TEST_CASE("a log with a tag behind each line is read like one without") {
  memory_file const file(
      "Thread,Time,Action,Pointer,Size,Stream,Tag\n"
      "7,now,allocate,0x100,10,0x51,\n"
      "7,now,allocate,0x200,20,0x52,\"decoder, first\"\n"
      "8,now,free,0x100,10,0x51,decoder\n");
  auto const found = bench::read_traces(file.path());
  REQUIRE(found.size() == 1);
  REQUIRE(found[0].events.size() == 3);
  CHECK(found[0].streams == 2);
  CHECK(found[0].peak() == 30);
}

TEST_CASE("a log that an editor marked as UTF-8 is read like one without the mark") {
  memory_file const marked(std::string("\xef\xbb\xbf") + header + "7,now,allocate,0x100,10,0x51\n");
  CHECK(bench::read_traces(marked.path()).size() == 1);
}

TEST_CASE("a line has as many fields as its header says") {
  CHECK(refusal("1,now,allocate,0x100,10,0x51,tag\n").find(":2: has 7 fields; 6 are needed") != std::string::npos);
  memory_file const file("Thread,Time,Action,Pointer,Size,Stream,Tag\n1,now,allocate,0x100,10,0x51\n");
  CHECK_THROWS_WITH_AS(
      bench::read_traces(file.path()),
      (file.path() + ":2: has 6 fields; 7 are needed: Thread,Time,Action,Pointer,Size,Stream,Tag").c_str(),
      bench::damaged_trace);
}

TEST_CASE("a line that asked for nothing is still looked at") {
  CHECK_THROWS_AS(read("1,now,allocate,nothing,0,0x51\n"), bench::damaged_trace);
}

TEST_CASE("why a log is refused is safe to print, whatever the log holds") {
  std::string const why = refusal("1,now,\x1b[2J,0x100,10,0x51\n");
  CHECK(why.find(":2: action is '\\x1b[2J'; it can be allocate, free or allocate failure") != std::string::npos);
  std::string const of_long_field = refusal("1,now," + std::string(100'000, 'x') + ",0x100,10,0x51\n");
  CHECK(of_long_field.find("action is '" + std::string(40, 'x') + "'") != std::string::npos);
}

TEST_CASE("a log is read up to as many bytes as are allowed, and not one more") {
  std::string const line = "1,now,allocate,0x100,10,0x51\n";
  std::size_t const bytes = std::string(header).size() + line.size();
  CHECK(refusal(line, bytes) == "");
  std::string const why = refusal(line, bytes - 1);
  CHECK(why.find("more than the " + std::to_string(bytes - 1) + " bytes that are read") != std::string::npos);
}
