#include <weir/sources/immediate_source.hpp>

#include <weir/core/resource.hpp>
#include <weir/cuda/stream.hpp>

#include <doctest/doctest.h>
#include <support/sim_fixture.hpp>
#include <support/test_source.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>

using namespace weir;
using namespace weir::test;

namespace {

/// Memory of the test's own, at most 4096 bytes at once; says on which device it was asked, and what came back.
struct own_memory {
  static constexpr char const* name = "own";
  static constexpr char const* give_call = "give";
  static constexpr bool host_accessible = true;

  static void require(int device) {
    if (device == 1) throw std::invalid_argument("not on device 1");
  }
  static void* take(std::size_t bytes) {
    asked_on = current_device();
    asked_bytes = bytes;
    return bytes <= sizeof memory ? memory : nullptr;
  }
  static cudaError_t give(void* p) {
    ++given;
    return p == memory ? cudaSuccess : cudaErrorInvalidValue;
  }
  static constexpr bool is_of_device_alone = false;
  static constexpr char const* hint = "ask for less";
  static std::string state(int device, std::size_t held) {
    return "state of " + std::to_string(device) + ", which has " + std::to_string(held) + " B";
  }

  alignas(256) static inline std::byte memory[4096];
  static inline int asked_on = -1, given = 0;
  static inline std::size_t asked_bytes = 0;
};

using own_source = detail::immediate_source<own_memory>;
static_assert(resource<own_source> && device_accessible<own_source> && host_accessible<own_source>);
static_assert(host_ordered<own_source>);

}  // namespace

TEST_CASE_FIXTURE(fresh_world, "memory is asked for on the source's device, with room for its alignment") {
  own_source memory(0);
  device_guard const on_other(1);
  void* const p = memory.allocate(host_order, 1000);
  CHECK(p == own_memory::memory);
  CHECK(own_memory::asked_on == 0);
  CHECK(own_memory::asked_bytes == 1000);
  memory.deallocate(host_order, p, 1000);

  void* const aligned = memory.allocate(host_order, 1000, 2048);
  CHECK(reinterpret_cast<std::uintptr_t>(aligned) % 2048 == 0);
  CHECK(own_memory::asked_bytes == memory.taken(1000, 2048));
  caught_misuse const misuse;
  memory.deallocate(host_order, aligned, 1000, 2048);  // gives back where it was taken
  CHECK(misuse.count() == 0);
}

TEST_CASE_FIXTURE(fresh_world,
                  "who cannot serve a request says what the device has, and a device that cannot is refused") {
  own_source memory(0);
  std::string const what = message_of<out_of_memory>([&] { static_cast<void>(memory.allocate(host_order, 5000)); });
  CHECK(contains(what, "refused by own; chain: own(0)"));
  CHECK(contains(what, "state of 0, which has "));
  CHECK(contains(what, "  hint       ask for less"));
  CHECK(memory.allocate(host_order, 0) == nullptr);
  CHECK_THROWS_AS(memory.allocate(host_order, 100, 3), std::invalid_argument);
  CHECK_THROWS_AS(own_source(1), std::invalid_argument);
}

TEST_CASE_FIXTURE(lazy_world, "a free waits for the work of its stream, and only of that") {
  own_source memory(0);
  weir::stream const mine, other;
  void* const p = memory.allocate(mine, 1000);
  bool done = false, others_done = false;
  auto const note = [](void* flag) { *static_cast<bool*>(flag) = true; };
  REQUIRE(cudaLaunchHostFunc(mine.get(), note, &done) == cudaSuccess);
  REQUIRE(cudaLaunchHostFunc(other.get(), note, &others_done) == cudaSuccess);
  int const before = own_memory::given;
  memory.deallocate(mine, p, 1000);
  CHECK(own_memory::given == before + 1);
  CHECK(done);
  CHECK_FALSE(others_done);
}

TEST_CASE_FIXTURE(fresh_world, "what it holds stays right when a pointer is freed that it did not give") {
  caught_misuse const misuse;
  own_source memory(0);
  void* const p = memory.allocate(host_order, 1000);
  std::byte elsewhere[16];
  memory.deallocate(host_order, elsewhere, 400);
  CHECK(misuse.count() == 1);
  CHECK(report_of(memory).lines().find("which has 1000 B") != std::string::npos);
  memory.deallocate(host_order, p, 1000);
  CHECK(report_of(memory).lines().find("which has 0 B") != std::string::npos);
}
