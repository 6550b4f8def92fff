#include <weir/adaptors/detail/holders.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

using namespace weir;
using detail::call_stacks;
using detail::holders_of;
using detail::holders_report;

namespace {

constexpr std::uint64_t second = 1'000'000'000;

tracked_block block(std::uintptr_t address, std::size_t bytes, char const* tag, stream_ref stream, std::uint64_t thread,
                    std::uint64_t since) {
  return {.address = address,
          .bytes = bytes,
          .alignment = 256,
          .taken = bytes,
          .tag = tag_name(tag),
          .stream = stream,
          .thread = thread,
          .nanoseconds = since};
}

std::vector<tracked_block> const blocks{block(0x1000, 1024, "kv", host_order, 7, 3 * second),
                                        block(0x2000, 2048, "kv", cudaStreamLegacy, 8, 5 * second),
                                        block(0x4000, 1000, "", cudaStreamLegacy, 8, 9 * second)};

}  // namespace

TEST_CASE("blocks are put together by what they have in common, who holds most first") {
  call_stacks const none(0);
  auto const by_tag = holders_of(blocks, held_by::tag, 10 * second, none, 10);
  REQUIRE(by_tag.size() == 2);
  CHECK(by_tag[0].who == "kv");
  CHECK(by_tag[0].bytes == 3072);
  CHECK(by_tag[0].blocks == 2);
  CHECK(by_tag[0].oldest_seconds == 7);
  CHECK(by_tag[1].who == "(untagged)");
  CHECK(by_tag[1].oldest_seconds == 1);
  auto const by_thread = holders_of(blocks, held_by::thread, 10 * second, none, 10);
  CHECK(by_thread[0].who == "thread 8");
  CHECK(by_thread[0].bytes == 3048);
  auto const by_stream = holders_of(blocks, held_by::stream, 10 * second, none, 10);
  REQUIRE(by_stream.size() == 2);  // the host's order has the legacy stream's handle
  CHECK(by_stream[0].who == "the legacy default stream");
  CHECK(by_stream[1].who == "the host's order");
}

TEST_CASE("a clock that went back makes nothing old") {
  CHECK(holders_of(blocks, held_by::tag, 1 * second, call_stacks(0), 10)[0].oldest_seconds == 0);
}

TEST_CASE("the report has a section for each kind, and one line for what is left out") {
  CHECK(holders_report("weir: tracking", blocks, 10 * second, call_stacks(0), false, 1) ==
        "weir: tracking: 3 blocks of 3.98 KiB are live\n"
        "  by tag\n"
        "      3.00 KiB in 2      oldest    7.0 s kv\n"
        "    and 1 more: 1000 B in 1\n"
        "  by thread\n"
        "      2.98 KiB in 2      oldest    5.0 s thread 8\n"
        "    and 1 more: 1.00 KiB in 1\n"
        "  by stream\n"
        "      2.98 KiB in 2      oldest    5.0 s the legacy default stream\n"
        "    and 1 more: 1.00 KiB in 1\n"
        "  largest blocks\n"
        "    0x2000 2.00 KiB, 5.0 s old, kv, thread 8, the legacy default stream\n");
}

TEST_CASE("a report of nothing is one line") {
  CHECK(holders_report("weir: tracking", {}, 0, call_stacks(0), true, 10) ==
        "weir: tracking: 0 blocks of 0 B are live\n");
}

TEST_CASE("a tag cannot begin a line of its own") {
  std::vector<tracked_block> const odd{block(0x1000, 1, "a\n  by thread", host_order, 7, 0)};
  std::string const text = holders_report("weir: tracking", odd, 0, call_stacks(0), false, 10);
  CHECK(text.find("a\\n  by thread\n") != std::string::npos);
}
