#include <weir/pool/heap/slab_lists.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <vector>

using namespace weir::detail;

namespace {

struct drop {
  void operator()(slab* gone) const { slab::drop(gone); }
};
using owned_slab = std::unique_ptr<slab, drop>;

constexpr unsigned small = 0, larger = 3;
constexpr list_id list_1{1}, list_2{2};
std::uint32_t const any_record = slab::record_of(slot_class::size(small), 1, 8);

/// Nobody looks into memory: each has addresses of its own.
owned_slab make(list_id owner, unsigned size_class, std::uint32_t slots = 2) {
  static std::uintptr_t begin = std::uintptr_t{1} << 30;
  owned_slab made(slab::make(begin += slab::most_bytes, size_class, slots));
  REQUIRE(made != nullptr);
  made->owner = owner;
  return made;
}

struct open_lists : slab_lists {
  open_lists() {
    reserve(3);
    open(list_1);
    open(list_2);
  }
  std::set<slab*> whole() {
    std::set<slab*> found;
    for_each_whole([&](slab& s) { found.insert(&s); });
    return found;
  }
};

}  // namespace

TEST_CASE("a slab with a free slot is at hand for its owner and class, and for nobody else") {
  open_lists lists;
  owned_slab const s = make(list_1, small);
  CHECK(lists.with_free(list_1, small) == nullptr);
  lists.add(*s);
  CHECK(lists.with_free(list_1, small) == s.get());
  CHECK(lists.with_free(list_1, larger) == nullptr);
  CHECK(lists.with_free(list_2, small) == nullptr);
  lists.unlink(*s);
  CHECK(lists.with_free(list_1, small) == nullptr);
  lists.link(*s);
  lists.remove(*s);
  CHECK(lists.with_free(list_1, small) == nullptr);
}

TEST_CASE("slots are counted by owner and class, as long as their slabs are there") {
  open_lists lists;
  owned_slab const one = make(list_1, small, 10), two = make(list_1, small, 20), other = make(list_1, larger, 5);
  for (slab* const s : {one.get(), two.get(), other.get()}) lists.add(*s);
  CHECK(lists.slot_count(list_1, small) == 30);
  CHECK(lists.slot_count(list_1, larger) == 5);
  CHECK(lists.slot_count(list_2, small) == 0);
  lists.remove(*one);
  CHECK(lists.slot_count(list_1, small) == 20);
  CHECK(lists.is_owner(list_1));
  lists.remove(*two);
  lists.remove(*other);
  CHECK_FALSE(lists.is_owner(list_1));
}

TEST_CASE("one whole slab is kept for each owner and class, and may go while all are looked at") {
  open_lists lists;
  owned_slab const first = make(list_1, small), second = make(list_1, small), third = make(list_2, larger);
  for (slab* const s : {first.get(), second.get(), third.get()}) lists.add(*s);
  CHECK(lists.whole() == std::set<slab*>{second.get(), third.get()});
  CHECK_FALSE(slab_lists::is_only_one(*first));
  CHECK(slab_lists::is_only_one(*third));
  lists.for_each_whole([&](slab& s) { lists.remove(s); });
  CHECK(lists.whole().empty());
  CHECK_FALSE(lists.is_owner(list_2));
  lists.keep_whole(*first);
  CHECK(lists.whole() == std::set<slab*>{first.get()});
}

TEST_CASE("a list is awaited as long as some slab waits for it") {
  open_lists lists;
  lists.await(list_2);
  lists.await(list_2);
  lists.end_await(list_2);
  CHECK(lists.is_awaited(list_2));
  CHECK_FALSE(lists.is_awaited(list_1));
  lists.end_await(list_2);
  CHECK_FALSE(lists.is_awaited(list_2));
}

TEST_CASE("an open list takes host memory until it is closed") {
  open_lists lists;
  std::size_t const two = lists.host_bytes();
  lists.open(list_1);  // it is
  CHECK(lists.host_bytes() == two);
  lists.close(list_1);
  std::size_t const one = lists.host_bytes();
  CHECK(one < two);
  lists.close(list_1);
  CHECK(lists.host_bytes() == one);
  lists.close(list_2);
  CHECK(two - one == one - lists.host_bytes());
}

TEST_CASE("after any number of slabs came and went, each list has those that it should have") {
  std::mt19937 random(1);
  auto const below = [&](std::size_t n) { return random() % n; };
  open_lists lists;
  lists.reserve(9);
  for (std::uint16_t list = 1; list < 9; ++list) lists.open(list_id{list});
  std::vector<owned_slab> all;
  for (int step = 0; step < 5000; ++step) {
    if (all.size() < 20 || (all.size() < 60 && below(2) == 0)) {
      all.push_back(make(list_id{static_cast<std::uint16_t>(1 + below(8))}, small));
      lists.add(*all.back());
    } else if (std::size_t const at = below(all.size()); below(2) == 0) {
      lists.remove(*all[at]);
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(at));
    } else if (all[at]->has_free()) {
      all[at]->take(any_record);
      if (!all[at]->has_free()) lists.unlink(*all[at]);
    }
    std::set<list_id> owners;  // each is named once
    CHECK_FALSE(lists.any_owner([&](list_id owner) { return !owners.insert(owner).second; }));
    for (std::uint16_t number = 1; number < 9; ++number) {
      list_id const list{number};
      std::set<slab*> with_free, linked;
      std::size_t slots = 0;
      for (owned_slab const& s : all) {
        if (s->owner != list) continue;
        slots += s->slot_count();
        if (s->has_free()) with_free.insert(s.get());
      }
      for (slab* s = lists.with_free(list, small); s != nullptr; s = s->next) REQUIRE(linked.insert(s).second);
      REQUIRE(linked == with_free);
      REQUIRE(lists.slot_count(list, small) == slots);
      REQUIRE(lists.is_owner(list) == (slots != 0));
      REQUIRE(owners.contains(list) == (slots != 0));
    }
  }
}
