// A shared library with stacks in static objects gives everything back when it is unloaded, and leaves nothing behind
// that `exit` falls over.
#include <weir/weir.hpp>

#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <dlfcn.h>

#include <cstdint>
#include <set>
#include <thread>

using namespace weir;

TEST_CASE("a library's stacks go with it, as often as it comes") {
  for (int i = 0; i < 3; ++i) {
    void* const library = ::dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
    REQUIRE_MESSAGE(library != nullptr, ::dlerror());
    auto const use = reinterpret_cast<void (*)()>(::dlsym(library, "use_the_plugin"));
    REQUIRE(bool(use));
    use();
    CHECK(sim::live_bytes(0) > 0);
    REQUIRE(::dlclose(library) == 0);
    REQUIRE(::dlopen(PLUGIN, RTLD_NOW | RTLD_NOLOAD) == nullptr);  // else it did not go, and this shows nothing
    CHECK(sim::live_bytes(0) == 0);
    CHECK(sim::live_allocations() == 0);
  }
}

TEST_CASE("the program's own stacks do not mind that it went") {
  auto memory = make(async{} | pool{});
  void* const p = memory.allocate(cudaStreamLegacy, 1000);
  void* const library = ::dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  reinterpret_cast<void (*)()>(::dlsym(library, "use_the_plugin"))();
  REQUIRE(::dlclose(library) == 0);
  memory.deallocate(cudaStreamLegacy, p, 1000);
  CHECK(memory.numbers().allocated.current == 0);
  CHECK(memory.allocate(cudaStreamLegacy, 1000) == p);
  memory.deallocate(cudaStreamLegacy, p, 1000);
}

TEST_CASE("a pool that a library shares takes no two threads for one, though each of the two counts its own") {
  void* const library = ::dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  auto const in_plugin = reinterpret_cast<std::uint64_t (*)()>(::dlsym(library, "number_of_thread"));
  REQUIRE(bool(in_plugin));
  std::set<std::uint64_t> numbers;
  for (int i = 0; i < 8; ++i)
    std::thread([&] {
      CHECK(numbers.insert(detail::thread_registry::this_number()).second);
      CHECK(numbers.insert(in_plugin()).second);
      CHECK(in_plugin() != detail::thread_registry::this_number());  // else they are not two copies
    }).join();
  REQUIRE(::dlclose(library) == 0);
}
