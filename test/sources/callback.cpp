#include <weir/core/any_resource.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/sources/callback.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/sim_fixture.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

namespace {

static_assert(resource<made_by<callback>> && recipe<callback> && !resource<callback>);
static_assert(device_accessible<made_by<callback>> && !host_accessible<made_by<callback>>);
static_assert(!device_accessible<made_by<host_callback>> && host_accessible<made_by<host_callback>>);
static_assert(device_accessible<made_by<host_device_callback>> && host_accessible<made_by<host_device_callback>>);

struct call {
  bool allocates;
  stream_ref on;
  void* p;
  std::size_t bytes, alignment;
  int current;
};

/// Two functions that remember how they were called, on host memory.
struct recorder {
  std::vector<call> calls;
  std::size_t misaligned_by = 0;

  void* take(stream_ref s, std::size_t n, std::size_t a) {
    void* const p =
        static_cast<char*>(std::aligned_alloc(a < 256 ? 256 : a, (n + a + 4095) / 4096 * 4096)) + misaligned_by;
    calls.push_back({true, s, p, n, a, current_device()});
    return p;
  }
  void give(stream_ref s, void* p, std::size_t n, std::size_t a) {
    calls.push_back({false, s, p, n, a, current_device()});
    std::free(static_cast<char*>(p) - misaligned_by);
  }
  template <class Options = callback>
  Options options() {
    return {.allocate = [this](stream_ref s, std::size_t n, std::size_t a) { return take(s, n, a); },
            .deallocate = [this](stream_ref s, void* p, std::size_t n, std::size_t a) { give(s, p, n, a); }};
  }
};

stream_ref const given(reinterpret_cast<cudaStream_t>(std::uintptr_t{0x55d0}));

}  // namespace

TEST_CASE("wrong options are refused") {
  recorder r;
  callback options = r.options();
  CHECK(options.valid());
  CHECK(options.order == callback_order::stream);
  CHECK(r.options<host_callback>().order == callback_order::host);
  options.deallocate = {};
  CHECK(options.problem() == "callback: deallocate is empty; give it a function (stream, pointer, bytes, alignment)");
  CHECK_THROWS_AS(static_cast<void>(make(options)), std::invalid_argument);
  CHECK(callback{}.problem() ==
        "callback: allocate is empty; give it a function (stream, bytes, alignment) that returns void*");
  options = r.options();
  options.order = callback_order(7);
  CHECK(options.problem() == "callback: order is 7; it must be stream or host");
  host_callback on_host = r.options<host_callback>();
  on_host.device = 0;
  CHECK(contains(on_host.problem(), "memory that no device reaches belongs to none"));
}

TEST_CASE("functions in stream order are called on the caller's stream, with its numbers") {
  fresh_world const world;
  recorder r;
  auto memory = make(r.options());
  void* const p = memory.allocate(given, 1000, 512);
  memory.deallocate(given, p, 1000, 512);
  REQUIRE(r.calls.size() == 2);
  for (call const& each : r.calls) {
    CHECK(each.on == given);
    CHECK(each.p == p);
    CHECK(each.bytes == 1000);
    CHECK(each.alignment == 512);
  }
  CHECK(sim::calls("cudaStreamSynchronize") == 0);
}

TEST_CASE("in host order, functions in stream order are called on a stream of the source's own, which is waited for") {
  fresh_world const world;
  recorder r;
  auto memory = make(r.options());
  void* const p = memory.allocate(host_order, 1000);
  stream_ref const own = r.calls.at(0).on;
  CHECK_FALSE(own.is_host_order());
  CHECK(own != stream_ref(cudaStreamLegacy));
  CHECK(sim::calls("cudaStreamSynchronize") == 1);
  memory.deallocate(host_order, p, 1000);
  CHECK(r.calls.at(1).on == own);
}

TEST_CASE("a request in host order breaks no capture, and none is refused for one") {
  fresh_world const world;
  recorder r;
  auto memory = make(r.options());
  cudaStream_t capturing = nullptr;
  REQUIRE(cudaStreamCreate(&capturing) == cudaSuccess);  // the legacy stream waits for it
  REQUIRE(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeGlobal) == cudaSuccess);
  memory.deallocate(host_order, memory.allocate(host_order, 1000), 1000);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(capturing, &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaStreamDestroy(capturing) == cudaSuccess);
}

TEST_CASE("functions that know no streams, and call cudaMalloc and cudaFree, break no capture") {
  fresh_world const world;
  auto memory = make(callback{.allocate = [](stream_ref, std::size_t n, std::size_t) -> void* {
                                void* p = nullptr;
                                return cudaMalloc(&p, n) == cudaSuccess ? p : nullptr;
                              },
                              .deallocate =
                                  [](stream_ref, void* p, std::size_t, std::size_t) {
                                    if (cudaFree(p) != cudaSuccess) static_cast<void>(cudaGetLastError());
                                  },
                              .order = callback_order::host});
  void* const before = memory.allocate(cudaStreamPerThread, 1000);
  cudaStream_t capturing = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&capturing, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeGlobal) == cudaSuccess);
  memory.deallocate(cudaStreamPerThread, memory.allocate(cudaStreamPerThread, 1000), 1000);
  memory.deallocate(host_order, before, 1000);
  CHECK(sim::captures_invalidated() == 0);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(capturing, &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaStreamDestroy(capturing) == cudaSuccess);
}

TEST_CASE("functions that know no streams are called in the host's order, after the work of the stream that frees") {
  lazy_world const world;
  recorder r;
  host_device_callback options = r.options<host_device_callback>();
  options.order = callback_order::host;
  auto memory = make(options);
  void* const p = memory.allocate(cudaStreamPerThread, 1000);
  bool done = false;
  auto const finish = [](void* flag) { *static_cast<bool*>(flag) = true; };
  REQUIRE(cudaLaunchHostFunc(cudaStreamPerThread, finish, &done) == cudaSuccess);
  memory.deallocate(cudaStreamPerThread, p, 1000);
  CHECK(done);
  REQUIRE(r.calls.size() == 2);
  for (call const& each : r.calls) CHECK(each.on == stream_ref(host_order));
}

TEST_CASE("the device of the memory is current while the functions run") {
  fresh_world const world;
  recorder r;
  callback options = r.options();
  options.device = 1;
  auto memory = make(options);
  CHECK(device_of(memory) == 1);
  memory.deallocate(given, memory.allocate(given, 10), 10);
  for (call const& each : r.calls) CHECK(each.current == 1);
  CHECK(current_device() == 0);
  options.device = 99;
  CHECK_THROWS_WITH_AS(static_cast<void>(make(options)),
                       "weir: callback: there is no device 99; this process sees 2, numbered from 0",
                       std::invalid_argument);
  CHECK(device_of(make(r.options<host_callback>())) == -1);
}

TEST_CASE("memory of the host only makes no CUDA call in the host's order") {
  fresh_world const world;
  std::size_t live = 0;
  auto memory = make(host_callback{.allocate =
                                       [&](stream_ref, std::size_t n, std::size_t a) {
                                         ++live;
                                         return std::aligned_alloc(a, (n + a - 1) / a * a);
                                       },
                                   .deallocate =
                                       [&](stream_ref, void* p, std::size_t, std::size_t) {
                                         --live;
                                         std::free(p);
                                       }});
  sim::reset_counters();
  void* const p = memory.allocate(host_order, 100);
  CHECK(live == 1);
  memory.deallocate(host_order, p, 100);
  CHECK(live == 0);
  CHECK(sim::calls() == 0);
}

TEST_CASE("null is out of memory, and so is bad_alloc, with its words") {
  fresh_world const world;
  callback options{.allocate = [](stream_ref, std::size_t, std::size_t) { return nullptr; },
                   .deallocate = [](stream_ref, void*, std::size_t, std::size_t) {},
                   .name = "theirs"};
  auto of_null = make(options);
  CHECK(message_of<out_of_memory>([&] { of_null.allocate(given, 1000); }) ==
        "weir: out of memory: 1000 B (1000 B, rounded to 1024 B) on stream 0x55d0, device 0\n"
        "  refused by theirs: callback; chain: theirs: callback\n"
        "  theirs: callback allocate returned null\n"
        "  hint       the functions do not say of what they have no more: free something, ask for less, or let a layer "
        "give way (on_failure, fallback)");
  options.allocate = [](stream_ref, std::size_t, std::size_t) -> void* { throw std::bad_alloc(); };
  auto of_throw = make(options);
  CHECK(contains(message_of<out_of_memory>([&] { of_throw.allocate(given, 1000); }), "allocate threw std::bad_alloc"));
}

TEST_CASE("a refusal says what to do, also of a size that no machine has") {
  auto const hint = [](std::size_t bytes) {
    auto memory =
        make(host_callback{.allocate = [](auto...) -> void* { return nullptr; }, .deallocate = [](auto...) {}});
    try {
      memory.allocate(host_order, bytes);
    } catch (out_of_memory const& refused) {
      return std::string(refused.hint());
    }
    return std::string();
  };
  CHECK(hint(100).starts_with("the functions do not say of what they have no more: free something"));
  CHECK(hint(~std::size_t{0} - 5).starts_with("no machine has as much"));
}

TEST_CASE("what else a function throws passes, an out_of_memory with its own report") {
  fresh_world const world;
  callback options{.allocate = [](stream_ref, std::size_t, std::size_t) -> void* { throw std::runtime_error("no"); },
                   .deallocate = [](stream_ref, void*, std::size_t, std::size_t) {}};
  auto other = make(options);
  CHECK_THROWS_WITH_AS(other.allocate(given, 1), "no", std::runtime_error);
  options.allocate = [](stream_ref s, std::size_t n, std::size_t) -> void* {
    throw out_of_memory({n, n, s}, "theirs", report());
  };
  auto own = make(options);
  CHECK(contains(message_of<out_of_memory>([&] { own.allocate(given, 1); }), "refused by theirs"));
}

TEST_CASE("a pointer that is not aligned is given back and an error") {
  fresh_world const world;
  recorder r;
  r.misaligned_by = 16;
  auto memory = make(r.options());
  std::string const what = message_of<std::logic_error>([&] { memory.allocate(given, 1000); });
  REQUIRE(r.calls.size() == 2);
  CHECK_FALSE(r.calls[1].allocates);
  CHECK(r.calls[1].p == r.calls[0].p);
  CHECK(r.calls[1].on == given);
  CHECK(contains(what, "weir: callback: allocate returned " + detail::hex(r.calls[0].p) +
                           " for 1000 B aligned to 256, which is not so aligned; it was given back"));
  memory.deallocate(given, memory.allocate(given, 1000, 16), 1000, 16);
  CHECK(r.calls.size() == 4);
}

TEST_CASE("requests that no function could serve do not reach it") {
  fresh_world const world;
  recorder r;
  auto memory = make(r.options());
  CHECK(memory.allocate(given, 0) == nullptr);
  memory.deallocate(given, nullptr, 0);
  CHECK_THROWS_AS(memory.allocate(given, 10, 48), std::invalid_argument);
  CHECK_THROWS_AS(memory.allocate(given, SIZE_MAX), out_of_memory);
  CHECK(r.calls.empty());
}

TEST_CASE("budgets are charged with the room in which an aligned address lies, as of other sources") {
  fresh_world const world;
  recorder functions;
  auto memory = make(functions.options());
  CHECK(taken(memory, 256) == 256);
  CHECK(taken(memory, 256, 4096) == 4096);
  CHECK(taken(memory, ~std::size_t{0}, 4096) == 0);
}

TEST_CASE("a deallocate that throws goes to the misuse handler") {
  fresh_world const world;
  int place alignas(256) = 0;
  callback options{.allocate = [&](stream_ref, std::size_t, std::size_t) { return &place; },
                   .deallocate = [](stream_ref, void*, std::size_t, std::size_t) { throw std::runtime_error("a\nb"); }};
  auto memory = make(options);
  caught_misuse const misuse;
  memory.deallocate(given, memory.allocate(given, 4), 4);
  CHECK(misuse.count() == 1);
  CHECK(contains(misuse.last(), "weir: callback: deallocate of " + detail::hex(&place) + " (4 B) threw: a\\nb;"));
  options.deallocate = [](stream_ref, void*, std::size_t, std::size_t) { throw 7; };
  auto odd = make(options);
  odd.deallocate(given, odd.allocate(given, 4), 4);
  CHECK(contains(misuse.last(), "threw: something that is no std::exception"));
}

TEST_CASE("copies of the recipe share its functions, which live as long as one of them") {
  fresh_world const world;
  auto owned = std::make_shared<recorder>();
  std::weak_ptr<recorder> const watched = owned;
  {
    std::unique_ptr<any_resource> stack;
    {
      callback const recipe{
          .allocate = [owned](stream_ref s, std::size_t n, std::size_t a) { return owned->take(s, n, a); },
          .deallocate = [owned](stream_ref s, void* p, std::size_t n, std::size_t a) { owned->give(s, p, n, a); }};
      owned.reset();
      stack = std::make_unique<any_resource>(recipe);
    }
    stack->deallocate(given, stack->allocate(given, 10), 10);
    CHECK(watched.lock()->calls.size() == 2);
  }
  CHECK(watched.expired());
}
