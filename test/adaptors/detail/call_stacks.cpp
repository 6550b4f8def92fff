// needs: tsan
#include <weir/adaptors/detail/call_stacks.hpp>

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

using weir::detail::call_stack_id;
using weir::detail::call_stacks;

namespace {

[[gnu::noinline]] call_stack_id one_place(call_stacks& stacks) {
  call_stack_id const id = stacks.here();
  asm volatile("" ::: "memory");  // not a tail call
  return id;
}

/// A stack that differs from others in its depth alone.
[[gnu::noinline]] call_stack_id at_depth(call_stacks& stacks, int depth) {
  call_stack_id const id = depth == 0 ? stacks.here() : at_depth(stacks, depth - 1);
  asm volatile("" ::: "memory");
  return id;
}

}  // namespace

TEST_CASE("a place has a number, the same each time, and no other place has it") {
  call_stacks stacks(16);
  std::set<call_stack_id> from_loop;
  int const volatile three = 3;  // or compilers unroll the loop into several places
  for (int i = 0; i < three; ++i) from_loop.insert(one_place(stacks));
  CHECK(from_loop.size() == 1);
  CHECK(*from_loop.begin() != 0);
  call_stack_id const elsewhere = one_place(stacks);
  CHECK(from_loop.count(elsewhere) == 0);
}

TEST_CASE("as many frames are kept as are asked for, and no more than there is room for") {
  call_stacks shallow(1), deep(4), deepest(1000);
  CHECK(shallow.lines_of(at_depth(shallow, 10)).size() == 1);
  CHECK(deep.lines_of(at_depth(deep, 10)).size() == 4);
  auto const all = deepest.lines_of(at_depth(deepest, 100));
  CHECK(all.size() == call_stacks::most_frames);
}

TEST_CASE("stacks that differ beyond the frames that are kept are one") {
  call_stacks stacks(4);
  CHECK(at_depth(stacks, 20) == at_depth(stacks, 30));
  CHECK(at_depth(stacks, 1) != at_depth(stacks, 2));
}

TEST_CASE("without frames there is no stack") {
  call_stacks stacks(0);
  CHECK(one_place(stacks) == 0);
  CHECK(stacks.lines_of(0).empty());
}

TEST_CASE("a line names the program, and has neither its folder nor a line break") {
  call_stacks stacks(8);
  for (std::string const& line : stacks.lines_of(one_place(stacks))) {
    CHECK(line.find('\n') == std::string::npos);
    CHECK(line.substr(0, line.find('(')).find('/') == std::string::npos);
    CHECK(line.find("[0x") == std::string::npos);
  }
}

TEST_CASE("many stacks from many threads are told apart") {
  call_stacks stacks(40);
  constexpr int threads = 4, depths = 30;
  std::vector<std::vector<call_stack_id>> found(threads);
  std::vector<std::thread> running;
  for (auto& mine : found)
    running.emplace_back([&] {
      int const volatile rounds = 3;
      for (int round = 0; round < rounds; ++round)
        for (int depth = 0; depth < depths; ++depth) mine.push_back(at_depth(stacks, depth));
    });
  for (auto& thread : running) thread.join();
  for (auto const& mine : found) {
    CHECK(std::set<call_stack_id>(mine.begin(), mine.end()).size() == depths);
    CHECK(mine == found[0]);
  }
}
