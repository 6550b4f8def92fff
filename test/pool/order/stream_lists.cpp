#include <weir/pool/order/stream_lists.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>

using namespace weir::detail;

namespace {

using lists = stream_lists<>;

struct open_lists : lists {
  open_lists() { add(12); }
  list_id open(std::uint64_t key) {
    bool opened = false;
    list_id const list = find_or_open(key, opened);
    REQUIRE(opened);
    return list;
  }
};

}  // namespace

TEST_CASE("a stream keeps its free list until it is closed") {
  open_lists l;
  list_id const a = l.open(100), b = l.open(200);
  CHECK(a != shared);
  CHECK(a != b);
  bool opened = true;
  CHECK(l.find_or_open(100, opened) == a);
  CHECK_FALSE(opened);
  CHECK(l.find(200) == b);
  CHECK(l.find(300) == shared);
  CHECK(l.open_count() == 2);
  l.close(a);
  CHECK(l.find(100) == shared);
  CHECK_FALSE(l.is_open(a));
  CHECK(l.key(b) == 200);
  CHECK(l.valid());
}

// The cache goes by a key's low half.
constexpr std::uint64_t with_the_same_place(std::uint64_t i) { return i << 32 | 5; }

TEST_CASE("keys that share a place in the cache are told apart") {
  open_lists l;
  std::map<std::uint64_t, list_id> by_key;
  for (std::uint64_t i = 0; i < 12; ++i) by_key[with_the_same_place(i)] = l.open(with_the_same_place(i));
  for (int round = 0; round < 2; ++round)
    for (auto const& [key, list] : by_key) CHECK(l.find(key) == list);
}

TEST_CASE("four keys that share a place in the cache are known at once, until their free lists are closed") {
  open_lists l;
  std::map<std::uint64_t, list_id> by_key;
  for (std::uint64_t i = 0; i < 4; ++i) by_key[with_the_same_place(i)] = l.open(with_the_same_place(i));
  while (!by_key.empty()) {
    for (auto const& [key, list] : by_key) CHECK(l.find_cached(key) == list);
    auto const [key, list] = *by_key.begin();
    by_key.erase(key);
    l.close(list);
    CHECK(l.find_cached(key) == shared);
  }
  // Their places are free again.
  for (std::uint64_t i = 4; i < 8; ++i) by_key[with_the_same_place(i)] = l.open(with_the_same_place(i));
  for (auto const& [key, list] : by_key) CHECK(l.find_cached(key) == list);
}

TEST_CASE("of five keys that share a place in the cache, the one that was forgotten is known when it comes again") {
  open_lists l;
  std::map<std::uint64_t, list_id> by_key;
  for (std::uint64_t i = 0; i < 5; ++i) by_key[with_the_same_place(i)] = l.open(with_the_same_place(i));
  CHECK(l.find_cached(with_the_same_place(4)) == by_key[with_the_same_place(4)]);
  for (int round = 0; round < 3; ++round) {
    std::uint64_t forgotten = 0;
    for (auto const& [key, list] : by_key)
      if (list_id const known = l.find_cached(key); known != list) {
        CHECK(known == shared);
        CHECK(forgotten == 0);
        forgotten = key;
      }
    REQUIRE(forgotten != 0);
    bool opened = true;
    CHECK(l.find_or_open(forgotten, opened) == by_key[forgotten]);
    CHECK_FALSE(opened);
    CHECK(l.find_cached(forgotten) == by_key[forgotten]);
  }
}

TEST_CASE("without a spare free list there is no free list, and adding makes some") {
  open_lists l;
  for (std::uint64_t key = 1; key <= 12; ++key) l.open(key);
  bool opened = true;
  CHECK(l.find_or_open(13, opened) == shared);
  CHECK_FALSE(opened);
  l.add(1);
  CHECK(l.find_or_open(13, opened) != shared);
  CHECK(opened);
  CHECK(l.count() == 14);
}

TEST_CASE("as many free lists as there can be are each found by their key, also after others closed") {
  lists l;
  for (std::size_t more = 1; l.count() < lists::most; more *= 2) l.add(more);
  l.add(lists::most);
  REQUIRE(l.count() == lists::most);
  bool opened = false;
  std::set<list_id> opened_lists;
  for (std::uint64_t key = 1; key < lists::most; ++key) opened_lists.insert(l.find_or_open(key, opened));
  CHECK(opened_lists.size() == lists::most - 1);
  CHECK(l.find_or_open(lists::most, opened) == shared);
  for (std::uint64_t key = 1; key < lists::most; key += 2) l.close(l.find(key));
  for (std::uint64_t key = 1; key < lists::most; ++key) {
    list_id const list = l.find(key);
    REQUIRE(key % 2 == (list == shared));
    if (list != shared) REQUIRE(l.key(list) == key);
  }
  CHECK(l.find_or_open(lists::most, opened) != shared);
  CHECK(opened);
  CHECK(l.valid());
}
