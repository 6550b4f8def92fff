// Memory, copies and sets of rows.

#include "support.hpp"

#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>

#include <cstdint>
#include <cstring>
#include <string>

using namespace sim_test;

namespace {

struct matrix {
  char* p = nullptr;
  std::size_t pitch = 0;
  matrix(std::size_t width, std::size_t height) {
    void* found = nullptr;
    ok(cudaMallocPitch(&found, &pitch, width, height));
    p = static_cast<char*>(found);
  }
};

}  // namespace

TEST_CASE_FIXTURE(fresh, "rows of pitched memory start where textures may, and all of them are there") {
  matrix const m(1000, 3);
  int unit = 0;
  ok(cudaDeviceGetAttribute(&unit, cudaDevAttrTextureAlignment, 0));
  CHECK_GE(m.pitch, 1000);
  CHECK_EQ(m.pitch % static_cast<std::size_t>(unit), 0);
  CHECK_EQ(sim::live_bytes(0), 3 * m.pitch);
  ok(cudaMemset(m.p + 2 * m.pitch, 0, 1000));
  ok(cudaFree(m.p));
  CHECK_EQ(sim::live_bytes(0), 0);

  cudaPitchedPtr cube{};
  ok(cudaMalloc3D(&cube, {10, 4, 2}));
  CHECK_EQ(cube.xsize, 10);
  CHECK_EQ(cube.ysize, 4);
  CHECK_EQ(sim::live_bytes(0), 8 * cube.pitch);
}

TEST_CASE_FIXTURE(fresh, "pitched memory of more bytes than there are numbers is out of memory") {
  void* p = nullptr;
  std::size_t pitch = 0;
  CHECK_EQ(cudaMallocPitch(&p, &pitch, SIZE_MAX, 1), cudaErrorMemoryAllocation);
  CHECK_EQ(cudaMallocPitch(&p, &pitch, SIZE_MAX / 2, 4), cudaErrorMemoryAllocation);
  CHECK_EQ(cudaMallocPitch(&p, &pitch, std::size_t{1} << 40, std::size_t{1} << 24), cudaErrorMemoryAllocation);
  cudaPitchedPtr cube{};
  CHECK_EQ(cudaMalloc3D(&cube, {512, std::size_t{1} << 32, std::size_t{1} << 32}), cudaErrorMemoryAllocation);
  CHECK_EQ(cudaMallocPitch(nullptr, &pitch, 1, 1), cudaErrorInvalidValue);
  CHECK_EQ(cudaMallocPitch(&p, nullptr, 1, 1), cudaErrorInvalidValue);
  CHECK_EQ(cudaMalloc3D(nullptr, {1, 1, 1}), cudaErrorInvalidValue);
  ok(cudaMallocPitch(&p, &pitch, 0, 5));
  CHECK_EQ(p, nullptr);
}

TEST_CASE_FIXTURE(fresh, "a copy of rows moves them and leaves what is between them alone") {
  matrix const m(3, 2);
  ok(cudaMemset(m.p, '.', 2 * m.pitch));
  char const text[] = "abcdef";
  ok(cudaMemcpy2D(m.p, m.pitch, text, 3, 3, 2, cudaMemcpyHostToDevice));
  char back[10] = "---------";
  ok(cudaMemcpy2D(back, 5, m.p, m.pitch, 3, 2, cudaMemcpyDeviceToHost));
  CHECK_EQ(std::string(back), "abc--def-");
  char between = 0;
  ok(cudaMemcpy(&between, m.p + 3, 1, cudaMemcpyDeviceToHost));
  CHECK_EQ(between, '.');
  ok(cudaMemset2D(m.p, m.pitch, 'x', 2, 2));
  ok(cudaMemcpy2D(back, 5, m.p, m.pitch, 3, 2, cudaMemcpyDefault));
  CHECK_EQ(std::string(back), "xxc--xxf-");
}

TEST_CASE_FIXTURE(fresh_and_lazy, "copies and sets of rows take place in their stream") {
  matrix const m(2, 2);
  cudaStream_t const s = make_stream();
  char text[] = "ab.cd";
  ok(cudaMemcpy2DAsync(m.p, m.pitch, text, 3, 2, 2, cudaMemcpyHostToDevice, s));
  std::strcpy(text, "-----");  // pageable memory: its bytes are taken already
  ok(cudaMemset2DAsync(m.p, m.pitch, 'x', 1, 2, s));
  char back[5] = "....";
  ok(cudaMemcpy2DAsync(back, 2, m.p, m.pitch, 2, 2, cudaMemcpyDeviceToHost, s));
  CHECK_EQ(std::string(back), "....");
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(std::string(back), "xbxd");
}

TEST_CASE_FIXTURE(fresh_and_lazy, "cudaMemcpy2D to the host waits for it, between device memory it does not") {
  matrix const m(2, 2);
  matrix const other(2, 2);
  ok(cudaMemset2D(m.p, m.pitch, 'x', 2, 2));
  ok(cudaMemcpy2D(other.p, other.pitch, m.p, m.pitch, 2, 2, cudaMemcpyDeviceToDevice));
  CHECK_EQ(cudaStreamQuery(cudaStreamLegacy), cudaErrorNotReady);
  char back[5] = "....";
  ok(cudaMemcpy2D(back, 2, other.p, other.pitch, 2, 2, cudaMemcpyDeviceToHost));
  CHECK_EQ(std::string(back), "xxxx");
}

TEST_CASE_FIXTURE(fresh, "rows wider than their pitch and rows that leave their memory are refused") {
  matrix const m(600, 4);
  char text[4096] = {};
  auto const copy = [&](std::size_t pitch, std::size_t from_pitch, std::size_t width, std::size_t height) {
    return cudaMemcpy2D(m.p, pitch, text, from_pitch, width, height, cudaMemcpyHostToDevice);
  };
  CHECK_EQ(copy(m.pitch, 1024, 1024, 4), cudaSuccess);
  CHECK_EQ(copy(m.pitch, 1024, 1025, 2), cudaErrorInvalidPitchValue);
  CHECK_EQ(copy(599, 600, 600, 2), cudaErrorInvalidPitchValue);
  CHECK_EQ(copy(std::size_t{1} << 31, 600, 600, 2), cudaErrorInvalidPitchValue);
  CHECK_EQ(copy(m.pitch, 600, 600, 5), cudaErrorInvalidValue);
  CHECK_EQ(copy(m.pitch, 600, 0, 5), cudaSuccess);
  CHECK_EQ(copy(m.pitch, 600, 600, 0), cudaSuccess);
  CHECK_EQ(cudaMemset2D(m.p, m.pitch, 0, m.pitch, 5), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemset2D(m.p, 599, 0, 600, 2), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemset2D(m.p, 1, 0, 600, 1), cudaSuccess);  // one row needs no pitch
  CHECK_EQ(cudaMemset2D(m.p, m.pitch, 0, m.pitch, 4), cudaSuccess);
}

TEST_CASE_FIXTURE(fresh, "the order of copies of rows is checked") {
  sim::check_order(true);
  cudaStream_t const a = make_stream();
  cudaStream_t const b = make_stream();
  void* p = nullptr;
  ok(cudaMallocAsync(&p, 1024, a));
  ok(cudaMemset2DAsync(p, 512, 0, 100, 2, b));
  REQUIRE_EQ(sim::report_count(), 2);  // one for each row
  CHECK_EQ(sim::reports()[0].kind, sim::order_problem::use_before_allocation);
}
