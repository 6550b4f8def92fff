// Sizes and alignments that cannot be: every stack refuses them with the right error, is as it was, and goes on.
#include <weir/adaptors/spill.hpp>
#include <weir/sim/sim.hpp>
#include <weir/testing/checked.hpp>
#include <weir/weir.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>

using namespace weir;

namespace {

stream_ref const legacy = cudaStreamLegacy;

template <class Call>
std::string error_of(Call call) {
  try {
    call();
    return "nothing";
  } catch (out_of_memory const&) {
    return "out of memory";
  } catch (std::invalid_argument const&) {
    return "invalid argument";
  } catch (std::exception const& other) {
    return other.what();
  }
}

template <class F>
void check_refuses_what_cannot_be(F const& recipe, std::size_t fits = 3000) {
  sim::reset();
  {
    auto memory = make(recipe);
    void* const kept = memory.allocate(legacy, fits);
    auto const live = sim::live_bytes(0);

    int wrong = 0;
    for (std::size_t k = 0; k <= 512; ++k)
      for (stream_ref const order : {legacy, stream_ref(host_order)})
        for (std::size_t const alignment : {std::size_t{1}, default_alignment, max_alignment})
          wrong +=
              error_of([&] { static_cast<void>(memory.allocate(order, SIZE_MAX - k, alignment)); }) != "out of memory";
    CHECK(wrong == 0);
    for (std::size_t const bytes : {std::size_t{1} << 63, (std::size_t{1} << 63) - 1, (std::size_t{1} << 63) + 1,
                                    SIZE_MAX / 2 - max_alignment, SIZE_MAX - max_alignment})
      CHECK(error_of([&] { static_cast<void>(memory.allocate(legacy, bytes)); }) == "out of memory");

    for (std::size_t const alignment :
         {std::size_t{0}, std::size_t{3}, std::size_t{48}, std::size_t{257}, std::size_t{768}, max_alignment - 1,
          max_alignment + 1, 2 * max_alignment, std::size_t{1} << 63, SIZE_MAX, SIZE_MAX - 255})
      CHECK(error_of([&] { static_cast<void>(memory.allocate(legacy, fits, alignment)); }) == "invalid argument");
    CHECK(memory.allocate(legacy, 0, 3) == nullptr);  // nothing that could be wrong
    CHECK(cudaPeekAtLastError() == cudaSuccess);

    CHECK(sim::live_bytes(0) == live);
    void* const next = memory.allocate(legacy, fits);
    CHECK(next != nullptr);
    memory.deallocate(legacy, next, fits);
    memory.deallocate(legacy, kept, fits);
  }
  CHECK(sim::live_allocations() == 0);
}

}  // namespace

TEST_CASE("sources") {
  check_refuses_what_cannot_be(device{});
  check_refuses_what_cannot_be(async{});
  check_refuses_what_cannot_be(managed{});
  check_refuses_what_cannot_be(pinned{});
  check_refuses_what_cannot_be(host{});
}
TEST_CASE("pool") {
  check_refuses_what_cannot_be(device{} | pool{});
  check_refuses_what_cannot_be(async{} | pool{.growth_bytes = 4_MiB, .max_split_bytes = 1_MiB});
}
TEST_CASE("arena") {
  check_refuses_what_cannot_be(device{} | arena{});
  check_refuses_what_cannot_be(device{} | arena{.max_bytes = 1_GiB, .per = arena::owner::stream});
}
TEST_CASE("fixed_size") { check_refuses_what_cannot_be(device{} | fixed_size{.block_bytes = 4096}); }
TEST_CASE("binning") {
  check_refuses_what_cannot_be(device{} | pool{} | binning::powers_of_two(8, 12));
  check_refuses_what_cannot_be(device{} | binning::powers_of_two(8, 12));
}
TEST_CASE("limit") {
  check_refuses_what_cannot_be(device{} | limit{.max_bytes = 1_GiB});
  check_refuses_what_cannot_be(device{} | limit{.max_bytes = SIZE_MAX});
  check_refuses_what_cannot_be(device{} | limit{.max_bytes = SIZE_MAX, .granularity = 1});
  check_refuses_what_cannot_be(device{} | pool{} | limit{.max_bytes = SIZE_MAX} | limit{.max_bytes = SIZE_MAX});
}
TEST_CASE("statistics and logging") {
  check_refuses_what_cannot_be(device{} | statistics{});
  check_refuses_what_cannot_be(device{} | logging{.path = "/dev/null"});
  check_refuses_what_cannot_be(device{} | pool{} | statistics{} | logging{.path = "/dev/null"});
}
TEST_CASE("spill") {
  auto to = make(host{});
  check_refuses_what_cannot_be(device{} | spill{.to = share(to)});
  check_refuses_what_cannot_be(device{} | pool{} | spill{.to = share(to)});
}
TEST_CASE("checked") {
  check_refuses_what_cannot_be(device{} | checked{});
  check_refuses_what_cannot_be(device{} | checked{} | pool{} | checked{});
}
