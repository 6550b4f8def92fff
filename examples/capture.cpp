// A step of work, captured into a graph once and launched often: the pool keeps the memory that the graph uses until it
// is told that the graph is gone.
#include <weir/adaptors/pool.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>

#include <cstdio>

using namespace weir::literals;

int main() {
  auto memory = weir::make(weir::device{} | weir::pool{});
  weir::stream const stream;
  auto const show = [&](char const* when) {
    weir::pool_numbers const n = memory.numbers();
    std::printf("%-10s %s allocated, %s captured\n", when, weir::format_bytes(n.allocated.current).c_str(),
                weir::format_bytes(n.captured).c_str());
    return n.captured;
  };

  cudaGraph_t graph = nullptr;
  std::uint64_t id = 0;
  void* result = nullptr;
  {
    weir::capture_scope const declared;  // since a pool knows a `weir::stream` without asking CUDA
    cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal);
    id = weir::capture_id(stream);
    void* const scratch = memory.allocate(stream, 4_MiB);  // may take memory from CUDA: that breaks no capture
    cudaMemsetAsync(scratch, 7, 4_MiB, stream.get());
    result = memory.allocate(stream, 1_MiB);
    cudaMemcpyAsync(result, scratch, 1_MiB, cudaMemcpyDeviceToDevice, stream.get());
    memory.deallocate(stream, scratch, 4_MiB);  // from now on for this capture alone
    cudaStreamEndCapture(stream.get(), &graph);
  }
  if (graph == nullptr) return 1;
  bool const kept = show("captured:") == 4_MiB;

  cudaGraphExec_t step = nullptr;
  cudaGraphInstantiate(&step, graph, 0);
  for (int i = 0; i < 3; ++i) {
    void* const other = memory.allocate(stream, 4_MiB);  // never what the graph writes to
    cudaGraphLaunch(step, stream.get());
    cudaMemsetAsync(other, 0, 4_MiB, stream.get());
    memory.deallocate(stream, other, 4_MiB);
  }
  unsigned char last = 0;
  cudaMemcpyAsync(&last, static_cast<unsigned char*>(result) + 1_MiB - 1, 1, cudaMemcpyDeviceToHost, stream.get());
  memory.deallocate(stream, result, 1_MiB);  // the graph still writes there, so this is kept, too
  bool const kept_more = show("launched:") == 5_MiB;

  cudaGraphExecDestroy(step);
  cudaGraphDestroy(graph);
  stream.synchronize();         // no launch is left
  memory.release_captured(id);  // and so its memory is everyone's
  bool const released = show("released:") == 0;
  return kept && kept_more && released && last == 7 ? 0 : 1;
}
