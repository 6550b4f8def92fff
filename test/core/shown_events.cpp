#include <weir/core/shown_events.hpp>

#include <doctest/doctest.h>

TEST_CASE("an action is of a request, of a segment, or of neither") {
  using enum weir::trace_action;
  for (auto const action : {allocate, free, out_of_memory}) CHECK(weir::is_request(action));
  for (auto const action : {grow, trim, map, unmap}) CHECK(weir::is_of_segment(action));
  for (auto const action : {move, spill, unspill})
    CHECK_FALSE((weir::is_request(action) || weir::is_of_segment(action)));
  CHECK(static_cast<unsigned>(unspill) + 1 == weir::trace_actions);
}

TEST_CASE("a stream's number is its handle; host order has none") {
  auto* const handle = reinterpret_cast<cudaStream_t>(std::uintptr_t{0x55d0});
  CHECK(weir::detail::stream_number(weir::stream_ref(handle)) == 0x55d0);
  CHECK(weir::detail::stream_number(weir::host_order) == 0);
  CHECK(weir::detail::stream_number(weir::stream_ref(cudaStreamLegacy)) != 0);
}
