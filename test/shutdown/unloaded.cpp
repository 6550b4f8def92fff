// A shared library with stacks in static objects gives everything back when it is unloaded, and leaves nothing behind
// that `exit` falls over.
#include <weir/adaptors/tracking.hpp>
#include <weir/bridges/per_device.hpp>
#include <weir/sources/virtual_memory.hpp>
#include <weir/support/sampled_clock.hpp>
#include <weir/tools/config_text.hpp>
#include <weir/tools/log_reader.hpp>
#include <weir/weir.hpp>

#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>

#include <dlfcn.h>

#include <array>
#include <barrier>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <typeinfo>

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

TEST_CASE("a library goes though threads had arenas in it, once they have ended") {
  void* const library = ::dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  auto const use = reinterpret_cast<void (*)()>(::dlsym(library, "use_an_arena"));
  REQUIRE(bool(use));
  std::thread(use).join();
  CHECK(sim::live_bytes(0) > 0);
  REQUIRE(::dlclose(library) == 0);
  REQUIRE(::dlopen(PLUGIN, RTLD_NOW | RTLD_NOLOAD) == nullptr);
  CHECK(sim::live_bytes(0) == 0);
}

TEST_CASE("a library goes though threads live on that have arenas in it, and may come back to others") {
  std::barrier used(2), gone(2);
  std::thread other;
  for (int i = 0; i < 3; ++i) {
    void* const library = ::dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != nullptr);
    auto const use = reinterpret_cast<void (*)()>(::dlsym(library, "use_an_arena"));
    REQUIRE(bool(use));
    use();
    if (i == 0) {
      other = std::thread([&, use] {
        use();
        used.arrive_and_wait();
        gone.arrive_and_wait();
      });
      used.arrive_and_wait();
    }
    CHECK(sim::live_bytes(0) > 0);
    CHECK(::dlclose(library) == 0);
    CHECK(::dlopen(PLUGIN, RTLD_NOW | RTLD_NOLOAD) == nullptr);
    CHECK(sim::live_bytes(0) == 0);
  }
  gone.arrive_and_wait();
  other.join();  // which runs nothing of the library's
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

TEST_CASE("what a library records has its place in the order of what the program does") {
  void* const library = ::dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  auto const in_plugin = reinterpret_cast<std::uint64_t (*)()>(::dlsym(library, "time_of_event"));
  REQUIRE(bool(in_plugin));
  std::uint64_t last = 0;
  for (int i = 0; i < 100; ++i) {
    detail::thread_clock.look_if_due();
    std::uint64_t const here = detail::thread_clock.next(0), there = in_plugin();
    CHECK(here > last);
    CHECK(there > here);
    last = there;
  }
  REQUIRE(::dlclose(library) == 0);
}

namespace {

/// The library, and a stack that it made, which goes before it.
class loaded_plugin {
 public:
  loaded_plugin() : library_(::dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL)) {
    REQUIRE_MESSAGE(library_ != nullptr, ::dlerror());
    function<void (*)(std::optional<any_resource>&)>("make_a_stack")(stack);
    REQUIRE(stack.has_value());
  }
  ~loaded_plugin() {
    stack.reset();
    ::dlclose(library_);
  }
  loaded_plugin(loaded_plugin const&) = delete;
  loaded_plugin& operator=(loaded_plugin const&) = delete;

  template <class Function>
  Function function(char const* name) const {
    auto const found = reinterpret_cast<Function>(::dlsym(library_, name));
    REQUIRE(bool(found));
    return found;
  }

  std::optional<any_resource> stack;

 private:
  void* library_;
};

unsigned misuses = 0;

}  // namespace

// Such a library has a copy of weir's functions of its own. What the process has one of, it has to share all the same.
TEST_CASE("a library that hides its symbols knows of captures that the program declares") {
  loaded_plugin plugin;
  auto service = make(share(*plugin.stack) | limit{.max_bytes = 16_MiB});
  weir::stream const stream;
  cudaGraph_t graph = nullptr;
  std::uint64_t id = 0;
  void* of_graph = nullptr;
  {
    capture_scope const declared;
    REQUIRE(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    id = capture_id(stream);
    of_graph = service.allocate(stream, 1_MiB);
    service.deallocate(stream, of_graph, 1_MiB);
    REQUIRE(cudaStreamEndCapture(stream.get(), &graph) == cudaSuccess);
  }
  CHECK(service.captured() == 1_MiB);
  void* const other = service.allocate(stream, 1_MiB);
  CHECK(other != of_graph);  // the graph may be launched
  service.deallocate(stream, other, 1_MiB);
  REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(release_captured(service, id) == 1_MiB);
  CHECK(service.used() == 0);
}

TEST_CASE("a library that hides its symbols has the program's tags and its misuse handler") {
  loaded_plugin plugin;
  auto service = make(share(*plugin.stack) | statistics{});
  void* p = nullptr;
  {
    tag const scope{"of the program"};
    p = service.allocate(host_order, 1000);
  }
  CHECK(report_of(service).lines().find("of the program") != std::string::npos);
  misuses = 0;
  misuse_handler const before = set_misuse_handler([](char const*) noexcept { ++misuses; });
  service.deallocate(host_order, p, 999);
  set_misuse_handler(before);
  CHECK(misuses == 1);
  CHECK(service.numbers().live() == 1);  // the library's layer told the program's
  service.deallocate(host_order, p, 1000);
}

TEST_CASE("a library that hides its symbols sets the current memory of the whole process") {
  loaded_plugin const plugin;
  std::optional<per_device_scope> scope;
  plugin.function<void (*)(std::optional<per_device_scope>&)>("make_current")(scope);
  CHECK(report_of(current_memory()).lines().find("of the library") != std::string::npos);
  scope.reset();
  CHECK(report_of(current_memory()).lines().find("of the library") == std::string::npos);
}

TEST_CASE(
    "a pool of a library that hides its symbols gives chunks back for one of the program's below the same limit") {
  loaded_plugin const plugin;
  auto chunks = make(virtual_memory{} | limit{.max_bytes = 8_MiB});
  std::optional<any_resource> other;
  plugin.function<void (*)(decltype(chunks)&, std::optional<any_resource>&)>("make_a_pool_on")(chunks, other);
  other->deallocate(host_order, other->allocate(host_order, 6_MiB), 6_MiB);
  auto memory = make(share(chunks) | pool{});
  memory.deallocate(host_order, memory.allocate(host_order, 4_MiB), 4_MiB);
  CHECK(plugin.function<bool (*)(any_ref, decltype(chunks)&)>("refers_to")(any_ref(chunks), chunks));
}

// libc++ takes two errors for one type only where there is one object that describes it.
TEST_CASE("errors of a library that hides its symbols are caught in the program by their types") {
  loaded_plugin const plugin;
  using types = std::array<std::type_info const*, 4>;
  types theirs{};
  plugin.function<void (*)(types&)>("types_of_errors")(theirs);
  CHECK(theirs == types{&typeid(out_of_memory), &typeid(cuda_error), &typeid(config_error), &typeid(damaged_trace)});
}
