#include <weir/core/growable.hpp>
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
