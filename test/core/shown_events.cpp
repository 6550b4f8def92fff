#include <weir/core/shown_events.hpp>

#include <doctest/doctest.h>

TEST_CASE("a stream's number is its handle; host order has none") {
  auto* const handle = reinterpret_cast<cudaStream_t>(std::uintptr_t{0x55d0});
  CHECK(weir::detail::stream_number(weir::stream_ref(handle)) == 0x55d0);
  CHECK(weir::detail::stream_number(weir::host_order) == 0);
  CHECK(weir::detail::stream_number(weir::stream_ref(cudaStreamLegacy)) != 0);
}
