#include "../../python/src/graph_blocks.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <unordered_set>
#include <vector>

namespace {

using sized = graph_blocks::sized;

graph_blocks::pool_id const tree{0, {0, 1}}, another{0, {0, 2}};
constexpr std::size_t mib = std::size_t{1} << 20;

cudaStream_t stream(std::size_t number) { return reinterpret_cast<cudaStream_t>(number); }
void* at(std::size_t address) { return reinterpret_cast<void*>(address); }

block of_graphs(std::size_t size, std::size_t on = 1, bool is_kept = true) {
  return {size, stream(on), 0, true, is_kept};
}

/// A block of the tree that was allocated in a capture, and lives.
void add(graph_blocks& blocks, std::size_t address, std::size_t size, std::size_t on = 1) {
  blocks.add(tree, at(address), of_graphs(size, on));
}
std::vector<void*> pointers(std::vector<sized> const& of) {
  std::vector<void*> all;
  for (sized const& each : of) all.push_back(each.p);
  std::sort(all.begin(), all.end());
  return all;
}
std::size_t size_of(std::vector<sized> const& of, void* p) {
  for (sized const& each : of)
    if (each.p == p) return each.what.size;
  return 0;
}

}  // namespace

TEST_CASE("what no checkpoint keeps goes to weir when the program frees it") {
  graph_blocks blocks;
  add(blocks, 16, mib);
  CHECK(blocks.pool_of(at(16)) == tree);
  auto const made = blocks.free(at(16));
  REQUIRE(made);
  CHECK(made->size == mib);
  CHECK(made->stream == stream(1));
  CHECK(!blocks.pool_of(at(16)));
  CHECK(blocks.use_again(tree, of_graphs(mib)) == nullptr);
  CHECK(blocks.live_are(tree, {}));
  CHECK(blocks.surplus_of(0).bytes == 0);
}

TEST_CASE("what a checkpoint keeps is a later graph's, and goes to weir after the last checkpoint") {
  graph_blocks blocks;
  add(blocks, 16, mib);
  auto const first = blocks.remember(tree), second = blocks.remember(tree);
  CHECK(!blocks.free(at(16)));
  CHECK(blocks.pool_of(at(16)) == tree);
  CHECK(blocks.surplus_of(0).bytes == mib);
  CHECK(blocks.surplus_of(0).blocks == 1);
  CHECK(blocks.use_again(tree, of_graphs(mib)) == at(16));
  CHECK(blocks.use_again(tree, of_graphs(mib)) == nullptr);
  CHECK(blocks.surplus_of(0).blocks == 0);
  CHECK(blocks.forget(tree, first).empty());
  CHECK(!blocks.free(at(16)));
  CHECK(pointers(blocks.forget(tree, second)) == std::vector<void*>{at(16)});
  CHECK(blocks.surplus_of(0).bytes == 0);
  CHECK(blocks.surplus_of(0).blocks == 0);
  CHECK(!blocks.pool_of(at(16)));

  add(blocks, 32, mib);
  auto const third = blocks.remember(tree);
  CHECK(blocks.forget(tree, third).empty());  // it lives
  CHECK(blocks.free(at(32)));
}

TEST_CASE("a request gets the smallest kept block of its stream that does, and none that is much too large") {
  graph_blocks blocks;
  for (std::size_t const size : {9U, 1U, 8U, 3U}) add(blocks, size, size * mib);
  add(blocks, 2, 2 * mib, 2);
  auto const kept = blocks.remember(tree);
  for (sized const& each : kept) blocks.free(each.p);
  CHECK(blocks.use_again(tree, of_graphs(2 * mib)) == at(3));
  CHECK(blocks.surplus_of(0).bytes == (9 + 1 + 8 + 1 + 2) * mib);
  CHECK(blocks.use_again(tree, of_graphs(2 * mib)) == at(8));
  CHECK(blocks.use_again(tree, of_graphs(mib)) == at(1));
  CHECK(blocks.use_again(tree, of_graphs(mib)) == nullptr);          // the one of 9 MiB is too large
  CHECK(blocks.use_again(tree, of_graphs(9 * mib + 1)) == nullptr);  // nor that of another stream
  CHECK(blocks.use_again(tree, of_graphs(2 * mib, 2)) == at(2));     // of its stream
  CHECK(blocks.use_again(another, of_graphs(9 * mib)) == nullptr);   // it is no other pool's
  CHECK(blocks.use_again(tree, of_graphs(9 * mib / 8)) == at(9));
}

TEST_CASE("small requests get kept blocks up to a page") {
  graph_blocks blocks;
  add(blocks, 16, 4096);
  add(blocks, 32, 4097);
  auto const kept = blocks.remember(tree);
  for (sized const& each : kept) blocks.free(each.p);
  CHECK(blocks.use_again(tree, of_graphs(1)) == at(16));
  CHECK(blocks.use_again(tree, of_graphs(1)) == nullptr);
}

TEST_CASE("no later graph has what no capture allocated, or what other streams used") {
  graph_blocks blocks;
  blocks.add(tree, at(16), of_graphs(mib, 1, false));
  add(blocks, 32, mib);
  add(blocks, 48, mib);
  auto const kept = blocks.remember(tree);
  blocks.record_stream(at(32));
  blocks.record_stream(at(64));  // no block of a pool of graphs
  for (sized const& each : kept) blocks.free(each.p);
  CHECK(blocks.use_again(tree, of_graphs(mib)) == at(48));
  CHECK(blocks.use_again(tree, of_graphs(mib)) == nullptr);
  CHECK(pointers(blocks.forget(tree, kept)) == std::vector<void*>{at(16), at(32)});
}

TEST_CASE("a pool is set back to what was live") {
  graph_blocks blocks;
  add(blocks, 16, 2 * mib);
  add(blocks, 32, mib);
  auto const first = blocks.remember(tree);
  blocks.free(at(16));
  CHECK(blocks.use_again(tree, of_graphs(mib)) == at(16));
  add(blocks, 48, mib);
  auto const second = blocks.remember(tree);
  CHECK(size_of(second, at(16)) == mib);
  add(blocks, 64, mib);  // in no checkpoint
  CHECK(blocks.live_are(tree, {at(16), at(32), at(48), at(64)}));

  auto const back = blocks.set_back(tree, first);
  CHECK(pointers(back.were_live) == std::vector<void*>{at(16), at(32), at(48), at(64)});
  CHECK(pointers(back.given_back) == std::vector<void*>{at(64)});
  CHECK(blocks.live_are(tree, {at(16), at(32)}));
  CHECK(!blocks.live_are(tree, {at(16), at(48)}));
  CHECK(!blocks.live_are(tree, {at(16)}));
  CHECK(!blocks.live_are(tree, {at(16), at(32), at(48)}));
  CHECK(size_of(blocks.remember(tree), at(16)) == 2 * mib);
  CHECK(blocks.surplus_of(0).bytes == mib);  // what is kept at 48

  auto const forth = blocks.set_back(tree, second);
  CHECK(forth.given_back.empty());
  CHECK(blocks.live_are(tree, {at(16), at(32), at(48)}));
  CHECK(blocks.surplus_of(0).bytes == mib);  // of the block at 16, which is used in part
  CHECK(blocks.use_again(tree, of_graphs(mib)) == nullptr);
}

TEST_CASE("random trees of graphs: live blocks never share memory, and all is given back once") {
  std::mt19937 random(5);
  auto const below = [&](std::size_t n) { return std::size_t{random()} % n; };
  graph_blocks blocks;
  std::unordered_set<void*> held;  // by weir's count
  std::vector<std::vector<sized>> checkpoints;
  std::vector<void*> live;
  auto const give_back = [&](void* p) { CHECK(held.erase(p) == 1); };
  std::size_t next = 16;
  for (int step = 0; step < 20000; ++step) {
    std::size_t const what = below(100);
    if (what < 45) {
      std::size_t const size = (1 + below(16)) * 4096;
      void* p = blocks.use_again(tree, of_graphs(size, 1 + below(2)));
      if (p == nullptr) {
        p = at(next += 16);
        held.insert(p);
        blocks.add(tree, p, of_graphs(size, 1 + below(2), below(4) != 0));
      }
      CHECK(std::find(live.begin(), live.end(), p) == live.end());
      live.push_back(p);
    } else if (what < 90 && !live.empty()) {
      std::swap(live[below(live.size())], live.back());
      void* const p = live.back();
      live.pop_back();
      if (blocks.free(p)) give_back(p);
    } else if (what < 94) {
      checkpoints.push_back(blocks.remember(tree));
    } else if (what < 97 && !checkpoints.empty()) {
      auto const& wanted = checkpoints[below(checkpoints.size())];
      for (sized const& each : blocks.set_back(tree, wanted).given_back) give_back(each.p);
      live = pointers(wanted);
    } else if (!checkpoints.empty()) {
      std::swap(checkpoints[below(checkpoints.size())], checkpoints.back());
      for (sized const& each : blocks.forget(tree, checkpoints.back())) give_back(each.p);
      checkpoints.pop_back();
    }
    CHECK(blocks.live_are(tree, {live.begin(), live.end()}));
    CHECK(blocks.surplus_of(0).blocks == held.size() - live.size());
  }
  for (void* const p : live)
    if (blocks.free(p)) give_back(p);
  for (auto const& each : checkpoints)
    for (sized const& ended : blocks.forget(tree, each)) give_back(ended.p);
  CHECK(held.empty());
  CHECK(blocks.surplus_of(0).bytes == 0);
}
