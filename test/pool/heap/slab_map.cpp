#include <weir/pool/heap/slab_map.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <vector>

using namespace weir::detail;

namespace {

constexpr std::uintptr_t base = 0x7f00'0000'0000u, page = slab::page_bytes, leaf = slab_map::leaf_span;

struct drop {
  void operator()(slab* gone) const { slab::drop(gone); }
};
using owned = std::unique_ptr<slab, drop>;

/// Of slots of a quarter of a page.
owned quarters(std::uintptr_t begin, std::uint32_t slots) {
  return owned(slab::make(begin, slot_class::of(page / 4 / unit_bytes), slots));
}

}  // namespace

TEST_CASE("a slab is found by every address in its pages, and by no other") {
  slab_map map;
  CHECK(map.find(base).in() == nullptr);
  owned const s = quarters(base, 6);  // a page and a half
  REQUIRE(map.add(s.get()));
  for (std::uintptr_t const in : {std::uintptr_t{0}, std::uintptr_t{1}, page - 1, page, page + page / 2 - 1})
    CHECK(map.find(base + in).in() == s.get());
  for (std::uintptr_t const out : {base - 1, base + 2 * page, base + leaf, std::uintptr_t{0}, std::uintptr_t{1} << 48})
    CHECK(map.find(out).in() == nullptr);
  CHECK(map.find(~std::uintptr_t{0}).in() == nullptr);
}

TEST_CASE("a page knows where the slots of its slab begin, whatever their class") {
  for (unsigned c = 0; c < slab::classes; ++c) {
    units const size = slot_class::size(c);
    auto const slots = static_cast<std::uint32_t>(slab::most_bytes / unit_bytes / size);
    owned const s(slab::make(base + page, c, slots));
    slab_map map;
    REQUIRE(map.add(s.get()));
    CAPTURE(size);
    for (units unit = 0; unit < slots * size; ++unit) {
      std::uintptr_t const at = s->begin() + std::uintptr_t{unit} * unit_bytes;
      REQUIRE(map.find(at).slot_at(at) == (unit % size == 0 ? unit / size : slab::none));
    }
    CHECK(map.find(base + page).slot_at(base + page + 1) == slab::none);
  }
}

TEST_CASE("a slab in host memory whose addresses have no bits to spare is not for the map") {
  using entry = slab_map::word;
  auto const at = [](std::uintptr_t address) { return reinterpret_cast<slab*>(address); };
  CHECK(entry::can_be_of(at(0x7fff'ffff'ffc0)));
  CHECK(entry::can_be_of(at(std::uintptr_t{0xab} << 56 | 0x40)));  // a tag in the highest byte
  CHECK_FALSE(entry::can_be_of(at(std::uintptr_t{1} << 48)));
  CHECK_FALSE(entry::can_be_of(at(0x7fff'ffff'ffc8)));
}

TEST_CASE("a slab that is removed is not found, and its neighbours are") {
  slab_map map;
  owned const first = quarters(base, 4), second = quarters(base + page, 8), third = quarters(base + 3 * page, 1);
  for (owned const* s : {&first, &second, &third}) REQUIRE(map.add(s->get()));
  map.remove(*second);
  CHECK(map.find(base + page - 1).in() == first.get());
  CHECK(map.find(base + page).in() == nullptr);
  CHECK(map.find(base + 3 * page - 1).in() == nullptr);
  CHECK(map.find(base + 3 * page).in() == third.get());
}

TEST_CASE("a slab may lie on both sides of a table's end") {
  slab_map map;
  owned const s = quarters(base + leaf - page, 8);
  REQUIRE(map.add(s.get()));
  CHECK(map.find(base + leaf - 1).in() == s.get());
  CHECK(map.find(base + leaf).in() == s.get());
  map.remove(*s);
  CHECK(map.find(base + leaf - 1).in() == nullptr);
  CHECK(map.find(base + leaf).in() == nullptr);
}

TEST_CASE("slabs that are too far from others are refused, also if only the end is") {
  for (bool const below : {false, true}) {
    CAPTURE(below);
    slab_map map;
    std::uintptr_t const end = base + (below ? leaf : slab_map::most_span);
    owned const first = quarters(base, 4);
    owned const last = quarters(below ? end - slab_map::most_span : end - page, 4);
    owned const beyond = quarters(below ? last->begin() - page : end - page, 5);
    REQUIRE(map.add(first.get()));
    CHECK_FALSE(map.add(beyond.get()));
    CHECK(map.find(beyond->begin()).in() == nullptr);
    CHECK(map.find(base).in() == first.get());
    CHECK(map.add(last.get()));
    CHECK(map.find(last->begin() + page - 1).in() == last.get());
    CHECK(map.find(base).in() == first.get());
  }
}

TEST_CASE("the tables count as host memory once, where they are used") {
  slab_map map;
  CHECK(map.host_bytes() == 0);
  owned const first = quarters(base, 4), near = quarters(base + page, 4), far = quarters(base - 9 * leaf, 4);
  REQUIRE(map.add(first.get()));
  std::size_t const one = map.host_bytes(), leaf_bytes = 2 * 64;
  CHECK(one == leaf_bytes + sizeof(void*));
  REQUIRE(map.add(near.get()));
  CHECK(map.host_bytes() == one);
  REQUIRE(map.add(far.get()));
  CHECK(map.host_bytes() == 2 * leaf_bytes + 10 * sizeof(void*));
  map.remove(*far);
  REQUIRE(map.add(far.get()));
  CHECK(map.host_bytes() == 2 * leaf_bytes + 10 * sizeof(void*));
}

TEST_CASE("a leaf may be full of slabs of a page each") {
  slab_map map;
  std::vector<owned> slabs;
  for (std::uintptr_t at = base; at < base + leaf; at += page)
    REQUIRE(map.add(slabs.emplace_back(quarters(at, 4)).get()));
  for (owned const& s : slabs) CHECK(map.find(s->begin() + page - 1).in() == s.get());
  CHECK(map.host_bytes() == 10 * 64 + sizeof(void*));
}
