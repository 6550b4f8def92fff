#include <weir/pool/heap/slab_leaf.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

using namespace weir::detail;

namespace {

constexpr std::uintptr_t base = 0x7f00'0000'0000u, page = slab::page_bytes;
constexpr std::size_t line = 64;

struct drop {
  void operator()(slab* gone) const { slab::drop(gone); }
  void operator()(slab_leaf* gone) const { slab_leaf::drop(gone); }
};
using owned = std::unique_ptr<slab, drop>;
using owned_leaf = std::unique_ptr<slab_leaf, drop>;

/// Of slots of a quarter of a page.
owned quarters(std::uintptr_t begin, std::uint32_t slots) {
  return owned(slab::make(begin, slot_class::of(page / 4 / unit_bytes), slots));
}

/// In the first pages of a leaf at `base`.
std::vector<owned> slabs_of_a_page(std::size_t count) {
  std::vector<owned> slabs;
  for (std::size_t i = 0; i < count; ++i) slabs.push_back(quarters(base + i * page, 4));
  return slabs;
}

}  // namespace

TEST_CASE("a page leads to the slab that it is of") {
  owned_leaf const leaf(slab_leaf::make(nullptr));
  owned const s = quarters(base + 2 * page, 12), other = quarters(base + 9 * page, 4);
  leaf->add({s.get(), base}, 2, 4);
  leaf->add({other.get(), base}, 9, 9);
  for (std::size_t at = 0; at < slab_leaf::pages; ++at) {
    CAPTURE(at);
    CHECK(leaf->of(at).in() == (at >= 2 && at <= 4 ? s.get() : at == 9 ? other.get() : nullptr));
  }
  leaf->remove(2, 4);
  for (std::size_t at = 2; at <= 4; ++at) CHECK_FALSE(leaf->of(at));
  CHECK(leaf->of(9).in() == other.get());
}

TEST_CASE("a word knows where its slab begins, also before the leaf") {
  for (std::uintptr_t const begin : {base, base + slab_leaf::span - page, base - slab::most_bytes + page}) {
    CAPTURE(begin);
    owned const s = quarters(begin, 6);
    slab_leaf::word const word(s.get(), base);
    CHECK(word.in() == s.get());
    std::uintptr_t const in_leaf = begin < base ? base : begin;
    for (std::uintptr_t at = in_leaf; at < in_leaf + page; at += page / 8) {
      auto const slot = static_cast<slab::slot>((at - begin) / (page / 4));
      CHECK(word.slot_at(at) == (at % (page / 4) == 0 ? slot : slab::none));
    }
  }
}

TEST_CASE("a leaf is made anew with more room when it is full, up to a slab for each page") {
  std::vector<owned> const slabs = slabs_of_a_page(slab_leaf::pages);
  owned_leaf leaf(slab_leaf::make(nullptr));
  std::vector<std::size_t> full_with;
  for (std::size_t i = 0; i < slabs.size(); ++i) {
    if (leaf->is_full()) {
      full_with.push_back(i);
      std::size_t const before = leaf->host_bytes();
      leaf.reset(slab_leaf::make(leaf.get()));
      CHECK(leaf->host_bytes() > before);
    }
    REQUIRE_FALSE(leaf->is_full());
    leaf->add({slabs[i].get(), base}, i, i);
  }
  CHECK(full_with == std::vector<std::size_t>{6, 14, 30, 62});
  for (std::size_t i = 0; i < slabs.size(); ++i) CHECK(leaf->of(i).in() == slabs[i].get());
  CHECK(leaf->host_bytes() == 10 * line);
}

TEST_CASE("what a slab leaves in a leaf is room for another one") {
  std::vector<owned> const slabs = slabs_of_a_page(7);
  owned_leaf const leaf(slab_leaf::make(nullptr));
  CHECK(leaf->host_bytes() == 2 * line);
  for (std::size_t i = 0; i < 6; ++i) leaf->add({slabs[i].get(), base}, i, i);
  REQUIRE(leaf->is_full());
  leaf->remove(3, 3);
  REQUIRE_FALSE(leaf->is_full());
  leaf->add({slabs[6].get(), base}, 6, 6);
  CHECK(leaf->is_full());
  for (std::size_t i = 0; i < 7; ++i) CHECK(leaf->of(i).in() == (i == 3 ? nullptr : slabs[i].get()));
}
