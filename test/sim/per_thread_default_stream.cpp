// needs: tsan
// The same runtime for files that are compiled with the per-thread default stream.

#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include "support.hpp"

#include <weir/sim/sim.hpp>

#include <string>
#include <thread>

using namespace sim_test;

TEST_CASE_FIXTURE(fresh, "handle 0 is the calling thread's own stream") {
  auto const mine = id_of(nullptr);
  CHECK_EQ(mine, id_of(cudaStreamPerThread));
  CHECK_NE(mine, id_of(cudaStreamLegacy));
  unsigned long long others = 0;
  std::thread([&] { others = id_of(nullptr); }).join();
  CHECK_NE(others, mine);
}

TEST_CASE_FIXTURE(fresh, "the twins count under the plain names") {
  ok(cudaStreamSynchronize(nullptr));
  CHECK_EQ(sim::calls("cudaStreamSynchronize"), 1);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "cudaMemcpy takes its place in the thread's own stream") {
  void* p = nullptr;
  ok(cudaMalloc(&p, 1));
  char back = 0;
  ok(cudaMemsetAsync(p, 'a', 1, nullptr));
  ok(cudaMemcpy(&back, p, 1, cudaMemcpyDeviceToHost));
  CHECK_EQ(back, 'a');
  ok(cudaMemsetAsync(p, 'b', 1, make_stream(cudaStreamDefault)));
  ok(cudaMemcpy(&back, p, 1, cudaMemcpyDeviceToHost));
  CHECK_EQ(back, 'a');
}

TEST_CASE_FIXTURE(fresh_and_lazy, "the work of a thread's stream outlives the thread") {
  diary d;
  cudaEvent_t const e = make_event();
  std::thread([&] {
    d.mark(nullptr, 1);
    ok(cudaEventRecord(e, nullptr));
  }).join();
  CHECK_EQ(cudaEventQuery(e), cudaErrorNotReady);
  ok(cudaEventSynchronize(e));
  CHECK_EQ(d.reached(), numbers{1});
}

TEST_CASE_FIXTURE(fresh, "a thread's stream is there until the last of its thread_local objects is gone") {
  struct asks_at_its_end {
    unsigned long long& id;
    ~asks_at_its_end() { ok(cudaStreamGetId(cudaStreamPerThread, &id)); }
  };
  unsigned long long before = 0, at_the_end = 0;
  std::thread([&] {
    thread_local asks_at_its_end const made_first{at_the_end};
    ok(cudaStreamGetId(cudaStreamPerThread, &before));
  }).join();
  CHECK(before != 0);
  CHECK_EQ(at_the_end, before);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "copies and sets of rows, callbacks and attachments have twins too") {
  void* p = nullptr;
  std::size_t pitch = 0;
  ok(cudaMallocPitch(&p, &pitch, 1, 2));
  char back[3] = "..";
  ok(cudaMemset2DAsync(p, pitch, 'a', 1, 2, nullptr));
  ok(cudaMemset2D(static_cast<char*>(p) + pitch, pitch, 'b', 1, 1));
  ok(cudaMemcpy2DAsync(back, 1, p, pitch, 1, 2, cudaMemcpyDeviceToHost, nullptr));
  ok(cudaStreamSynchronize(nullptr));
  CHECK_EQ(back[0], 'a');
  CHECK_EQ(back[1], 'b');
  back[1] = '.';
  ok(cudaMemcpy2D(back, 1, p, pitch, 1, 2, cudaMemcpyDeviceToHost));
  CHECK_EQ(back[1], 'b');
  void* managed = nullptr;
  ok(cudaMallocManaged(&managed, 8, cudaMemAttachHost));
  ok(cudaStreamAttachMemAsync(nullptr, managed, 0, cudaMemAttachSingle));  // the thread's stream is one stream
  bool called = false;
  ok(cudaStreamAddCallback(
      nullptr, [](cudaStream_t, cudaError_t, void* b) { *static_cast<bool*>(b) = true; }, &called, 0));
  ok(cudaStreamSynchronize(nullptr));
  CHECK(called);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "copies and sets of slices have twins too") {
  cudaPitchedPtr cube{};
  ok(cudaMalloc3D(&cube, {1, 1, 2}));
  cudaExtent const all{1, 1, 2};
  char back[3] = "..";
  cudaMemcpy3DParms asked{};
  asked.dstPtr = {back, 1, 1, 1};
  asked.srcPtr = cube;
  asked.extent = all;
  asked.kind = cudaMemcpyDefault;
  ok(cudaMemset3DAsync(cube, 'a', all, nullptr));
  ok(cudaMemset3D(cube, 'b', {1, 1, 1}));
  ok(cudaMemcpy3DAsync(&asked, nullptr));
  ok(cudaStreamSynchronize(nullptr));
  CHECK_EQ(std::string(back), "ba");
  ok(cudaMemset3DAsync(cube, 'c', all, make_stream(cudaStreamDefault)));
  ok(cudaMemcpy3D(&asked));  // waits for the thread's stream, not for that one
  CHECK_EQ(std::string(back), "ba");

  cudaPitchedPtr copied{};
  ok(cudaMalloc3D(&copied, all));
  cudaMemcpy3DPeerParms between{};
  between.dstPtr = copied;
  between.srcPtr = cube;
  between.extent = all;
  ok(cudaMemcpy3DPeerAsync(&between, nullptr));
  CHECK_EQ(cudaStreamQuery(cudaStreamPerThread), cudaErrorNotReady);
  ok(cudaMemcpy3DPeer(&between));  // after all of the device's work, the blocking stream's too
  asked.srcPtr = copied;
  ok(cudaMemcpy3D(&asked));
  CHECK_EQ(std::string(back), "cc");
}

TEST_CASE_FIXTURE(fresh, "so have launches and the driver's entry points") {
  CHECK_EQ(cudaLaunchKernel(nullptr, 1, 1, nullptr, 0, nullptr), cudaErrorInvalidDeviceFunction);
  CHECK_EQ(cudaLaunchCooperativeKernel(nullptr, 1, 1, nullptr, 0, nullptr), cudaErrorInvalidDeviceFunction);
  cudaLaunchConfig_t config{};
  CHECK_EQ(cudaLaunchKernelExC(&config, nullptr, nullptr), cudaErrorInvalidDeviceFunction);
#if CUDART_VERSION >= 12050
  void *function = nullptr, *legacy = nullptr, *per_thread = nullptr;
  ok(cudaGetDriverEntryPointByVersion("cuStreamQuery", &function, 12000, cudaEnableDefault, nullptr));
  ok(cudaGetDriverEntryPointByVersion("cuStreamQuery", &legacy, 12000, cudaEnableLegacyStream, nullptr));
  ok(cudaGetDriverEntryPointByVersion("cuStreamQuery", &per_thread, 12000, cudaEnablePerThreadDefaultStream, nullptr));
  CHECK_EQ(function, per_thread);
  CHECK_NE(function, legacy);
#endif
  CHECK_EQ(sim::calls("cudaLaunchKernel"), 1);
}

TEST_CASE_FIXTURE(fresh, "a copy between devices that a capture refuses leaves nothing for other streams to wait for") {
  sim::set_mode(sim::mode::lazy);
  void *to = nullptr, *from = nullptr;
  ok(cudaSetDevice(1));
  ok(cudaMalloc(&to, 64));
  ok(cudaMalloc(&from, 64));
  ok(cudaSetDevice(0));
  ok(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeRelaxed));
  cudaMemcpy3DPeerParms between{};
  between.dstPtr = {to, 64, 64, 1};
  between.srcPtr = {from, 64, 64, 1};
  between.dstDevice = between.srcDevice = 1;
  between.extent = {64, 1, 1};
  CHECK_EQ(cudaMemcpy3DPeer(&between), cudaErrorStreamCaptureUnsupported);
  ok(cudaSetDevice(1));
  ok(cudaDeviceSynchronize());
  ok(cudaSetDevice(0));
  cudaGraph_t graph = nullptr;
  CHECK_EQ(cudaStreamEndCapture(cudaStreamPerThread, &graph), cudaErrorStreamCaptureInvalidated);
}
