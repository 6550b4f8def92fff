// Runs the suite. `bench/run` builds it, runs it and reads what it writes.
//
//   bench_suite [--pool=LIBRARY...] [GOOGLE BENCHMARK'S ARGUMENT...]
//     --pool   also that of another commit: a library made from pool_of_commit.cpp

#include "../peers/peers.hpp"
#include "measured.hpp"

#include <benchmark/benchmark.h>

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <vector>

namespace {

/// Adds the benches of a library made from pool_of_commit.cpp, which stays loaded.
void add_pool_of(char const* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void* const add = library == nullptr ? nullptr : dlsym(library, "bench_add_pool_of_commit");
  if (add == nullptr) {
    std::fprintf(stderr, "bench_suite: --pool: %s\n", dlerror());
    std::exit(2);
  }
  reinterpret_cast<void (*)()>(add)();
}

}  // namespace

int main(int argc, char** argv) {
  // A program that uses CUDA has threads, and glibc's mutexes are cheaper as long as there was none: without this,
  // figures would depend on which benches ran before.
  std::thread([] {}).join();
  bench::add_weir();
  bench::add_sources();
  bench::add_cub();
  bench::add_thrust();
#ifdef BENCH_RMM
  bench::add_rmm();
#else
  bench::leave_out("RMM", BENCH_RMM_LEFT_OUT);
#endif
  bench::add_host_allocators();
  bench::add_floors();
  constexpr std::string_view option = "--pool=";
  auto const is_ours = [&](char const* argument) { return std::string_view(argument).starts_with(option); };
  std::vector<char*> arguments;  // Google Benchmark's
  for (int i = 0; i < argc; ++i) is_ours(argv[i]) ? add_pool_of(argv[i] + option.size()) : arguments.push_back(argv[i]);
  argc = static_cast<int>(arguments.size());
  argv = arguments.data();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
