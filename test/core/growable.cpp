#include <weir/core/growable.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/sources/device.hpp>

#include <doctest/doctest.h>
#include <support/test_growable.hpp>

namespace {

struct forgets_to_unmap {
  void* allocate(weir::stream_ref, std::size_t, std::size_t) { return nullptr; }
  void deallocate(weir::stream_ref, void*, std::size_t, std::size_t) noexcept {}
  std::size_t chunk_bytes() const noexcept { return 1 << 21; }
  weir::address_range reserve_range(std::size_t) { return {}; }
  void release_range(weir::address_range) noexcept {}
  bool map(void*, std::size_t) { return true; }
  bool alias(void*, void*, std::size_t) { return false; }
};

}  // namespace

TEST_CASE("a resource is growable if it has all of the calls, and not otherwise") {
  static_assert(weir::growable<weir::test::test_growable>);
  static_assert(!weir::growable<forgets_to_unmap>);
  static_assert(!weir::growable<weir::device_resource>);
}

TEST_CASE("a handle to a growable resource grows that, and is growable only where that is") {
  using handle = weir::resource_ref<weir::test::test_growable>;
  static_assert(weir::growable<handle>);
  static_assert(!weir::growable<weir::resource_ref<weir::device_resource>>);
  weir::test::test_growable memory(4 << 20);
  handle const shared = weir::share(memory);
  CHECK(shared.chunk_bytes() == memory.chunk_bytes());
  weir::address_range const range = shared.reserve_range(16 << 20);
  CHECK(shared.map(range.begin, 4 << 20));
  CHECK_FALSE(shared.map(static_cast<char*>(range.begin) + (4 << 20), 2 << 20));
  CHECK_FALSE(shared.alias(range.begin, range.begin, 2 << 20));  // the one of the tests has no aliases
  CHECK(shared.unmap(range.begin, 4 << 20));
  CHECK(memory.chunks_mapped == 2);
  CHECK(memory.chunks_unmapped == 2);
  shared.release_range(range);
  CHECK(memory.ranges.empty());
}

namespace {

struct fixed_chunks : weir::test::test_growable {
  bool movable() const noexcept { return false; }
};

}  // namespace

TEST_CASE("chunks may move unless the resource, or what a handle refers to, says otherwise") {
  weir::test::test_growable memory;
  fixed_chunks registered;
  CHECK(weir::chunks_may_move(memory));
  CHECK_FALSE(weir::chunks_may_move(registered));
  CHECK_FALSE(weir::chunks_may_move(weir::share(registered)));
}

TEST_CASE("the growable of the tests lets nobody write where nothing is mapped, and counts what is wrong") {
  weir::test::test_growable memory(4 << 20);
  weir::address_range const range = memory.reserve_range(std::size_t{1} << 30);
  auto* const p = static_cast<unsigned char*>(range.begin);
  CHECK(range.bytes == std::size_t{1} << 30);
  REQUIRE(memory.map(p, 4 << 20));
  p[(4 << 20) - 1] = 7;
  CHECK(p[(4 << 20) - 1] == 7);
  CHECK_FALSE(memory.map(p + (4 << 20), 2 << 20));
  CHECK(memory.unmap(p, 2 << 20));
  CHECK(memory.in_use() == 2 << 20);
  CHECK(memory.wrong == 0);
  memory.unmap(p, 2 << 20);
  CHECK(memory.wrong == 1);
}
