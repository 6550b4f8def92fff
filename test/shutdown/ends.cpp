// Ends its process in the way that it is told, with stacks alive that hold live, free and pending memory. The exit
// status is 0 if nothing called CUDA after that began; a crash or a hang shows by itself.
#include <weir/adaptors/spillable.hpp>
#include <weir/bridges/per_device.hpp>
#include <weir/containers/vector.hpp>
#include <weir/sources/virtual_memory.hpp>
#include <weir/weir.hpp>

#include <weir/sim/sim.hpp>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace weir;

namespace {

std::uint64_t calls_at_the_end = 0;
bool may_call = false;

void expect_no_more_calls() { calls_at_the_end = sim::calls(); }

/// Made before every other static object of this program, so it goes after them.
struct last_word {
  ~last_word() {
    if (may_call || sim::calls() == calls_at_the_end) return;
    std::fprintf(stderr, "%llu calls of CUDA after the end\n",
                 static_cast<unsigned long long>(sim::calls() - calls_at_the_end));
    ::_exit(1);
  }
} const last;

auto recipe() {
  return async{} | pool{.initial_bytes = 2_MiB} | binning::powers_of_two(8, 12) | limit{.max_bytes = 1_GiB} |
         statistics{} | logging{.path = "/dev/null"};
}

/// Leaves live blocks, pending ones and ones of streams that are gone.
template <class Memory>
void use(Memory& memory) {
  weir::stream const lasting;
  cudaStream_t destroyable = nullptr, gone = nullptr;
  cudaStreamCreateWithFlags(&destroyable, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&gone, cudaStreamNonBlocking);
  for (stream_ref const s :
       {stream_ref(lasting), stream_ref(destroyable), stream_ref(gone), stream_ref(cudaStreamLegacy)}) {
    static_cast<void>(memory.allocate(s, 1000));
    void* const p = memory.allocate(s, 1_MiB);
    sim::touch(s.get(), p, 1_MiB, sim::access::write);
    memory.deallocate(s, p, 1_MiB);
  }
  cudaStreamDestroy(gone);
}

// Made before main, before anything called CUDA.
auto early_on_host = make(host{} | pool{});
auto early = make(recipe());
auto early_arena = make(device{} | arena{});
auto early_fixed = make(managed{} | fixed_size{.block_bytes = 4096});
// These call CUDA before main, and are used in host order only: no stream is ever met.
auto early_filled = make(pinned{} | pool{.initial_bytes = 4_MiB});
auto early_async = make(async{.initial_bytes = 4_MiB});
auto early_chunks = make(virtual_memory{});
auto early_captured = make(device{} | pool{.initial_bytes = 4_MiB});  // only used in a capture
std::unique_ptr<any_resource> filled;

/// Gives memory back when it goes.
template <class Memory>
struct holder {
  explicit holder(Memory& m, stream_ref s) : memory(m), stream(s), p(m.allocate(s, 5000)) {}
  ~holder() { memory.deallocate(stream, p, 5000); }
  holder(holder const&) = delete;
  holder& operator=(holder const&) = delete;
  Memory& memory;
  stream_ref stream;
  void* p;
};

void use_the_early_ones() {
  use(early);
  use(early_arena);
  early_fixed.deallocate(cudaStreamLegacy, early_fixed.allocate(cudaStreamLegacy, 4096), 4096);
  early_on_host.deallocate(cudaStreamLegacy, early_on_host.allocate(cudaStreamLegacy, 4096), 4096);
}

struct of_a_thread {
  decltype(make(recipe())) memory = make(recipe());
  decltype(make(device{} | arena{})) arenas = make(device{} | arena{});
};
void use_the_thread_s() {
  thread_local of_a_thread mine;
  use(mine.memory);
  use(mine.arenas);
}

int end(std::string const& way) {
  if (way == "early") {
    use_the_early_ones();
  } else if (way == "filled_before_main") {
    static_cast<void>(early_filled.allocate(host_order, 1000));
  } else if (way == "filled_before_main_captured") {
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    static_cast<void>(early_captured.allocate(stream, 1000));
    cudaStreamEndCapture(stream, &graph);
  } else if (way == "filled_async_before_main") {
    static_cast<void>(early_async.allocate(host_order, 1000));
  } else if (way == "filled_chunks_before_main") {
    static_cast<void>(early_chunks.map(early_chunks.reserve_range(64_MiB).begin, 4_MiB));
    static_cast<void>(early_chunks.allocate(host_order, 1000));
  } else if (way == "late") {
    use_the_early_ones();
    static auto late = make(recipe());
    use(late);
    static auto on_device = make(device{} | pool{} | statistics{});
    use(on_device);
    static auto bare = make(async{});
    static auto bare_device = make(device{});
    static_cast<void>(bare.allocate(cudaStreamLegacy, 1000));
    static_cast<void>(bare_device.allocate(cudaStreamLegacy, 1000));
    static auto bare_chunks = make(virtual_memory{});
    use(bare_chunks);
  } else if (way == "filled") {
    filled = std::make_unique<any_resource>(recipe());
    use(*filled);
  } else if (way == "containers") {
    static auto pinned_pool = make(pinned{} | pool{});
    weir::stream const lasting;
    // What they hold goes back when the process ends, after the stack was used last and CUDA may be gone.
    static std::unique_ptr<holder<decltype(early)>> const in_stream, in_arena;
    static std::vector<std::unique_ptr<holder<decltype(early)>>> all;
    static std::vector<std::unique_ptr<holder<decltype(early_arena)>>> of_arenas;
    static std::vector<std::unique_ptr<holder<decltype(pinned_pool)>>> of_pinned;
    cudaStream_t destroyable = nullptr;
    cudaStreamCreateWithFlags(&destroyable, cudaStreamNonBlocking);
    for (stream_ref const s : {stream_ref(destroyable), stream_ref(lasting), stream_ref(cudaStreamLegacy)}) {
      all.push_back(std::make_unique<holder<decltype(early)>>(early, s));
      of_arenas.push_back(std::make_unique<holder<decltype(early_arena)>>(early_arena, s));
      of_pinned.push_back(std::make_unique<holder<decltype(pinned_pool)>>(pinned_pool, s));
    }
  } else if (way == "vectors") {
    static std::vector<vector<int>> all;  // on a stack that they own, or refer to
    static std::optional<per_device_scope> scope;
    weir::stream const lasting;
    cudaStream_t destroyable = nullptr;
    cudaStreamCreateWithFlags(&destroyable, cudaStreamNonBlocking);
    scope.emplace(1, any_resource(async{.device = 1} | pool{}));
    for (stream_ref const s : {stream_ref(destroyable), stream_ref(lasting), stream_ref(cudaStreamLegacy)}) {
      all.emplace_back(1000, s, early);
      all.emplace_back(1000, s, any_resource(async{} | pool{}));
      all.emplace_back(1000, s, any_resource(device{}));
      all.back().set_to_zero();
    }
    all.emplace_back(1000, lasting, current_memory(0));
  } else if (way == "spilled") {
    // One on the host, one on the device, one pinned; all of them go before their memory does.
    static auto pinned_pool = make(pinned{} | pool{});
    static auto memory =
        make(device{} | pool{.initial_bytes = 5_MiB, .max_bytes = 5_MiB} | spill{.to = share(pinned_pool)});
    weir::stream const lasting;
    static std::vector<spillable<char>> handles;
    static std::optional<spill_pin<char>> pin;
    for (int i = 0; i < 3; ++i) handles.emplace_back(memory, lasting, 2_MiB);
    pin.emplace(handles.back().pin(lasting));
    if (handles.front().is_on_device()) return 3;
  } else if (way == "thread_local") {
    // A thread's objects go while CUDA is there, the main thread's too: they are the first that `exit` destroys.
    std::size_t const before = sim::live_allocations();
    std::thread(use_the_thread_s).join();
    if (sim::live_allocations() != before) return 3;
    use_the_thread_s();
    may_call = true;
  } else if (way == "quick_exit") {
    use_the_early_ones();
    expect_no_more_calls();
    std::at_quick_exit([] { ::_exit(sim::calls() == calls_at_the_end ? 0 : 1); });
    std::quick_exit(2);
  } else if (way == "exit_from_a_thread") {
    use_the_early_ones();
    std::thread([] {
      use_the_early_ones();
      expect_no_more_calls();
      std::exit(0);
    }).detach();
    for (;;) ::pause();
  } else if (way == "unloading") {
    use_the_early_ones();
    use_the_thread_s();  // this one does call CUDA, which is gone
    may_call = true;
    sim::fail_from(1, cudaErrorCudartUnloading);
  } else {
    std::fprintf(stderr, "no such way to end: %s\n", way.c_str());
    return 2;
  }
  expect_no_more_calls();
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  ::alarm(60);  // a process that does not end is killed, and fails
  sim::set_mode(sim::mode::lazy);
  return count == 2 ? end(arguments[1]) : 2;
}
