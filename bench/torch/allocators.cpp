// What an allocation costs the host, and what is held of the device: PyTorch's own allocator, weir as its plug-in, and
// weir by itself. `bench/run-torch` builds and runs it, on the simulated runtime.
#include "../../python/src/plug_in.h"
#include "../replay/trace.hpp"
#include "../support/random_numbers.hpp"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/PeerToPeerAccess.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

constexpr char const* usage = R"usage(allocators WHICH cost | allocators WHICH held TRACE

  WHICH   native       PyTorch's own; with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True its growable segments
          plug-in      weir behind PyTorch's CUDAPluggableAllocator
          extension    weir as the whole allocator, from the library that WEIR_EXTENSION names
          weir         the plug-in's C functions, without PyTorch
  cost    prints `WHICH,MIX,NANOSECONDS` of one free and one allocation, for four mixes
  held    replays a trace and prints `WHICH,TRACE,REQUESTED,RESERVED`: peaks in bytes; one trace a process
)usage";

/// An allocator of PyTorch's, by the functions that its tensors use.
struct torch_allocator {
  caching::CUDAAllocator* allocator;
  void* allocate(std::size_t bytes, cudaStream_t stream) { return allocator->raw_alloc_with_stream(bytes, stream); }
  void* allocate(std::size_t bytes) { return allocator->raw_alloc(bytes); }
  void free(void* p, std::size_t, cudaStream_t) { allocator->raw_delete(p); }
};
struct weir_alone {
  void* allocate(std::size_t bytes, cudaStream_t stream) {
    return weir_malloc(static_cast<std::ptrdiff_t>(bytes), 0, stream);
  }
  void* allocate(std::size_t bytes) { return allocate(bytes, nullptr); }
  void free(void* p, std::size_t bytes, cudaStream_t stream) {
    weir_free(p, static_cast<std::ptrdiff_t>(bytes), 0, stream);
  }
};

double nanoseconds_of_this_thread() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

/// The best of some repeats, by the thread's own time: a busy machine disturbs it little.
template <class F>
double best_of(std::size_t operations, F f) {
  double best = std::numeric_limits<double>::max();
  for (int repeat = 0; repeat < 5; ++repeat) {
    double const began = nanoseconds_of_this_thread();
    f(operations);
    best = std::min(best, (nanoseconds_of_this_thread() - began) / static_cast<double>(operations));
  }
  return best;
}

template <class Subject>
void print_pairs(char const* which, Subject subject) {
  auto const pairs = [&](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) subject.free(subject.allocate(4096), 4096, nullptr);
  };
  pairs(1000);
  std::printf("%s,pair 4 KiB,%.1f\n", which, best_of(100'000, pairs));
}

template <class Subject>
void print_churn(char const* which, char const* mix, Subject subject, std::size_t live, std::size_t most_bytes) {
  struct block {
    void* p;
    std::size_t bytes;
  };
  bench::random_numbers random(7);
  std::vector<block> blocks(live);
  auto const fill = [&](block& b) {
    b.bytes = bench::random_numbers::low(random.next(), most_bytes) + 1;
    b.p = subject.allocate(b.bytes);
  };
  auto const churn = [&](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      block& b = blocks[bench::random_numbers::high(random.next(), live)];
      subject.free(b.p, b.bytes, nullptr);
      fill(b);
    }
  };
  for (block& b : blocks) fill(b);
  churn(2 * live);
  std::printf("%s,%s,%.1f\n", which, mix, best_of(50'000, churn));
  for (block const& b : blocks) subject.free(b.p, b.bytes, nullptr);
}

template <class Subject>
void print_cost(char const* which, Subject subject) {
  print_pairs(which, subject);
  print_churn(which, "random <= 64 KiB 1000 live", subject, 1000, 64 << 10);
  print_churn(which, "random <= 1 MiB 1000 live", subject, 1000, 1 << 20);
  print_churn(which, "random <= 64 KiB 100000 live", subject, 100'000, 64 << 10);
}

/// What the allocator held at most.
std::size_t reserved_peak(bool of_torch) {
  if (of_torch) return static_cast<std::size_t>(caching::getDeviceStats(0).reserved_bytes[0].peak);
  weir_totals totals{};
  if (weir_try_totals(&totals, 0) != weir_ok) throw std::runtime_error(weir_error_text());
  return totals.reserved.peak;
}

template <class Subject>
void print_held(char const* which, Subject subject, char const* file, bool of_torch) {
  bench::trace const trace = bench::read_traces(file).front();
  std::vector<cudaStream_t> streams(trace.streams, nullptr);
  for (std::size_t i = 1; i < streams.size(); ++i) cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking);
  std::vector<void*> blocks(trace.sizes.size());
  std::vector<std::uint32_t> stream_of(trace.sizes.size());
  for (bench::trace::event const& event : trace.events) {
    std::size_t const bytes = trace.sizes[event.block];
    if (event.allocates) {
      stream_of[event.block] = event.stream;
      blocks[event.block] = subject.allocate(bytes, streams[event.stream]);
    } else {
      subject.free(blocks[event.block], bytes, streams[stream_of[event.block]]);
    }
  }
  std::printf("%s,%s,%zu,%zu\n", which, trace.name.c_str(), trace.peak(), reserved_peak(of_torch));
}

caching::CUDAAllocator* own_allocator() {
  caching::init(1);
  c10::cuda::detail::init_p2p_access_cache(1);
  return caching::get();
}
caching::CUDAAllocator* plug_in() {
  static auto const made = torch::cuda::CUDAPluggableAllocator::createCustomAllocator(&weir_malloc, &weir_free);
  return made.get();
}
caching::CUDAAllocator* extension() {
  char const* const file = std::getenv("WEIR_EXTENSION");
  void* const library = file == nullptr ? nullptr : dlopen(file, RTLD_NOW);
  if (library == nullptr) throw std::runtime_error("WEIR_EXTENSION names no library that can be loaded");
  auto const install = reinterpret_cast<char const* (*)()>(dlsym(library, "weir_extension_install"));
  if (char const* const wrong = install()) throw std::runtime_error(wrong);
  return caching::get();
}

template <class Subject>
int run(std::vector<char const*> const& arguments, Subject subject, bool of_torch) {
  if (arguments.size() == 3 && std::string_view(arguments[2]) == "cost")
    print_cost(arguments[1], subject);
  else if (arguments.size() == 4 && std::string_view(arguments[2]) == "held")
    print_held(arguments[1], subject, arguments[3], of_torch);
  else
    return std::fputs(usage, stderr), 2;
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  std::vector<char const*> const arguments(argv, argv + argc);
  std::string_view const which = argc > 1 ? argv[1] : "";
  cudaSetDevice(0);
  int status = 2;
  if (which == "native")
    status = run(arguments, torch_allocator{own_allocator()}, true);
  else if (which == "plug-in")
    status = run(arguments, torch_allocator{plug_in()}, false);
  else if (which == "extension")
    status = run(arguments, torch_allocator{extension()}, false);
  else if (which == "weir")
    status = run(arguments, weir_alone{}, false);
  else
    std::fputs(usage, stderr);
  std::fflush(stdout);
  std::_Exit(status);  // PyTorch's own end is not measured
} catch (std::exception const& error) {
  std::fprintf(stderr, "allocators: %s\n", error.what());
  return 1;
}
