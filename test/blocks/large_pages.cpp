#include <weir/blocks/large_pages.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <numeric>
#include <vector>

using weir::detail::large_pages;

TEST_CASE("large arrays are aligned to large pages, and small ones work as any") {
  using allocator = large_pages<std::uint32_t>;
  for (std::size_t const n :
       {std::size_t{1}, allocator::page_bytes / 4 - 1, allocator::page_bytes / 4, std::size_t{1} << 20}) {
    CAPTURE(n);
    std::vector<std::uint32_t, allocator> array(n);
    std::iota(array.begin(), array.end(), 0u);
    CHECK(array.back() == n - 1);
    bool const aligned = reinterpret_cast<std::uintptr_t>(array.data()) % allocator::page_bytes == 0;
    if (n * 4 >= allocator::page_bytes) CHECK(aligned);
    array.resize(n + 1);  // moves it, and frees the first
    CHECK(array[n / 2] == n / 2);
  }
}
