#include <weir/support/grown_array.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <new>

using weir::detail::grown_array;

namespace {

struct numbered {
  std::uint32_t number = 7;
};

bool fails = false;

// Whether an array had still what it gave back.
grown_array<numbered> const* watched = nullptr;
bool had_it = false;
void give(void* p) noexcept {
  had_it = had_it || (watched != nullptr && watched->data() == p);
  std::free(p);
}

bool on_large_pages(grown_array<numbered> const& array) {
  return reinterpret_cast<std::uintptr_t>(array.data()) % grown_array<numbered>::page_bytes == 0;
}

}  // namespace

void* operator new(std::size_t bytes, std::align_val_t alignment) {
  std::size_t const a = static_cast<std::size_t>(alignment);
  void* const p = fails ? nullptr : std::aligned_alloc(a, (bytes + a - 1) / a * a);
  return p != nullptr ? p : throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { give(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept { give(p); }

TEST_CASE("an array grows to the size that is asked for, keeps what is there, and fills the rest with fresh elements") {
  constexpr std::size_t large = grown_array<numbered>::page_bytes / sizeof(numbered);
  grown_array<numbered> array(1);
  for (std::size_t const size : {std::size_t{10}, large - 1, large, 4 * large}) {
    CAPTURE(size);
    std::size_t const before = array.size();
    array[before - 1].number = static_cast<std::uint32_t>(before);
    array.grow(size);
    REQUIRE_EQ(array.size(), size);
    CHECK_EQ(array.bytes(), size * sizeof(numbered));
    CHECK_EQ(array[before - 1].number, before);
    CHECK_EQ(array[before].number, 7);
    CHECK_EQ(array[size - 1].number, 7);
    if (size >= large) CHECK(on_large_pages(array));
  }
  array.grow(5);
  CHECK_EQ(array.size(), 4 * large);
}

TEST_CASE("an array that cannot grow stays as it is") {
  grown_array<numbered> array(3);
  array[2].number = 1;
  numbered const* const before = array.data();
  fails = true;
  CHECK_THROWS_AS(array.grow(4), std::bad_alloc);
  fails = false;
  CHECK_EQ(array.size(), 3);
  CHECK_EQ(array.data(), before);
  CHECK_EQ(array[2].number, 1);
}

TEST_CASE("two arrays are exchanged") {
  grown_array<numbered> one(1), many(100);
  one[0].number = 1;
  one.swap(many);
  CHECK_EQ(one.size(), 100);
  CHECK_EQ(many.size(), 1);
  CHECK_EQ(many[0].number, 1);
}

TEST_CASE("what an array gives back it has no more, so that a child that is forked just then does not, too") {
  grown_array<numbered> array(10);
  watched = &array;
  array.grow(1000);
  watched = nullptr;
  CHECK_FALSE(had_it);
}
