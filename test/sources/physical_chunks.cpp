// needs: tsan
#include <weir/sources/physical_chunks.hpp>

#include <weir/core/bytes.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <sys/types.h>
#include <unistd.h>
#include <support/sim_fixture.hpp>

#include <array>
#include <atomic>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace weir;
using weir::detail::chunk;
using weir::detail::physical_chunks;

namespace {

constexpr std::size_t chunk_bytes = 2_MiB;

/// Chunks of device 0, and a place for eight of them.
struct chunks_of_a_device : weir::test::fresh_world {
  static CUmemAllocationProp kind() {
    CUmemAllocationProp made{};
    made.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    made.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return made;
  }
  physical_chunks made(std::size_t max_bytes = 0) {
    return physical_chunks(detail::driver(), kind(), chunk_bytes, max_bytes);
  }

  std::array<chunk*, 8> place{};
  std::span<chunk*> slots{place};
};

}  // namespace

TEST_CASE_FIXTURE(chunks_of_a_device, "spare chunks are taken before new ones are created") {
  physical_chunks chunks = made();
  CHECK(chunks.take(slots.first(3)) == 3);
  CHECK(sim::live_bytes(0) == 3 * chunk_bytes);
  chunks.drop(slots.first(3));
  CHECK(place[0] == nullptr);
  CHECK(sim::live_bytes(0) == 3 * chunk_bytes);
  CHECK(chunks.take(slots.first(5)) == 2);
  CHECK(sim::live_bytes(0) == 5 * chunk_bytes);
  chunks.drop(slots.first(5));
}

TEST_CASE_FIXTURE(chunks_of_a_device, "a chunk is spare once it is in no place any more") {
  physical_chunks chunks = made();
  chunks.take(slots.first(2));
  chunks.share(slots.first(2), slots.subspan(2, 2));
  CHECK(place[2] == place[0]);
  chunks.drop(slots.first(2));
  CHECK(chunks.now().spare == 0);
  CHECK(chunks.now().mapped == 2 * chunk_bytes);
  chunks.drop(slots.subspan(2, 2));
  CHECK(chunks.now().spare == 2 * chunk_bytes);
  CHECK(chunks.now().mapped == 0);
  CHECK(chunks.now().mapped_peak == 2 * chunk_bytes);
}

TEST_CASE_FIXTURE(chunks_of_a_device, "trim gives spare chunks to the device, and no more than is asked") {
  physical_chunks chunks = made();
  chunks.take(slots);
  chunks.drop(slots.first(6));
  CHECK(chunks.trim(5 * chunk_bytes) == 3 * chunk_bytes);
  CHECK(sim::live_bytes(0) == 5 * chunk_bytes);
  CHECK(chunks.trim(0, 1) == chunk_bytes);
  CHECK(chunks.trim(0) == 2 * chunk_bytes);
  CHECK(chunks.trim(0) == 0);  // the rest is in a place
  CHECK(sim::live_bytes(0) == 2 * chunk_bytes);
  CHECK(chunks.now().held_peak == 8 * chunk_bytes);
  chunks.drop(slots.last(2));
}

TEST_CASE_FIXTURE(chunks_of_a_device, "no more than the limit is created, in whole chunks") {
  physical_chunks chunks = made(5 * chunk_bytes - 1);
  CHECK_FALSE(chunks.take(slots.first(5)));
  CHECK(sim::calls("cuMemCreate") == 0);
  CHECK(chunks.take(slots.first(4)) == 4);
  CHECK_FALSE(chunks.take(slots.last(1)));
  chunks.drop(slots.first(4));
  CHECK(chunks.take(slots.first(4)) == 0);
  chunks.drop(slots.first(4));
}

TEST_CASE_FIXTURE(chunks_of_a_device, "what a device does not have changes nothing") {
  sim::set_capacity(0, 3 * chunk_bytes);
  physical_chunks chunks = made();
  chunks.take(slots.first(1));
  chunks.drop(slots.first(1));
  CHECK_FALSE(chunks.take(slots));
  CHECK(sim::live_bytes(0) == chunk_bytes);
  CHECK(chunks.now().spare == chunk_bytes);
  CHECK(chunks.now().held_peak == chunk_bytes);
  CHECK(place[0] == nullptr);
}

TEST_CASE_FIXTURE(chunks_of_a_device, "whichever creation fails, nothing has changed") {
  for (std::uint64_t k = 1; k <= 4; ++k) {
    CAPTURE(k);
    physical_chunks chunks = made();
    chunks.take(slots.first(2));
    chunks.drop(slots.first(2));
    sim::fail_call("cuMemCreate", k, cudaErrorUnknown);
    CHECK_THROWS_AS(chunks.take(slots.first(6)), cuda_error);
    CHECK(sim::live_bytes(0) == 2 * chunk_bytes);
    CHECK(chunks.now().held == 2 * chunk_bytes);
    CHECK(chunks.take(slots.first(6)) == 4);
    chunks.drop(slots.first(6));
  }
  CHECK(sim::live_allocations() == 0);
}

TEST_CASE_FIXTURE(chunks_of_a_device, "a chunk that the driver does not take back stays spare") {
  physical_chunks chunks = made();
  chunks.take(slots.first(2));
  chunks.drop(slots.first(2));
  sim::fail_call("cuMemRelease", 2, cudaErrorUnknown);
  CHECK(chunks.trim(0) == chunk_bytes);
  CHECK(chunks.now().spare == chunk_bytes);
  CHECK(chunks.trim(0) == chunk_bytes);
}

TEST_CASE_FIXTURE(chunks_of_a_device, "a chunk that is on its way to the device is not mapped") {
  static physical_chunks const* watched;
  static std::size_t mapped_meanwhile;
  detail::driver_functions driver = detail::driver();
  driver.cuMemRelease = [](CUmemGenericAllocationHandle handle) {
    mapped_meanwhile = watched->now().mapped;
    return detail::driver().cuMemRelease(handle);
  };
  physical_chunks chunks(driver, kind(), chunk_bytes, 0);
  watched = &chunks;
  chunks.take(slots.first(3));
  chunks.drop(slots.first(1));
  CHECK(chunks.trim(0) == chunk_bytes);
  CHECK(mapped_meanwhile == 2 * chunk_bytes);
  chunks.drop(slots.subspan(1, 2));
}

TEST_CASE_FIXTURE(chunks_of_a_device, "what another thread asks for in vain counts for the limit, but in no number") {
  static physical_chunks* watched;
  static std::span<chunk*> other;
  detail::driver_functions driver = detail::driver();
  driver.cuMemCreate = [](CUmemGenericAllocationHandle* handle, std::size_t bytes, CUmemAllocationProp const* prop,
                          unsigned long long flags) {
    if (std::span<chunk*> const mine = std::exchange(other, {}); !mine.empty()) {
      CHECK(watched->take(mine.first(1)) == 1);  // the other thread, meanwhile
      CHECK_FALSE(watched->take(mine.last(1)));  // of a limit of six
      CHECK(watched->now().held == chunk_bytes);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return detail::driver().cuMemCreate(handle, bytes, prop, flags);
  };
  physical_chunks chunks(driver, kind(), chunk_bytes, 6 * chunk_bytes);
  watched = &chunks;
  other = slots.last(2);
  CHECK_FALSE(chunks.take(slots.first(5)));
  CHECK(chunks.now().held_peak == chunk_bytes);
  CHECK(chunks.now().mapped_peak == chunk_bytes);
  chunks.drop(slots.subspan(6, 1));
}

TEST_CASE_FIXTURE(chunks_of_a_device, "threads never hold more than the limit together") {
  physical_chunks chunks = made(6 * chunk_bytes);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&chunks] {
      std::array<chunk*, 3> own{};
      for (int round = 0; round < 200; ++round) {
        if (!chunks.take(own)) continue;
        chunks.drop(own);
        chunks.trim(3 * chunk_bytes);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(chunks.now().mapped == 0);
  CHECK(chunks.now().held_peak <= 6 * chunk_bytes);
  CHECK(sim::live_bytes(0) == chunks.now().held);
}

namespace {

/// True while a thread of this process sleeps.
bool sleeps(::pid_t thread) {
  std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string const line{std::istreambuf_iterator<char>(stat), {}};
  return line.find(") S") != std::string::npos;
}

/// What a driver that is slow to take a chunk back lets another thread do meanwhile.
struct taker {
  physical_chunks* chunks = nullptr;
  std::array<chunk*, 8> place{};
  std::atomic<::pid_t> number{0};
  std::atomic<bool> done{false};
  bool served = false;
  std::thread thread;

  void begin() {
    thread = std::thread([this] {
      number = ::gettid();
      served = chunks->take(place).has_value();
      done = true;
    });
    while (!done && (number == 0 || !sleeps(number))) std::this_thread::yield();
  }
};
taker* waiting = nullptr;

}  // namespace

TEST_CASE_FIXTURE(chunks_of_a_device, "what is going back to the device is waited for before a request is refused") {
  detail::driver_functions driver = detail::driver();
  driver.cuMemRelease = [](CUmemGenericAllocationHandle handle) {
    if (taker* const other = std::exchange(waiting, nullptr); other != nullptr) other->begin();
    return detail::driver().cuMemRelease(handle);
  };
  physical_chunks chunks(driver, kind(), chunk_bytes, 8 * chunk_bytes);
  REQUIRE(chunks.take(slots) == 8);
  chunks.drop(slots);
  taker other;
  other.chunks = &chunks;
  waiting = &other;
  CHECK(chunks.trim(7 * chunk_bytes) == chunk_bytes);
  other.thread.join();
  CHECK(other.served);
  if (other.served) chunks.drop(other.place);
}
