// How much memory does each phase of a program use? One layer counts everything, and a scope counts one phase on one
// thread.
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>

#include <cstdint>
#include <cstdio>

using namespace weir::literals;

int main() {
  auto memory = weir::make(weir::async{} | weir::pool{} | weir::statistics{});
  weir::stream const stream;

  weir::memory_statistics solved, step;
  void* const input = memory.allocate(stream, 3_MiB);
  {
    weir::statistics_scope solve(memory);
    void* const matrix = memory.allocate(stream, 8_MiB);
    for (int i = 0; i < 10; ++i) {
      weir::statistics_scope one(memory);  // what it sees, `solve` sees too
      void* const scratch = memory.allocate(stream, 1000);
      memory.deallocate(stream, scratch, 1000);
      step = one.numbers();
    }
    memory.deallocate(stream, input, 3_MiB);  // older than the scope: it counts negative there
    memory.deallocate(stream, matrix, 8_MiB);
    solved = solve.numbers();
  }
  stream.synchronize();

  std::printf("%s\n%s\n%s", step.summary("one step").c_str(), solved.summary("solve, with its ten steps").c_str(),
              memory.summary("the whole program").c_str());

  bool const right = step.requested.peak == 1000 && step.allocated.peak == 1024 && step.allocations.total == 1 &&
                     solved.allocations.total == 11 && solved.requested.current == -std::int64_t{3 << 20} &&
                     memory.numbers().requested.peak == (std::int64_t{11} << 20) + 1000 &&
                     memory.numbers().requested.current == 0;
  return right ? 0 : 1;
}
