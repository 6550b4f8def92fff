// Runs the suite; the arguments are Google Benchmark's. `bench/run` builds it, runs it and reads what it writes.

#include "../peers/peers.hpp"
#include "measured.hpp"

#include <benchmark/benchmark.h>

#include <thread>

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
  bench::add_nothing();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
