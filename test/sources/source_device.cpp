#include <weir/core/call_note.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources.hpp>
#include <weir/sources/callback.hpp>
#include <weir/sources/source_device.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <doctest/doctest.h>
#include <support/captures.hpp>
#include <support/sim_fixture.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>

using namespace weir;
using namespace weir::test;

TEST_CASE_FIXTURE(fresh_world, "the current device is chosen where none is named") {
  device_guard const on_other(1);
  CHECK(detail::chosen_device("x", -1) == 1);
  CHECK(detail::chosen_device("x", 0) == 0);
  CHECK_THROWS_AS(detail::chosen_device("x", 2), std::invalid_argument);
}

TEST_CASE_FIXTURE(fresh_world, "a device that lacks something is refused with what that means") {
  detail::require_ability("x", 0, cudaDevAttrManagedMemory, "cannot");
  CHECK_THROWS_WITH_AS(detail::require_ability("x", 1, cudaDevAttrIntegrated, "is no part of the host"),
                       "weir: x: device 1 is no part of the host", std::invalid_argument);
}

TEST_CASE_FIXTURE(fresh_world, "a report has a line on the device, whether CUDA answers or not") {
  sim::set_capacity(0, 1_GiB);
  CHECK(detail::device_state(0) == "device 0: 1.00 GiB free of 1.00 GiB");
  sim::fail_call("cudaMemGetInfo", 1, cudaErrorUnknown);
  CHECK(detail::device_state(0) == "device 0: its memory could not be asked for");
}

TEST_CASE("a source that is full says whether its own bound or the device is") {
  auto const bound = std::string("max_bytes of the source is used up: raise it, or free something");
  CHECK(detail::full_source_hint(600, 400, 999) == bound);
  CHECK(std::string(detail::full_source_hint(0, 1001, 1000)).starts_with("the request is larger than max_bytes"));
  CHECK(detail::full_source_hint(600, 400, 1000) == std::string(detail::device_is_full));
  CHECK(detail::full_source_hint(600, 400, 0) == std::string(detail::device_is_full));
}

TEST_CASE_FIXTURE(fresh_world, "no source gives what only a capture's own memory may serve") {
  sim::set_pageable_access(true);
  weir::stream const captured, other;
  capture_scope const declared;
  begin_capture(captured);
  auto const refuses = [&](auto const& recipe) {
    auto memory = make(recipe);
    detail::captured_memory_only const no_more;
    CHECK_THROWS_AS(memory.allocate(captured, 4_KiB), out_of_memory);
    memory.deallocate(other, memory.allocate(other, 4_KiB), 4_KiB);
    memory.deallocate(host_order, memory.allocate(host_order, 4_KiB), 4_KiB);
  };
  refuses(async{});
  refuses(device{});
  refuses(managed{});
  refuses(pinned{});
  refuses(weir::system{});
  refuses(host{});
  refuses(virtual_memory{});
  refuses(callback{.allocate = [](stream_ref s, std::size_t bytes, std::size_t) -> void* {
                     void* p = nullptr;
                     return cudaMallocAsync(&p, bytes, s.get()) == cudaSuccess ? p : nullptr;
                   },
                   .deallocate = [](stream_ref s, void* p, std::size_t, std::size_t) { cudaFreeAsync(p, s.get()); }});
  captured_graph const graph(captured);
}
