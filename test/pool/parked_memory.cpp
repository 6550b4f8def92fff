// Parking is tested with pools in growable_range.cpp; here is what becomes of spans when a step fails.
#include <weir/pool/parked_memory.hpp>

#include <weir/core/resource_ref.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/test_growable.hpp>
#include <support/test_source.hpp>

using namespace weir;
using namespace weir::test;
using detail::content_store_on;
using detail::parked_memory;

namespace {

constexpr std::size_t chunk = test_growable::chunk;

struct two_spans {
  two_spans() {
    sim::reset();
    range = memory.reserve_range(8 * chunk);
    first = static_cast<unsigned char*>(range.begin);
    second = first + 4 * chunk;
    memory.map(first, chunk);
    memory.map(second, 2 * chunk);
    first[3] = 1;
    second[2 * chunk - 1] = 2;
    parked.reserve(2, 3);
    parked.add(first, chunk);
    parked.add(second, 2 * chunk);
    parked.add_block(first, 4);
    parked.add_block(second, chunk);
    parked.add_block(second + chunk, chunk);
  }

  test_growable memory{8 * chunk};
  source_state state;
  source_resource host{state};
  address_range range;
  unsigned char *first, *second;
  parked_memory parked{new content_store_on<resource_ref<source_resource>>(share(host))};
};

}  // namespace

TEST_CASE("contents come back, as often as they go") {
  two_spans s;
  CHECK(s.parked.bytes() == 3 * chunk);
  s.parked.save(0);
  CHECK(s.state.live_bytes == 2 * chunk + 256);
  CHECK(s.parked.unmap(s.memory));
  CHECK(s.memory.in_use() == 0);
  REQUIRE(s.parked.map(s.memory));
  s.parked.load(s.memory, 0);
  CHECK(s.first[3] == 1);
  CHECK(s.second[2 * chunk - 1] == 2);
}

TEST_CASE("contents that cannot be copied leave nothing behind on the host, and no copy under way") {
  two_spans s;
  sim::set_mode(sim::mode::lazy);
  sim::fail_call("cudaMemcpyAsync", 2, cudaErrorUnknown);
  sim::reset_counters();
  CHECK_THROWS_AS(s.parked.save(0), cuda_error);
  CHECK(sim::calls("cudaStreamSynchronize") == 1);  // the first copy still wrote to the host
  CHECK(s.state.live_bytes == 0);
  CHECK(s.memory.in_use() == 3 * chunk);
}

TEST_CASE("contents that cannot be copied back are kept for the next time") {
  two_spans s;
  sim::set_mode(sim::mode::lazy);
  s.parked.save(0);
  s.parked.unmap(s.memory);
  REQUIRE(s.parked.map(s.memory));
  sim::fail_call("cudaMemcpyAsync", 2, cudaErrorUnknown);
  CHECK_THROWS_AS(s.parked.load(s.memory, 0), cuda_error);
  CHECK(s.memory.in_use() == 0);
  sim::run_all();  // nothing is left to write where no memory is
  s.memory.capacity = 2 * chunk;
  CHECK_FALSE(s.parked.map(s.memory));
  CHECK(s.memory.in_use() == 0);
  s.memory.capacity = 3 * chunk;
  REQUIRE(s.parked.map(s.memory));
  s.parked.load(s.memory, 0);
  CHECK(s.second[2 * chunk - 1] == 2);
  CHECK(s.memory.wrong == 0);
}

TEST_CASE("where the stream of the copies cannot be waited for, the device is") {
  two_spans s;
  sim::set_mode(sim::mode::lazy);
  sim::fail_call("cudaStreamSynchronize", 1, cudaErrorUnknown);
  s.parked.save(0);
  s.parked.unmap(s.memory);
  REQUIRE(s.parked.map(s.memory));
  sim::fail_call("cudaStreamSynchronize", 1, cudaErrorUnknown);
  s.parked.load(s.memory, 0);
  CHECK(s.first[3] == 1);
  CHECK(s.second[2 * chunk - 1] == 2);
}

TEST_CASE("contents count as copied only if something was waited for") {
  two_spans s;
  sim::fail_call("cudaStreamSynchronize", 1, cudaErrorUnknown);
  sim::fail_call("cudaDeviceSynchronize", 1, cudaErrorUnknown);
  CHECK_THROWS_AS(s.parked.save(0), cuda_error);
  CHECK(s.state.live_bytes == 0);
}
