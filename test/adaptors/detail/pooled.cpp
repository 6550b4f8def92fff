// What pool, fixed_size and arena have in common: the same front, with and without caching.
#include <weir/adaptors/detail/pooled.hpp>

#include <weir/adaptors/arena.hpp>
#include <weir/adaptors/fixed_size.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/numbers.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/cuda/stream.hpp>

#include <doctest/doctest.h>
#include <support/test_growable.hpp>
#include <support/test_source.hpp>

#include <cstdlib>
#include <string>
#include <tuple>

using namespace weir;
using namespace weir::test;

namespace {

constexpr auto all_pools = std::tuple{pool{.max_bytes = 4_MiB}, fixed_size{.block_bytes = 1_MiB, .max_bytes = 4_MiB},
                                      arena{.max_bytes = 4_MiB}};

/// Calls `f(options)` for each.
template <class F>
void for_each_pool(F f) {
  std::apply([&](auto const&... options) { (f(options), ...); }, all_pools);
}

/// While it lives, pools that are made pass everything on.
struct no_caching {
  no_caching() { ::setenv("WEIR_NO_CACHING", "1", 1); }
  ~no_caching() { ::unsetenv("WEIR_NO_CACHING"); }
};

}  // namespace

TEST_CASE("without caching, every kind of pool passes requests on, and its line with what fails below") {
  no_caching const passing;
  for_each_pool([](auto const& options) {
    source_state state;
    auto memory = make(source{&state} | options);
    CAPTURE(memory.layer_name);
    void* const p = memory.allocate(host_order, 1000);
    CHECK(state.live_bytes == 1000);
    memory.deallocate(host_order, p, 1000);
    CHECK(state.live_bytes == 0);
    CHECK(memory.numbers().reserved.current == 0);
    CHECK(taken(memory, 1000) == 1000);
    state.fail = failing::out_of_memory;
    std::string const what = message_of<out_of_memory>([&] { static_cast<void>(memory.allocate(host_order, 1000)); });
    CHECK(contains(what, std::string("refused by source; chain: ") + memory.layer_name + "("));
    CHECK(contains(what, ") > source\n"));
  });
}

TEST_CASE("without caching, a wrong free is kept from what is below, and from the accounts above") {
  no_caching const passing;
  for_each_pool([](auto const& options) {
    source_state state;
    auto memory = make(source{&state} | options | limit{8_MiB});
    void* const p = memory.allocate(host_order, 1000);
    caught_misuse const misuse;
    memory.deallocate(host_order, p, 2000);
    memory.deallocate(host_order, p, 900);
    stream const s;
    deallocate_after(memory, host_order, p, 900, {s});
    CHECK(misuse.count() == 3);
    CHECK(state.live_bytes == 1000);
    CHECK(memory.used() == 1024);
    memory.deallocate(host_order, p, 1000);
    CHECK(misuse.count() == 3);
    CHECK(state.live_bytes == 0);
    CHECK(memory.used() == 0);
  });
}

TEST_CASE("every kind of pool refuses in its own name, and counts that") {
  for_each_pool([](auto const& options) {
    source_state state;
    auto memory = make(source{&state} | options);
    CAPTURE(memory.layer_name);
    try {
      static_cast<void>(memory.allocate(host_order, 5_MiB));
      FAIL("it was not refused");
    } catch (out_of_memory const& failure) {
      CHECK(failure.refused_by() == std::string(memory.layer_name));
      CHECK(failure.request().rounded == 5_MiB);
      CHECK(contains(failure.what(), std::string("chain: ") + memory.layer_name + "("));
      CHECK(contains(failure.what(), ") > source\n"));
    }
    CHECK(memory.numbers().out_of_memory == 1);
  });
}

TEST_CASE("every kind of pool reports a wrong free in its own name") {
  for_each_pool([](auto const& options) {
    source_state state;
    auto memory = make(source{&state} | options);
    void* const p = memory.allocate(host_order, 1000);
    caught_misuse const misuse;
    memory.deallocate(host_order, p, 999);
    CHECK(misuse.count() == 1);
    CHECK(contains(misuse.last(), std::string("weir: ") + memory.layer_name + ": deallocate of " + detail::hex(p)));
    memory.deallocate(host_order, p, 1000);
    CHECK(misuse.count() == 1);
  });
}

TEST_CASE("a pool that cannot be unparked says whether others have its memory or a budget became too small for it") {
  constexpr std::size_t chunk = test_growable::chunk;
  shared_growable below(10 * chunk);
  auto memory = make(share(below) | limit{.max_bytes = 8 * chunk} | pool{});
  void* const p = memory.allocate(host_order, 6 * chunk);
  memory.park(drop_contents);
  auto const refusal = [&] { return message_of<out_of_memory>([&] { memory.unpark(); }); };
  find_limit(memory).set_max_bytes(5 * chunk);
  CHECK(contains(refusal(), "a budget below is less than what this pool had: raise it (set_max_bytes)"));
  find_limit(memory).set_max_bytes(6 * chunk);
  {
    auto const promised = make(share(below) | pool{.min_bytes = 5 * chunk});
    CHECK(contains(refusal(), "others use what this pool gave back, or are promised it (min_bytes)"));
  }
  memory.unpark();
  memory.deallocate(host_order, p, 6 * chunk);
}
