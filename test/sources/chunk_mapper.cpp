#include <weir/sources/chunk_mapper.hpp>

#include <weir/core/bytes.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/sim_fixture.hpp>

#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <stdexcept>

using namespace weir;
using weir::detail::chunk_mapper;
using weir::detail::physical_chunks;

namespace {

constexpr std::size_t chunk_bytes = 2_MiB;

CUmemLocation device() {
  CUmemLocation place{};
  place.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return place;
}
CUmemAllocationProp kind() {
  CUmemAllocationProp made{};
  made.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  made.location = device();
  return made;
}

/// Three chunks of device 0, and addresses for them.
struct three_chunks : weir::test::fresh_world {
  three_chunks() {
    chunks.take(slots);
    detail::driver().cuMemAddressReserve(&begin, 3 * chunk_bytes, chunk_bytes, 0, 0);
  }
  ~three_chunks() {
    chunks.drop(slots);
    detail::driver().cuMemAddressFree(begin, 3 * chunk_bytes);
  }

  std::byte* at(std::size_t place) const { return reinterpret_cast<std::byte*>(begin) + place * chunk_bytes; }
  bool is_usable(std::size_t place) const {
    try {
      sim::touch(cudaStreamPerThread, at(place), chunk_bytes, sim::access::write);
      return true;
    } catch (std::invalid_argument const&) {
      return false;
    }
  }
  chunk_mapper make(detail::scrubber const* zeroing = nullptr) const {
    return {detail::driver(), chunk_bytes, {{device(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE}}, zeroing};
  }

  physical_chunks chunks{detail::driver(), kind(), chunk_bytes, 0};
  std::array<detail::chunk*, 3> slots{};
  CUdeviceptr begin = 0;
};

}  // namespace

TEST_CASE_FIXTURE(three_chunks, "chunks are usable where they are mapped, and nowhere else") {
  chunk_mapper const mapper = make();
  CHECK(mapper.map(begin, std::span(slots).first(2)).code == CUDA_SUCCESS);
  CHECK(is_usable(0));
  CHECK(is_usable(1));
  CHECK_FALSE(is_usable(2));
  CHECK(mapper.unmap(begin, std::span(slots).first(2)) == 2);
  CHECK_FALSE(is_usable(0));
  CHECK(mapper.map(begin, {}).code == CUDA_SUCCESS);
}

TEST_CASE_FIXTURE(three_chunks, "all of a place is mapped, or none, and which call failed is told") {
  chunk_mapper const mapper = make();
  for (bool const last_map : {true, false}) {
    char const* const call = last_map ? "cuMemMap" : "cuMemSetAccess";
    CAPTURE(call);
    sim::fail_call(call, last_map ? 3 : 1, cudaErrorMemoryAllocation);
    chunk_mapper::outcome const made = mapper.map(begin, slots);
    CHECK(made.code == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(std::strcmp(made.call, call) == 0);
    CHECK(made.is_undone);
    for (std::size_t i = 0; i != 3; ++i) CHECK_FALSE(is_usable(i));
  }
  CHECK(mapper.map(begin, slots).code == CUDA_SUCCESS);  // so nothing was left mapped
  CHECK(mapper.unmap(begin, slots) == 3);
}

TEST_CASE_FIXTURE(three_chunks, "what the driver does not unmap is counted from there on, and stays") {
  chunk_mapper const mapper = make();
  mapper.map(begin, slots);
  sim::fail_call("cuMemUnmap", 2, cudaErrorUnknown);
  CHECK(mapper.unmap(begin, slots) == 1);
  CHECK_FALSE(is_usable(0));
  CHECK(is_usable(1));
  CHECK(mapper.unmap(begin + chunk_bytes, std::span(slots).last(2)) == 2);
}

TEST_CASE_FIXTURE(three_chunks, "what was another range's is zeroed, and what a range had last is not") {
  detail::scrubber const zeroing(0);
  chunk_mapper const mapper = make(&zeroing);
  for (std::uint64_t const range : {1u, 1u, 2u}) {
    CAPTURE(range);
    bool const is_another = slots[0]->owner != range;
    REQUIRE(mapper.map_for(range, begin, slots).code == CUDA_SUCCESS);
    CHECK(at(2)[chunk_bytes - 1] == std::byte{is_another ? std::uint8_t{0} : std::uint8_t{7}});
    CHECK(slots[2]->owner == range);
    std::memset(at(0), 7, 3 * chunk_bytes);
    CHECK(mapper.unmap(begin, slots) == 3);
  }
}
