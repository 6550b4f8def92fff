#include <weir/sources/pool_sharing.hpp>

#include <weir/adaptors/pool.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <support/sim_fixture.hpp>

#include <unistd.h>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

using namespace weir;
using weir::test::fresh_world;
using weir::test::lazy_world;

namespace {

static_assert(!std::is_copy_constructible_v<pool_descriptor>);

constexpr async for_others{.handle_type = memory_handle::posix_fd};

bool is_open(int descriptor) { return ::fcntl(descriptor, F_GETFD) != -1; }

}  // namespace

TEST_CASE("a block of an exported pool is opened, used, closed, and freed by whom it belongs to") {
  lazy_world const world;
  sim::check_order(true);
  auto memory = make(for_others);
  imported_pool const theirs(export_pool(memory));
  stream const ours, others;
  void* const p = memory.allocate(ours, 1000);
  sim::touch(ours.get(), p, 1000, sim::access::write);
  ours.synchronize();

  void* const q = theirs.open(export_block(p));
  sim::touch(others.get(), q, 1000, sim::access::read);
  theirs.close(others, q);
  others.synchronize();
  CHECK(sim::live_bytes(0) == 1000);

  memory.deallocate(ours, p, 1000);
  CHECK(sim::live_bytes(0) == 0);
  CHECK(sim::report_count() == 0);
}

TEST_CASE("closed in host order as well, and once only") {
  fresh_world const world;
  auto memory = make(for_others);
  imported_pool const theirs(export_pool(memory));
  void* const p = memory.allocate(host_order, 1000);
  void* const once = theirs.open(export_block(p));
  void* const again = theirs.open(export_block(p));
  theirs.close(host_order, once);
  theirs.close(host_order, again);
  theirs.close(host_order, nullptr);
  CHECK(sim::live_bytes(0) == 1000);
  memory.deallocate(host_order, p, 1000);
  CHECK(sim::live_bytes(0) == 0);
}

TEST_CASE("a close in a capture of another stream breaks nothing") {
  fresh_world const world;
  auto memory = make(for_others);
  imported_pool const theirs(export_pool(memory));
  void* const p = memory.allocate(host_order, 1000);
  void* const q = theirs.open(export_block(p));
  stream const captured;
  REQUIRE(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeGlobal) == cudaSuccess);
  theirs.close(host_order, q);
  CHECK(sim::captures_invalidated() == 0);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(captured.get(), &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  memory.deallocate(host_order, p, 1000);
}

TEST_CASE("another device is let in") {
  fresh_world const world;
  auto memory = make(for_others);
  imported_pool theirs(export_pool(memory));
  theirs.let_in(1);
  cudaMemLocation location{};
  location.type = cudaMemLocationTypeDevice;
  location.id = 1;
  cudaMemAccessFlags access{};
  REQUIRE(cudaMemPoolGetAccess(&access, theirs.pool(), &location) == cudaSuccess);
  CHECK(access == cudaMemAccessFlagsProtReadWrite);
}

TEST_CASE("a descriptor is closed with its owner, and once") {
  fresh_world const world;
  auto memory = make(for_others);
  int reopened = -1;
  {
    pool_descriptor first = export_pool(memory), second = export_pool(memory);
    int const number = first.get();
    {
      pool_descriptor const taken = std::move(first);
      CHECK(taken.get() == number);
      CHECK(is_open(number));
    }
    CHECK_FALSE(is_open(number));
    reopened = ::dup(0);
    CHECK(reopened == number);  // somebody else's now
    first = std::move(second);
    CHECK(is_open(first.get()));
  }
  CHECK(is_open(reopened));
  ::close(reopened);
}

TEST_CASE("what was not made for other processes is not exported, and the error says what to do") {
  fresh_world const world;
  auto memory = make(async{});
  try {
    static_cast<void>(export_pool(memory));
    FAIL("nothing was thrown");
  } catch (std::invalid_argument const& error) {
    CHECK(std::string(error.what()).find("make it with async{.handle_type = memory_handle::posix_fd}") !=
          std::string::npos);
  }
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  void* const p = memory.allocate(host_order, 1000);
  CHECK_THROWS_AS(static_cast<void>(export_block(p)), cuda_error);
  memory.deallocate(host_order, p, 1000);
  CHECK_THROWS_AS(imported_pool(0), cuda_error);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("parts of a block, which a pool hands out, are not exported") {
  fresh_world const world;
  auto memory = make(for_others | pool{});
  imported_pool const theirs(export_pool(memory.upstream()));
  void* const first = memory.allocate(host_order, 1000);
  void* const second = memory.allocate(host_order, 1000);
  CHECK_THROWS_AS(static_cast<void>(export_block(second)), cuda_error);
  memory.deallocate(host_order, first, 1000);
  memory.deallocate(host_order, second, 1000);
}

TEST_CASE("each CUDA call on the way may fail, and nothing stays open") {
  int const unused = ::dup(0);
  ::close(unused);
  bool was_hit = true;
  for (std::uint64_t k = 1; was_hit; ++k) {
    fresh_world const world;
    auto memory = make(for_others);
    void* const p = memory.allocate(host_order, 1000);
    std::size_t const handles = sim::live_handles();
    std::uint64_t const before = sim::calls();
    sim::fail_call(k, cudaErrorUnknown);
    try {
      imported_pool const theirs(export_pool(memory));
      theirs.close(host_order, theirs.open(export_block(p)));
    } catch (cuda_error const& error) {
      CHECK(error.code() == cudaErrorUnknown);
    }
    was_hit = sim::calls() - before >= k;
    sim::clear_failure();
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    CHECK(sim::live_handles() <= handles + (was_hit ? 1 : 0));  // of the pool whose destruction failed
    int const still_unused = ::dup(0);
    CHECK(still_unused == unused);
    ::close(still_unused);
  }
}
