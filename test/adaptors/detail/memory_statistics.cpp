#include <weir/adaptors/detail/memory_statistics.hpp>

#include <doctest/doctest.h>

#include <sstream>

using weir::counter;
using weir::memory_statistics;

TEST_CASE("a counter knows what is there, what was, and the most there was at one time") {
  counter c;
  c.add(10);
  c.add(5);
  c.take_off(12);
  c.add(4);
  CHECK(c.current == 7);
  CHECK(c.peak == 15);
  CHECK(c.total == 19);
  CHECK(c.given_back() == 12);
}

TEST_CASE("what was there before may be taken off: current goes below zero, the peak does not") {
  counter c;
  c.take_off(100);
  CHECK(c.current == -100);
  CHECK(c.peak == 0);
  c.add(60);
  CHECK(c.peak == 0);
  c.add(50);
  CHECK(c.peak == 10);
  CHECK(c.given_back() == 100);
}

TEST_CASE("requested bytes are exact and allocated bytes are rounded up to 256") {
  memory_statistics s;
  s.add(1, 1);
  s.add(257, 257);
  CHECK(s.requested.current == 258);
  CHECK(s.allocated.current == 256 + 512);
  CHECK(s.allocations.current == 2);
  s.take_off(257, 257);
  CHECK(s.requested == counter{1, 258, 258});
  CHECK(s.allocated == counter{256, 768, 768});
  CHECK(s.allocations == counter{1, 2, 2});
}

TEST_CASE("peaks start again from what is live") {
  memory_statistics s;
  s.add(1000, 1000);
  s.add(1000, 1000);
  s.take_off(1000, 1000);
  s.reset_peaks();
  CHECK(s.requested == counter{1000, 1000, 2000});
  CHECK(s.allocated == counter{1024, 1024, 2048});
  CHECK(s.allocations == counter{1, 1, 2});
}

TEST_CASE("the summary is a table of equally long lines that fit a terminal") {
  memory_statistics s;
  s.add(std::size_t{3} << 30, std::size_t{3} << 30);
  s.take_off(std::size_t{1} << 30, std::size_t{1} << 30);
  s.failures = 3;
  std::string const text = s.summary("two lines");
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  CHECK(line == "two lines   failures 3");
  int rows = 0;
  while (std::getline(lines, line)) {
    ++rows;
    CHECK(line.size() == 72);
    CHECK(line.front() == '|');
    CHECK(line.back() == '|');
  }
  CHECK(rows == 4);
  CHECK(text.find("| Requested    |    2.00 GiB |    3.00 GiB |    3.00 GiB |    1.00 GiB |\n") != std::string::npos);
}

TEST_CASE("a negative balance is printed with its sign") {
  memory_statistics s;
  s.take_off(2048, 2048);
  CHECK(s.summary().find("|   -2.00 KiB |") != std::string::npos);
}

TEST_CASE("what was taken off and is put back was there all the time, beside what came meanwhile") {
  memory_statistics s;
  s.add(1000, 1024);
  s.take_off(1000, 1024);
  s.add(1500, 1536);
  s.put_back(1000, 1024);
  CHECK(s.requested.current == 2500);
  CHECK(s.requested.peak == 2500);
  CHECK(s.allocated.peak == 2560);
  CHECK(s.allocations.peak == 2);
  CHECK(s.requested.total == 2500);
}
