// How what comes back is taken again is tested in stream_ordered_heap.cpp.
#include <weir/pool/ordered_frees.hpp>

#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "support/small_blocks_of_a_segment.hpp"

using namespace weir;
using namespace weir::test;
using detail::block_id;
using detail::unit_bytes;

TEST_CASE_FIXTURE(reuse_of_a_segment, "a live block is found by what it was allocated with, and by nothing else") {
  block_id const id = ready(a, 20);
  char* const p = reinterpret_cast<char*>(reuse[id].address());
  CHECK(reuse.find_live(p, 20 * unit_bytes, unit_bytes) == id);
  CHECK(reuse.find_live(p, 20 * unit_bytes - 1, unit_bytes) == 0);
  CHECK(reuse.find_live(p, 20 * unit_bytes, 128) == 0);
  CHECK(reuse.find_live(p + 1, 20 * unit_bytes, unit_bytes) == 0);
  CHECK(reuse.find_block(p));
  reuse.give(id, who(a));
  CHECK(reuse.find_live(p, 20 * unit_bytes, unit_bytes) == 0);
  CHECK_FALSE(reuse.find_block(p));
}

TEST_CASE_FIXTURE(reuse_of_a_segment, "a live block of a capture is found by who asks for any") {
  detail::stream_identity const capturing = who(a, 77);
  reuse.enter_capture(capturing);
  block_id const id = reuse.take_ready(capturing, units(20));
  reuse.keep_for_capture(id, capturing);
  void* const p = reinterpret_cast<void*>(reuse[id].address());
  CHECK(reuse.find_live(p, 20 * unit_bytes, unit_bytes) == 0);
  CHECK(reuse.find_any_live(p, 20 * unit_bytes, unit_bytes) == id);
}

TEST_CASE_FIXTURE(reuse_of_a_segment, "what is wrong with a free is said: its size, its place, or its pool") {
  block_id const id = ready(a, 20);
  char* const p = reinterpret_cast<char*>(reuse[id].address());
  auto const says = [&](void* at, std::size_t bytes, bool inside, char const* words) {
    return reuse.misuse(at, bytes, 64, inside).find(words) != std::string::npos;
  };
  CHECK(says(p, 700, true, "with 700 B aligned to 64: it was allocated with 5120 B aligned to 256"));
  CHECK(says(p + 256, 700, true, "no live block starts there"));
  CHECK(says(p + 256, 700, false, "it is not this pool's memory"));
}

TEST_CASE_FIXTURE(reuse_of_a_segment, "a block that two streams have used is free when both are done") {
  block_id const id = ready(a, 100);
  free_behind_work(a, b, id);
  CHECK(done(c, 100) == 0);
  a.finish();
  CHECK(done(c, 100) == 0);
  b.finish();
  CHECK(done(c, 100) == id);
}

TEST_CASE_FIXTURE(reuse_of_a_segment, "a stream that may end frees by its handle alone once CUDA was asked about it") {
  block_id const first = ready(a, 20), second = ready(a, 20), third = ready(a, 20);
  CHECK(reuse.give_unasked(first, a) == 0);  // who is that?
  reuse.give(first, who(a));
  sim::reset_counters();
  CHECK(reuse.give_unasked(second, a) != 0);
  CHECK(sim::calls("cudaStreamGetId") == 0);
  CHECK(reuse.give_unasked(third, b) == 0);
}

TEST_CASE_FIXTURE(small_blocks_of_a_segment, "a slot is found as it was asked for") {
  void* const p = slot(s);
  CHECK(reuse.find_block(p).bytes == size * unit_bytes);
  CHECK(reuse.find_block(p).alignment == unit_bytes);
  for (std::size_t const alignment :
       {std::size_t{0}, std::size_t{3}, std::size_t{512}, std::size_t{1} << 32, std::size_t{1} << 40})
    CHECK_FALSE(reuse.find_slot(p, size * unit_bytes, alignment));
  CHECK_FALSE(reuse.find_slot(p, size * unit_bytes - 1, unit_bytes));
  CHECK(reuse.find_live(p, size * unit_bytes, unit_bytes) == 0);
  give(s, p);
  CHECK_FALSE(reuse.find_block(p));
  CHECK(small(s) == p);
}

TEST_CASE_FIXTURE(small_blocks_of_a_segment, "the block that a slab is has no name that a free could give") {
  std::vector<void*> all{slot(s)};
  while (void* const p = small(s)) all.push_back(p);
  void* const first = *std::min_element(all.begin(), all.end());
  give(s, first);
  CHECK_FALSE(reuse.find_block(first));
  for (std::size_t const bytes : {std::size_t{0}, size * unit_bytes, ~std::size_t{0}})
    for (std::size_t const alignment : {1u, 256u}) CHECK(reuse.find_live(first, bytes, alignment) == 0);
}

TEST_CASE_FIXTURE(reuse_of_a_segment, "how a live block was asked for can be noted anew") {
  block_id const id = ready(a, 20);
  void const* const p = reinterpret_cast<void*>(reuse[id].address());
  CHECK(reuse.find_asked(p).bytes == 20 * unit_bytes);
  CHECK(reuse.find_asked(p).block_bytes == 20 * unit_bytes);
  reuse.set_asked(p, 5000, 7);
  CHECK(reuse.find_asked(p).bytes == 5000);
  CHECK(reuse.find_asked(p).alignment_log == 7);
  CHECK(reuse.find_block(p).bytes == 5000);
  CHECK(reuse.find_block(p).alignment == 128);
  CHECK(reuse.find_asked(static_cast<std::byte const*>(p) + 256).bytes == 0);
}

TEST_CASE_FIXTURE(reuse_of_a_segment, "what is freed on a list that is kept is that stream's, and then everyone's") {
  stream const lasting;
  block_id const id = ready(lasting, 20);
  void* const p = reinterpret_cast<void*>(reuse[id].address());
  CHECK(reuse.keep_list(who(a)) == detail::shared);  // that may end
  detail::list_id const list = reuse.keep_list(who(lasting));
  REQUIRE(list != detail::shared);
  CHECK(reuse.give_small(p, list));
  CHECK(ready(a, 100) == 0);
  CHECK(ready(lasting, 20) == id);
  CHECK(reuse.give_small(p, list));
  reuse.release_list(list);
  CHECK(done(a, 100) == 0);  // asks for the first time
  lasting.synchronize();
  CHECK(done(a, 100) != 0);
}
