#include <weir/sources/address_ranges.hpp>

#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/filled.hpp>
#include <support/sim_fixture.hpp>

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

using namespace weir;
using weir::detail::address_ranges;
using weir::detail::physical_chunks;

namespace {

constexpr std::size_t chunk = 2_MiB;

std::string last_misuse;

/// A range of eight chunks on device 0.
struct range_of_a_device : weir::test::fresh_world {
  static CUmemLocation device() {
    CUmemLocation place{};
    place.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return place;
  }
  static CUmemAllocationProp kind() {
    CUmemAllocationProp made{};
    made.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    made.location = device();
    return made;
  }
  ~range_of_a_device() {
    ranges.release(range);
    set_misuse_handler(before);
  }

  void* at(std::size_t place) const { return static_cast<std::byte*>(range.begin) + place * chunk; }
  /// Whether a kernel can use that chunk.
  static bool is_usable(void* p) {
    try {
      sim::touch(cudaStreamPerThread, p, chunk, sim::access::write);
      return true;
    } catch (std::invalid_argument const&) {
      return false;
    }
  }

  physical_chunks chunks{detail::driver(), kind(), chunk, 0};
  address_ranges ranges{detail::driver(), chunks, {{device(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE}}};
  address_range const range = ranges.reserve(8 * chunk);
  misuse_handler before = set_misuse_handler(+[](char const* what) noexcept { last_misuse = what; });
};

}  // namespace

TEST_CASE_FIXTURE(range_of_a_device, "addresses come without memory, aligned to a chunk") {
  CHECK(range.bytes == 8 * chunk);
  CHECK(reinterpret_cast<std::uintptr_t>(range.begin) % chunk == 0);
  CHECK(sim::live_bytes(0) == 0);
  CHECK_FALSE(is_usable(at(0)));
}

TEST_CASE_FIXTURE(range_of_a_device, "mapped chunks are usable, in one call for all, and holes are not") {
  sim::reset_counters();
  CHECK(ranges.map(at(2), 3 * chunk));
  CHECK(sim::calls("cuMemMap") == 3);
  CHECK(sim::calls("cuMemSetAccess") == 1);
  sim::touch(cudaStreamPerThread, at(2), 3 * chunk, sim::access::write);
  CHECK_FALSE(is_usable(at(1)));
  CHECK_FALSE(is_usable(at(5)));
  CHECK(ranges.unmap(at(3), chunk));
  CHECK_FALSE(is_usable(at(3)));
  CHECK(is_usable(at(2)));
  CHECK(is_usable(at(4)));
}

TEST_CASE_FIXTURE(range_of_a_device, "what is written at one address is read at its alias") {
  ranges.map(at(0), 2 * chunk);
  CHECK(ranges.alias(at(4), at(0), 2 * chunk));
  CHECK(sim::live_bytes(0) == 2 * chunk);
  std::memset(at(0), 3, 2 * chunk);
  CHECK(static_cast<unsigned char*>(at(4))[2 * chunk - 1] == 3);
  CHECK(ranges.unmap(at(0), 2 * chunk));
  CHECK(chunks.now().spare == 0);
  CHECK(static_cast<unsigned char*>(at(4))[chunk] == 3);
  CHECK(ranges.unmap(at(4), 2 * chunk));
  CHECK(chunks.now().spare == 2 * chunk);
}

TEST_CASE_FIXTURE(range_of_a_device, "too little memory is an answer, and changes nothing") {
  sim::set_capacity(0, 3 * chunk);
  CHECK(ranges.map(at(0), chunk));
  CHECK_FALSE(ranges.map(at(1), 3 * chunk));
  CHECK(sim::live_bytes(0) == chunk);
  CHECK_FALSE(is_usable(at(1)));
  CHECK(ranges.map(at(1), 2 * chunk));
}

TEST_CASE_FIXTURE(range_of_a_device, "so is too little memory for the driver's own tables") {
  for (char const* call : {"cuMemMap", "cuMemSetAccess"}) {
    CAPTURE(call);
    sim::fail_call(call, 1, cudaErrorMemoryAllocation);
    CHECK_FALSE(ranges.map(at(0), 2 * chunk));
    CHECK(sim::live_bytes(0) == 0);
  }
}

TEST_CASE_FIXTURE(range_of_a_device, "addresses that cannot be mapped are refused with words") {
  ranges.map(at(1), chunk);
  try {
    ranges.map(at(0), 2 * chunk);
    FAIL("nothing was thrown");
  } catch (cuda_error const& error) {
    CHECK(error.code() == cudaErrorInvalidValue);
    CHECK(std::string(error.what())
              .find("weir: virtual_memory: map of " + detail::hex(at(0)) +
                    " (4194304 B), where something is mapped, failed") == 0);
  }
  CHECK_THROWS_AS(ranges.map(at(7), 2 * chunk), cuda_error);
  CHECK_THROWS_AS(ranges.map(at(2), chunk / 2), cuda_error);
  CHECK_THROWS_AS(ranges.map(static_cast<std::byte*>(at(2)) + 256, chunk), cuda_error);
  CHECK_THROWS_AS(ranges.map(&chunks, chunk), cuda_error);
  CHECK_THROWS_AS(ranges.alias(at(4), at(0), 2 * chunk), cuda_error);
  CHECK_THROWS_AS(ranges.alias(at(1), at(1), chunk), cuda_error);
  CHECK(chunks.now().mapped == chunk);
}

TEST_CASE_FIXTURE(range_of_a_device, "what an unmap that was refused took away is there again once the driver works") {
  for (char const* call : {"map", "unmap", "release"}) {
    CAPTURE(call);
    ranges.map(at(0), 3 * chunk);
    std::memset(at(0), 7, 3 * chunk);
    sim::fail_from(3, cudaErrorUnknown);  // the third chunk stays, and the other two cannot be mapped again
    CHECK_FALSE(ranges.unmap(at(0), 3 * chunk));
    CHECK_FALSE(ranges.unmap(at(1), chunk));
    sim::clear_failure();
    CHECK_FALSE(is_usable(at(0)));
    if (call == std::string("release")) break;  // the range goes as it is
    if (call == std::string("map")) {
      CHECK(ranges.map(at(4), chunk));
      CHECK(is_usable(at(0)));
      CHECK(static_cast<unsigned char*>(at(1))[chunk - 1] == 7);
      CHECK(ranges.unmap(at(4), chunk));
    }
    CHECK(ranges.unmap(at(0), 3 * chunk));
    CHECK(chunks.now().mapped == 0);
  }
  CHECK(ranges.release(range));
  CHECK(chunks.now().mapped == 0);
}

TEST_CASE_FIXTURE(range_of_a_device, "an unmap of a hole is misuse, and changes nothing") {
  ranges.map(at(0), chunk);
  last_misuse.clear();
  CHECK_FALSE(ranges.unmap(at(0), 2 * chunk));
  CHECK(last_misuse.find("virtual_memory: unmap of " + detail::hex(at(0))) != std::string::npos);
  CHECK(is_usable(at(0)));
}

TEST_CASE_FIXTURE(range_of_a_device, "whichever call of map or alias fails, nothing has changed") {
  ranges.map(at(0), 3 * chunk);
  for (char const* call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess"})
    for (std::uint64_t k = 1; k <= (std::strcmp(call, "cuMemSetAccess") == 0 ? 1U : 3U); ++k) {
      CAPTURE(call);
      CAPTURE(k);
      sim::fail_call(call, k, cudaErrorUnknown);
      CHECK_THROWS_AS(ranges.map(at(3), 3 * chunk), cuda_error);
      CHECK(sim::live_bytes(0) == 3 * chunk);
      CHECK_FALSE(is_usable(at(3)));
      if (std::strcmp(call, "cuMemCreate") == 0) continue;
      sim::fail_call(call, k, cudaErrorUnknown);
      CHECK_THROWS_AS(ranges.alias(at(3), at(0), 3 * chunk), cuda_error);
      CHECK(chunks.now().mapped == 3 * chunk);
      CHECK_FALSE(is_usable(at(3)));
    }
  CHECK(ranges.map(at(3), 3 * chunk));
}

TEST_CASE_FIXTURE(range_of_a_device, "whichever chunk cannot be unmapped, all stay usable, with what is in them") {
  ranges.map(at(0), 3 * chunk);
  for (std::uint64_t k = 1; k <= 3; ++k) {
    CAPTURE(k);
    std::memset(at(0), static_cast<int>(k), 3 * chunk);
    sim::fail_call("cuMemUnmap", k, cudaErrorUnknown);
    CHECK_FALSE(ranges.unmap(at(0), 3 * chunk));
    sim::touch(cudaStreamPerThread, at(0), 3 * chunk, sim::access::read);
    CHECK(static_cast<unsigned char*>(at(0))[0] == k);
    CHECK(static_cast<unsigned char*>(at(2))[0] == k);
  }
  CHECK(ranges.unmap(at(0), 3 * chunk));
}

TEST_CASE_FIXTURE(range_of_a_device, "nor is anything lost where mapping it again is refused once") {
  ranges.map(at(0), 3 * chunk);
  for (char const* call : {"cuMemMap", "cuMemSetAccess"}) {
    CAPTURE(call);
    std::memset(at(0), 7, 3 * chunk);
    sim::fail_call("cuMemUnmap", 3, cudaErrorUnknown);
    sim::fail_call(call, 1, cudaErrorUnknown);
    CHECK_FALSE(ranges.unmap(at(0), 3 * chunk));
    sim::touch(cudaStreamPerThread, at(0), 3 * chunk, sim::access::read);
    CHECK(static_cast<unsigned char*>(at(0))[0] == 7);
  }
  CHECK(ranges.unmap(at(0), 3 * chunk));
}

TEST_CASE_FIXTURE(range_of_a_device, "a range is given back with all that is mapped in it, and once") {
  address_range const other = ranges.reserve(2 * chunk);
  ranges.map(other.begin, 2 * chunk);
  CHECK(ranges.knows(other));
  CHECK_FALSE(ranges.knows({other.begin, chunk}));
  CHECK_FALSE(ranges.release({other.begin, chunk}));
  CHECK(ranges.release(other));
  CHECK(chunks.now().spare == 2 * chunk);
  CHECK_FALSE(ranges.knows(other));
  CHECK_FALSE(ranges.release(other));
}

TEST_CASE_FIXTURE(range_of_a_device, "a call that fails once, for an error of earlier work, loses no range") {
  for (char const* call : {"cuMemUnmap", "cuMemAddressFree"}) {
    CAPTURE(call);
    std::size_t const handles = sim::live_handles();
    address_range const other = ranges.reserve(2 * chunk);
    ranges.map(other.begin, 2 * chunk);
    sim::fail_call(call, 1, cudaErrorUnknown);
    CHECK(ranges.release(other));
    CHECK(chunks.now().spare == 2 * chunk);
    CHECK(sim::live_handles() == handles);
  }
}

TEST_CASE_FIXTURE(range_of_a_device, "a map that fails, and whose undo is refused once, leaves nothing behind") {
  for (char const* call : {"cuMemMap", "cuMemSetAccess"}) {
    CAPTURE(call);
    std::uint64_t const last = std::strcmp(call, "cuMemMap") == 0 ? 3 : 1, mapped = last == 3 ? 2 : 3;
    for (std::uint64_t k = 1; k <= mapped; ++k) {
      CAPTURE(k);
      sim::fail_call(call, last, cudaErrorUnknown);
      sim::fail_call("cuMemUnmap", k, cudaErrorUnknown);
      CHECK_THROWS_AS(ranges.map(at(0), 3 * chunk), cuda_error);
      CHECK(chunks.now().mapped == 0);
      CHECK(ranges.map(at(0), 3 * chunk));
      CHECK(ranges.unmap(at(0), 3 * chunk));
    }
  }
}

TEST_CASE_FIXTURE(range_of_a_device, "a view that was left, since its unmap failed twice, goes before the next map") {
  sim::fail_call("cuMemMap", 2, cudaErrorUnknown);
  sim::fail_call("cuMemUnmap", 1, cudaErrorUnknown);
  sim::fail_call(6, cudaErrorUnknown);  // after two chunks are created and mapped: the unmap's second try
  CHECK_THROWS_AS(ranges.map(at(0), 2 * chunk), cuda_error);
  CHECK(chunks.now().mapped == 2 * chunk);
  CHECK(ranges.map(at(2), 2 * chunk));
  CHECK(chunks.now().mapped == 2 * chunk);
  CHECK(ranges.map(at(0), 2 * chunk));
  address_range const all = range;
  CHECK(ranges.release(all));
  CHECK(chunks.now().mapped == 0);
}

TEST_CASE_FIXTURE(range_of_a_device, "what calls that failed left at addresses is gone once the driver works again") {
  for (std::uint64_t k = 1; k <= 8; ++k) {
    CAPTURE(k);
    sim::fail_from(k, cudaErrorUnknown);
    bool failed = false;
    try {
      ranges.map(at(0), 3 * chunk);  // seven calls
    } catch (cuda_error const& error) {
      CHECK(error.code() == cudaErrorUnknown);
      failed = true;
      CHECK_THROWS_WITH_AS(ranges.map(at(0), 3 * chunk), doctest::Contains("cudaErrorUnknown"), cuda_error);
    }
    sim::clear_failure();
    CHECK(failed == (k <= 7));
    if (failed) CHECK(ranges.map(at(0), 3 * chunk));
    CHECK(is_usable(at(2)));
    CHECK(chunks.now().mapped == 3 * chunk);
    CHECK(ranges.unmap(at(0), 3 * chunk));
    chunks.trim(0);
  }
  ranges.map(at(0), 3 * chunk);
  for (std::uint64_t k = 1; k <= 4; ++k) {
    CAPTURE(k);
    sim::fail_from(k, cudaErrorUnknown);
    CHECK_THROWS_AS(ranges.alias(at(3), at(0), 3 * chunk), cuda_error);
    sim::clear_failure();
    CHECK(ranges.map(at(6), chunk));  // elsewhere
    CHECK_FALSE(is_usable(at(3)));
    CHECK(ranges.alias(at(3), at(0), 3 * chunk));
    CHECK(ranges.unmap(at(3), 3 * chunk));
    CHECK(ranges.unmap(at(6), chunk));
  }
}

TEST_CASE_FIXTURE(range_of_a_device, "of what was left only that is unmapped which is left still") {
  sim::fail_from(5, cudaErrorUnknown);  // the second chunk cannot be mapped, the first not unmapped
  CHECK_THROWS_AS(ranges.map(at(0), 3 * chunk), cuda_error);
  sim::clear_failure();
  sim::fail_call("cuMemUnmap", 2, cudaErrorUnknown);
  CHECK(ranges.map(at(0), chunk));
  CHECK(ranges.map(at(6), chunk));
  CHECK(is_usable(at(0)));
  CHECK(chunks.now().mapped == 2 * chunk);
}

TEST_CASE("what the driver does not take back is tried again at the end") {
  weir::test::fresh_world const world;
  std::size_t const handles = sim::live_handles();
  {
    physical_chunks chunks(detail::driver(), range_of_a_device::kind(), chunk, 0);
    address_ranges ranges(detail::driver(), chunks,
                          {{range_of_a_device::device(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE}});
    address_range const range = ranges.reserve(2 * chunk);
    ranges.map(range.begin, 2 * chunk);
    sim::fail_from(1, cudaErrorUnknown);
    CHECK(ranges.release(range));
    sim::clear_failure();
    CHECK_FALSE(ranges.knows(range));
    CHECK(sim::live_handles() == handles + 1);
  }
  CHECK(sim::live_handles() == handles);
  CHECK(sim::live_allocations() == 0);
}

// ---- zeroing

namespace {

/// Two more ranges, on memory that is zeroed before it comes from one to the other.
struct scrubbed_ranges : range_of_a_device {
  scrubbed_ranges() { sim::set_mode(sim::mode::lazy); }
  ~scrubbed_ranges() {
    clean.release(mine);
    clean.release(yours);
  }
  static bool is_all(void* p, std::size_t bytes, int value) {
    return test::is_filled(p, bytes, static_cast<unsigned char>(value));
  }

  detail::scrubber const zeroing{0};
  address_ranges clean{detail::driver(), chunks, {{device(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE}}, &zeroing};
  address_range const mine = clean.reserve(8 * chunk), yours = clean.reserve(8 * chunk);
};

}  // namespace

TEST_CASE_FIXTURE(scrubbed_ranges, "memory that was in another range is zeroed before it is used") {
  clean.map(mine.begin, 2 * chunk);
  std::memset(mine.begin, 7, 2 * chunk);
  clean.unmap(mine.begin, 2 * chunk);
  CHECK(clean.map(yours.begin, chunk));
  CHECK(is_all(yours.begin, chunk, 0));
  std::memset(yours.begin, 8, chunk);
  clean.unmap(yours.begin, chunk);
  CHECK(clean.map(mine.begin, 2 * chunk));  // one of these was in the other range meanwhile
  CHECK(is_all(mine.begin, 2 * chunk, 0));
}

TEST_CASE_FIXTURE(scrubbed_ranges, "memory that comes back to its range is not zeroed") {
  clean.map(mine.begin, 2 * chunk);
  std::memset(mine.begin, 7, 2 * chunk);
  clean.unmap(mine.begin, 2 * chunk);
  sim::reset_counters();
  CHECK(clean.map(static_cast<std::byte*>(mine.begin) + 3 * chunk, 2 * chunk));
  CHECK(sim::calls("cudaMemsetAsync") == 0);
  CHECK(is_all(static_cast<std::byte*>(mine.begin) + 3 * chunk, 2 * chunk, 7));
}

TEST_CASE_FIXTURE(scrubbed_ranges, "new memory is zeroed: it may be what somebody gave back to the device") {
  CHECK(clean.map(mine.begin, chunk));
  CHECK(is_all(mine.begin, chunk, 0));
  std::memset(mine.begin, 7, chunk);
  clean.unmap(mine.begin, chunk);
  chunks.trim(0);
  CHECK(clean.map(mine.begin, chunk));
  CHECK(is_all(mine.begin, chunk, 0));
}

TEST_CASE_FIXTURE(scrubbed_ranges, "memory that was shown in two ranges is zeroed for either") {
  clean.map(mine.begin, chunk);
  clean.alias(yours.begin, mine.begin, chunk);
  std::memset(yours.begin, 7, chunk);
  clean.unmap(mine.begin, chunk);
  clean.unmap(yours.begin, chunk);
  CHECK(clean.map(mine.begin, chunk));
  CHECK(is_all(mine.begin, chunk, 0));
}

TEST_CASE_FIXTURE(scrubbed_ranges, "a range that is gone and one at the same addresses are two") {
  address_range const first = clean.reserve(chunk);
  clean.map(first.begin, chunk);
  std::memset(first.begin, 7, chunk);
  clean.release(first);
  address_range const second = clean.reserve(chunk);
  CHECK(clean.map(second.begin, chunk));
  CHECK(is_all(second.begin, chunk, 0));
  clean.release(second);
}

TEST_CASE_FIXTURE(scrubbed_ranges, "memory that cannot be zeroed is not mapped") {
  clean.map(mine.begin, chunk);
  clean.unmap(mine.begin, chunk);
  sim::fail_call("cudaMemsetAsync", 1, cudaErrorUnknown);
  CHECK_THROWS_AS(clean.map(yours.begin, 2 * chunk), cuda_error);
  CHECK_FALSE(is_usable(yours.begin));
  CHECK(chunks.now().held == chunk);
  CHECK(chunks.now().mapped == 0);
  sim::fail_call("cudaMemsetAsync", 1, cudaErrorMemoryAllocation);
  sim::fail_call("cuMemUnmap", 2, cudaErrorUnknown);  // the undo's
  CHECK_FALSE(clean.map(yours.begin, 2 * chunk));
  CHECK(chunks.now().held == chunk);
  CHECK(clean.map(yours.begin, 2 * chunk));
  CHECK(is_all(yours.begin, 2 * chunk, 0));
}

TEST_CASE_FIXTURE(scrubbed_ranges, "where nobody can say whether memory is zeroed it is not unmapped either") {
  sim::fail_call("cudaStreamSynchronize", 1, cudaErrorUnknown);
  CHECK(clean.map(mine.begin, chunk));  // the device can be waited for
  CHECK(is_all(mine.begin, chunk, 0));
  sim::fail_call("cudaStreamSynchronize", 1, cudaErrorUnknown);
  sim::fail_call("cudaDeviceSynchronize", 1, cudaErrorUnknown);
  CHECK_THROWS_AS(clean.map(yours.begin, chunk), cuda_error);
  CHECK(chunks.now().mapped == 2 * chunk);
  CHECK_THROWS_AS(clean.map(yours.begin, chunk), cuda_error);
  cudaDeviceSynchronize();
}

TEST_CASE("a map is not refused because of memory that another thread takes in vain") {
  test::fresh_world const world;
  sim::set_capacity(0, 4 * chunk);
  static std::atomic<bool> is_full, is_refused;
  is_full = is_refused = false;
  detail::driver_functions driver = detail::driver();
  driver.cuMemCreate = [](CUmemGenericAllocationHandle* handle, std::size_t bytes, CUmemAllocationProp const* prop,
                          unsigned long long flags) {
    CUresult const code = detail::driver().cuMemCreate(handle, bytes, prop, flags);
    if (code == CUDA_SUCCESS) return code;
    (is_full ? is_refused : is_full) = true;
    while (!is_refused) std::this_thread::yield();
    return code;
  };
  physical_chunks chunks(driver, range_of_a_device::kind(), chunk, 0);
  address_ranges ranges(driver, chunks, {{range_of_a_device::device(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE}});
  address_range const mine = ranges.reserve(chunk), others = ranges.reserve(8 * chunk);
  bool served = true;
  std::thread other([&] { served = ranges.map(others.begin, others.bytes); });
  while (!is_full) std::this_thread::yield();
  CHECK(ranges.map(mine.begin, chunk));
  other.join();
  CHECK_FALSE(served);
  CHECK(ranges.release(mine));
  CHECK(ranges.release(others));
}
