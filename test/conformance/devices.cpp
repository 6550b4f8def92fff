// Stacks for one device that are made, and asked, while another one is current.
#include <weir/adaptors/aligned.hpp>
#include <weir/adaptors/fallback.hpp>
#include <weir/adaptors/prefetch.hpp>
#include <weir/adaptors/scrub.hpp>
#include <weir/adaptors/trace.hpp>
#include <weir/adaptors/tracking.hpp>
#include <weir/sources/callback.hpp>
#include <weir/weir.hpp>

#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>
#include <weir/testing/checked.hpp>

#include <doctest/doctest.h>
#include <support/parsed.hpp>

#include <array>

using namespace weir;

namespace {

/// Layers of a user's: one says which device it is for, the others have an upstream that does.
template <resource Upstream>
struct plain_layer {
  static constexpr bool device_accessible = weir::device_accessible<Upstream>;
  static constexpr bool host_ordered = weir::host_ordered<Upstream>;

  template <recipe F, class Options>
  plain_layer(F const& upstream, Options const&) : below(upstream()) {}
  void* allocate(stream_ref s, std::size_t n, std::size_t a) { return below.allocate(s, n, a); }
  void deallocate(stream_ref s, void* p, std::size_t n, std::size_t a) noexcept { below.deallocate(s, p, n, a); }
  Upstream& upstream() { return below; }

  Upstream below;
};
struct plain {
  template <resource Upstream>
  using on = plain_layer<Upstream>;
};

/// A source of a user's that knows streams only, and takes memory of the device that is current.
struct second_device_resource {
  void* allocate(stream_ref s, std::size_t n, std::size_t) {
    void* p = nullptr;
    REQUIRE(cudaMallocAsync(&p, n, s.get()) == cudaSuccess);
    return p;
  }
  void deallocate(stream_ref s, void* p, std::size_t, std::size_t) noexcept {
    CHECK(cudaFreeAsync(p, s.get()) == cudaSuccess);
  }
  int device() const { return 1; }
};
struct second_device {
  second_device_resource operator()() const { return {}; }
};

/// Allocates, writes and frees 40 MiB in the order of a stream.
void use(auto& memory, stream_ref stream) {
  std::array<void*, 40> blocks{};
  for (void*& p : blocks) {
    p = memory.allocate(stream, 1_MiB);
    sim::touch(stream.get(), p, 1_MiB, sim::access::write);
  }
  for (void* const p : blocks) memory.deallocate(stream, p, 1_MiB);
}

/// A stack for device 1 that is made while device 0 is current.
template <class F>
void stays_in_order(F const& recipe) {
  for (cudaStream_t const default_stream : {cudaStreamLegacy, cudaStreamPerThread}) {
    sim::reset();
    sim::check_order(true);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    {
      auto memory = make(recipe | checked{});
      CHECK(device_of(memory) == 1);
      device_guard const second(1);
      weir::stream const other;
      // More than a segment's worth, so that the other stream comes to ask for what is not done.
      use(memory, default_stream);
      use(memory, other);
      other.synchronize();
      CHECK(cudaDeviceSynchronize() == cudaSuccess);
    }
    if (sim::report_count() != 0) FAIL_CHECK(sim::reports().front().text);
    CHECK(sim::live_allocations() == 0);
  }
  sim::reset();
}

}  // namespace

TEST_CASE("memory freed on a default stream of the stack's device is not given away before its work is done") {
  stays_in_order(device{.device = 1} | pool{});
  stays_in_order(async{.device = 1} | pool{});
  stays_in_order(managed{.device = 1} | pool{});
  stays_in_order(pinned{.device = 1} | pool{});
  stays_in_order(device{.device = 1} | fixed_size{.block_bytes = 1_MiB});
  stays_in_order(device{.device = 1} | arena{});
}

TEST_CASE("the device rises through every layer") {
  stays_in_order(device{.device = 1} | limit{1_GiB} | statistics{} | logging{.path = "/dev/null"} | pool{});
  stays_in_order(device{.device = 1} | trace{.events = 10} | pool{} | trace{.events = 10});
  stays_in_order(device{.device = 1} | tracking{} | pool{} | tracking{});
  stays_in_order(device{.device = 1} | pool{.growth_bytes = 32_MiB} | pool{});
  stays_in_order(device{.device = 1} | binning{{bin{2_MiB, pool{}}}});
  stays_in_order(device{.device = 1} | binning::powers_of_two(18, 20));
  stays_in_order(device{.device = 1} | aligned{} | pool{} | aligned{.alignment = 512});
  stays_in_order(device{.device = 1} | pool{} | checked{} | scrub{.on_allocation = true});
  stays_in_order(managed{.device = 1} | prefetch{} | pool{} | prefetch{});
#if CUDART_VERSION >= 13000
  stays_in_order(async_managed{.device = 1} | pool{});
  stays_in_order(async_pinned{.device = 1} | pool{});
#endif
  stays_in_order([] {
    sim::set_pageable_access(true);
    return make(weir::system{.device = 1} | pool{});
  });
  stays_in_order(device{.device = 1} | plain{} | pool{});
  stays_in_order(second_device{} | pool{});
  stays_in_order(second_device{} | plain{} | arena{});
  stays_in_order(callback{.allocate =
                              [](stream_ref s, std::size_t n, std::size_t) {
                                void* p = nullptr;
                                REQUIRE(cudaMallocAsync(&p, n, s.get()) == cudaSuccess);
                                return p;
                              },
                          .deallocate = [](stream_ref s, void* p, std::size_t,
                                           std::size_t) { CHECK(cudaFreeAsync(p, s.get()) == cudaSuccess); },
                          .device = 1} |
                 pool{});
  stays_in_order(any_resource(device{.device = 1}) | pool{});
  stays_in_order(any_resource(device{.device = 1} | limit{1_GiB}) | fixed_size{.block_bytes = 1_MiB});
  stays_in_order([] { return parse("device(device=1) | limit(1GiB) | pool"); });
  stays_in_order([] { return parse<basic_any_resource<false, false>>("async(device=1) | pool"); });
}

TEST_CASE("the second stack of a fallback, on memory of no device, works with the first one's default streams") {
  stays_in_order(managed{.device = 1} | limit{1_MiB} | fallback{host{} | pool{}});
}

TEST_CASE("references say whose device it is") {
  sim::reset();
  auto memory = make(device{.device = 1} | limit{1_GiB});
  any_ref const by_table(memory);
  CHECK(device_of(share(memory)) == 1);
  CHECK(device_of(by_table) == 1);
  stays_in_order(share(memory) | pool{});
  stays_in_order(by_table | arena{});
}

TEST_CASE("a stack that names no device is for the one that is current when it is made") {
  sim::reset();
  device_guard const second(1);
  CHECK(device_of(make(device{} | pool{})) == 1);
  CHECK(device_of(make(async{})) == 1);
  auto on_host = make(host{} | pool{});
  CHECK(device_of(on_host) == -1);
  CHECK(device_of(any_host_resource(host{})) == -1);

  // Its pool works with that device's default streams.
  sim::set_mode(sim::mode::lazy);
  void* const p = on_host.allocate(cudaStreamLegacy, 1_MiB);
  bool done = false;
  auto const finish = [](void* flag) { *static_cast<bool*>(flag) = true; };
  REQUIRE(cudaLaunchHostFunc(cudaStreamLegacy, finish, &done) == cudaSuccess);
  on_host.deallocate(cudaStreamLegacy, p, 1_MiB);
  on_host.synchronize();
  CHECK(done);
}

TEST_CASE("a fraction is of the memory of the stack's device") {
  sim::reset();
  sim::set_capacity(0, 64_MiB);
  sim::set_capacity(1, 16_MiB);
  CHECK(make(device{.device = 1} | pool{} | limit{.fraction = 0.5}).max_bytes() == 8_MiB);
  CHECK(make(any_resource(async{.device = 1}) | limit{.fraction = 0.5}).max_bytes() == 8_MiB);
}

TEST_CASE("a fraction in a text is of the memory of the stack's device") {
  sim::reset();
  sim::set_capacity(0, 64_MiB);
  sim::set_capacity(1, 16_MiB);
  auto const of_text = parse("device(device=1) | statistics | limit(50%)");
  CHECK(report_of(of_text).chain() == "limit(8.00 MiB) > statistics > device(1)");
}
