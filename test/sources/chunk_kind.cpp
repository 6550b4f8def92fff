#include <weir/sources/chunk_kind.hpp>

#include <weir/core/bytes.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/sim_fixture.hpp>

#include <stdexcept>
#include <vector>

using namespace weir;
using detail::chunk_kind;
using detail::chunk_users;
using weir::test::fresh_world;

TEST_CASE_FIXTURE(fresh_world, "chunks are of their device, and exported if that was asked for and can be") {
  CUmemAllocationProp const plain = chunk_kind(1, memory_handle::none, 2_MiB);
  CHECK(plain.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
  CHECK(plain.location.id == 1);
  CHECK(plain.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE);
  CHECK_THROWS_AS(static_cast<void>(chunk_kind(0, memory_handle::posix_fd, 2_MiB)), std::invalid_argument);
}

TEST_CASE_FIXTURE(fresh_world, "chunks have a size that the driver maps") {
  CHECK_NOTHROW(static_cast<void>(chunk_kind(0, memory_handle::none, 32_MiB)));
  CHECK_THROWS_WITH_AS(static_cast<void>(chunk_kind(0, memory_handle::none, 1_MiB)),
                       "weir: virtual_memory: chunk_bytes is 1048576; device 0 maps multiples of 2097152",
                       std::invalid_argument);
}

TEST_CASE_FIXTURE(fresh_world, "their device may use them, and with peers each that can reach it") {
  std::vector<CUmemAccessDesc> const alone = chunk_users(1, false), with_peers = chunk_users(1, true);
  REQUIRE(alone.size() == 1);
  CHECK(alone[0].location.id == 1);
  REQUIRE(with_peers.size() == 2);
  CHECK(with_peers[0].location.id == 1);
  CHECK(with_peers[1].location.id == 0);
  for (CUmemAccessDesc const& user : with_peers) CHECK(user.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  sim::set_peers(false);
  CHECK(chunk_users(1, true).size() == 1);
}
