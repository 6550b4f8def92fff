// Copies and sets of slices: `cudaMemcpy3D` and its like.

#include "support.hpp"

#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>

#include <cstdint>
#include <cstring>
#include <string>

using namespace sim_test;

namespace {

cudaPitchedPtr cube_of(std::size_t width, std::size_t height, std::size_t depth) {
  cudaPitchedPtr made{};
  ok(cudaMalloc3D(&made, {width, height, depth}));
  return made;
}

std::size_t bytes_of(cudaPitchedPtr const& cube, std::size_t depth) { return cube.pitch * cube.ysize * depth; }

// Memory of the host without gaps.
cudaPitchedPtr packed(void* p, std::size_t width, std::size_t height) { return {p, width, width, height}; }

cudaMemcpy3DParms copy_of(cudaPitchedPtr const& to, cudaPitchedPtr const& from, cudaExtent extent,
                          cudaMemcpyKind kind = cudaMemcpyDefault) {
  cudaMemcpy3DParms asked{};
  asked.dstPtr = to;
  asked.srcPtr = from;
  asked.extent = extent;
  asked.kind = kind;
  return asked;
}

cudaMemcpy3DPeerParms peer_copy_of(cudaPitchedPtr const& to, int to_device, cudaPitchedPtr const& from, int from_device,
                                   cudaExtent extent) {
  cudaMemcpy3DPeerParms asked{};
  asked.dstPtr = to;
  asked.dstDevice = to_device;
  asked.srcPtr = from;
  asked.srcDevice = from_device;
  asked.extent = extent;
  return asked;
}

std::string all_of(cudaPitchedPtr const& cube, cudaExtent extent) {
  std::string found(extent.width * extent.height * extent.depth, '?');
  auto const asked = copy_of(packed(found.data(), extent.width, extent.height), cube, extent);
  ok(cudaMemcpy3D(&asked));
  return found;
}

auto* const no_array = reinterpret_cast<cudaArray_t>(0x1000);

}  // namespace

TEST_CASE_FIXTURE(fresh, "a copy of slices moves every row and leaves what is between them alone") {
  cudaPitchedPtr const cube = cube_of(3, 2, 2);
  ok(cudaMemset(cube.ptr, '.', bytes_of(cube, 2)));
  char text[] = "abcdefghijkl";
  auto const asked = copy_of(cube, packed(text, 3, 2), {3, 2, 2}, cudaMemcpyHostToDevice);
  ok(cudaMemcpy3D(&asked));
  CHECK_EQ(all_of(cube, {3, 2, 2}), "abcdefghijkl");
  char between = 0;
  ok(cudaMemcpy(&between, static_cast<char*>(cube.ptr) + 3, 1, cudaMemcpyDeviceToHost));
  CHECK_EQ(between, '.');
}

TEST_CASE_FIXTURE(fresh, "a copy begins at its places, in a cube that is larger than what is copied") {
  cudaPitchedPtr const cube = cube_of(4, 3, 3);
  ok(cudaMemset3D(cube, '.', {4, 3, 3}));
  char text[] = "abcdefghijkl";
  auto asked = copy_of(cube, packed(text, 3, 2), {2, 1, 2});
  asked.srcPos = {1, 1, 0};
  asked.dstPos = {2, 1, 1};
  ok(cudaMemcpy3D(&asked));
  CHECK_EQ(all_of(cube, {4, 3, 3}),
           "............"
           "......ef...."
           "......kl....");
}

TEST_CASE_FIXTURE(fresh, "a set of slices writes its part of every slice") {
  cudaPitchedPtr const cube = cube_of(3, 2, 2);
  ok(cudaMemset3D(cube, '.', {3, 2, 2}));
  ok(cudaMemset3D(cube, 'x', {2, 1, 2}));
  CHECK_EQ(all_of(cube, {3, 2, 2}), "xx....xx....");
  CHECK_EQ(sim::calls("cudaMemset3D"), 2);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "copies and sets of slices take place in their stream") {
  cudaPitchedPtr const cube = cube_of(2, 1, 2);
  cudaStream_t const s = make_stream();
  char text[] = "ab--cd--";
  auto asked = copy_of(cube, {text, 4, 2, 1}, {2, 1, 2}, cudaMemcpyHostToDevice);
  ok(cudaMemcpy3DAsync(&asked, s));
  std::strcpy(text, "........");  // pageable memory: its bytes are taken already
  ok(cudaMemset3DAsync(cube, 'x', {1, 1, 2}, s));
  char back[5] = "....";
  asked = copy_of(packed(back, 2, 1), cube, {2, 1, 2}, cudaMemcpyDeviceToHost);
  ok(cudaMemcpy3DAsync(&asked, s));
  CHECK_EQ(std::string(back), "....");
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(std::string(back), "xbxd");
}

TEST_CASE_FIXTURE(fresh_and_lazy, "cudaMemcpy3D to the host waits for it, between device memory it does not") {
  cudaPitchedPtr const cube = cube_of(2, 1, 2);
  cudaPitchedPtr const other = cube_of(2, 1, 2);
  ok(cudaMemset3D(cube, 'x', {2, 1, 2}));
  auto const asked = copy_of(other, cube, {2, 1, 2}, cudaMemcpyDeviceToDevice);
  ok(cudaMemcpy3D(&asked));
  CHECK_EQ(cudaStreamQuery(cudaStreamLegacy), cudaErrorNotReady);
  CHECK_EQ(all_of(other, {2, 1, 2}), "xxxx");
}

TEST_CASE_FIXTURE(fresh, "slices that do not fit what is said of their memory are refused") {
  cudaPitchedPtr const cube = cube_of(600, 4, 3);
  std::string text(600 * 4 * 3, 'a');
  auto const with = [&](auto change) {
    auto asked = copy_of(cube, packed(text.data(), 600, 4), {600, 4, 3}, cudaMemcpyHostToDevice);
    change(asked);
    return cudaMemcpy3D(&asked);
  };
  CHECK_EQ(with([](auto&) {}), cudaSuccess);
  CHECK_EQ(with([](auto& a) { a.dstPtr.pitch = 599; }), cudaErrorInvalidPitchValue);
  CHECK_EQ(with([](auto& a) { a.srcPtr.pitch = 599; }), cudaErrorInvalidPitchValue);
  CHECK_EQ(with([](auto& a) { a.dstPtr.pitch = std::size_t{1} << 31; }), cudaErrorInvalidPitchValue);
  CHECK_EQ(with([](auto& a) { a.srcPos.x = 1; }), cudaErrorInvalidPitchValue);
  CHECK_EQ(with([](auto& a) { a.srcPos.x = SIZE_MAX; }), cudaErrorInvalidPitchValue);
  CHECK_EQ(with([](auto& a) { a.dstPtr.ysize = 3; }), cudaErrorInvalidValue);  // the slices would overlap
  CHECK_EQ(with([](auto& a) { a.srcPtr.ysize = 0; }), cudaErrorInvalidValue);
  CHECK_EQ(with([](auto& a) { a.dstPos.y = 1; }), cudaErrorInvalidValue);
  CHECK_EQ(with([](auto& a) { a.dstPos.z = 1; }), cudaErrorInvalidValue);  // the last slice would lie behind the cube
  CHECK_EQ(with([](auto& a) { a.kind = static_cast<cudaMemcpyKind>(7); }), cudaErrorInvalidMemcpyDirection);
  CHECK_EQ(with([](auto& a) { a.kind = cudaMemcpyDeviceToHost; }), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemcpy3D(nullptr), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemset3D(cube, 0, {cube.pitch + 1, 1, 2}), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemset3D(cube, 0, {1, 5, 2}), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemset3D(cube, 0, {1, 4, 4}), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemset3D(packed(text.data(), 600, 4), 0, {600, 4, 3}), cudaErrorInvalidValue);  // not a device's
}

TEST_CASE_FIXTURE(fresh, "one row needs no pitch, one slice no height, and nothing needs nothing") {
  cudaPitchedPtr const cube = cube_of(600, 4, 3);
  std::string text(600 * 4, 'a');
  auto asked = copy_of({cube.ptr, 0, 0, 0}, {text.data(), 0, 0, 0}, {600, 1, 1});
  CHECK_EQ(cudaMemcpy3D(&asked), cudaSuccess);
  asked = copy_of({cube.ptr, cube.pitch, 0, 0}, {text.data(), 600, 0, 0}, {600, 4, 1});
  CHECK_EQ(cudaMemcpy3D(&asked), cudaSuccess);
  CHECK_EQ(cudaMemset3D({cube.ptr, 0, 0, 0}, 0, {600, 1, 1}), cudaSuccess);
  for (cudaExtent const& nothing : {cudaExtent{0, 4, 3}, cudaExtent{600, 0, 3}, cudaExtent{600, 4, 0}}) {
    asked = copy_of(cube, packed(text.data(), 600, 4), nothing);
    CHECK_EQ(cudaMemcpy3D(&asked), cudaSuccess);
    CHECK_EQ(cudaMemset3D(cube, 0, nothing), cudaSuccess);
  }
}

TEST_CASE_FIXTURE(fresh, "a place far behind its memory is refused, whatever lies there") {
  cudaPitchedPtr const cube = cube_of(16, 1, 1);
  std::string text(16, 'a');
  auto asked = copy_of(cube, packed(text.data(), 16, 1), {16, 1, 1});
  for (std::size_t const z : {std::size_t{1}, std::size_t{1} << 20, SIZE_MAX / 512, SIZE_MAX}) {
    asked.dstPos.z = z;
    CHECK_EQ(cudaMemcpy3D(&asked), cudaErrorInvalidValue);
  }
}

TEST_CASE_FIXTURE(fresh, "arrays are not supported, and an end is one thing") {
  cudaPitchedPtr const cube = cube_of(16, 1, 1);
  auto asked = copy_of(cube, cube, {1, 1, 1});
  asked.srcArray = no_array;
  CHECK_EQ(cudaMemcpy3D(&asked), cudaErrorInvalidValue);  // an array and memory
  asked.srcPtr = {};
  CHECK_EQ(cudaMemcpy3D(&asked), cudaErrorNotSupported);
  CHECK_EQ(cudaMemcpy3DAsync(&asked, nullptr), cudaErrorNotSupported);
  asked.srcArray = nullptr;
  CHECK_EQ(cudaMemcpy3D(&asked), cudaErrorInvalidValue);  // neither
  auto between = peer_copy_of(cube, 0, {}, 0, {1, 1, 1});
  between.srcArray = no_array;
  CHECK_EQ(cudaMemcpy3DPeer(&between), cudaErrorNotSupported);
}

TEST_CASE_FIXTURE(fresh, "slices are copied from device to device without access") {
  cudaPitchedPtr const to = cube_of(2, 2, 2);
  ok(cudaSetDevice(1));
  cudaPitchedPtr const from = cube_of(2, 2, 2);
  ok(cudaSetDevice(0));
  ok(cudaMemset3D(from, 'a', {2, 2, 2}));
  auto asked = peer_copy_of(to, 0, from, 1, {2, 2, 2});
  ok(cudaMemcpy3DPeer(&asked));
  CHECK_EQ(all_of(to, {2, 2, 2}), "aaaaaaaa");
  ok(cudaMemset3D(from, 'b', {1, 1, 2}));
  ok(cudaMemcpy3DPeerAsync(&asked, nullptr));
  CHECK_EQ(all_of(to, {2, 2, 2}), "baaabaaa");

  asked.srcDevice = 0;
  CHECK_EQ(cudaMemcpy3DPeer(&asked), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemcpy3DPeerAsync(&asked, nullptr), cudaErrorInvalidValue);
  asked.srcDevice = 7;
  CHECK_EQ(cudaMemcpy3DPeer(&asked), cudaErrorInvalidDevice);
  asked = peer_copy_of(to, 0, from, 1, {from.pitch + 1, 2, 2});
  CHECK_EQ(cudaMemcpy3DPeer(&asked), cudaErrorInvalidPitchValue);
  CHECK_EQ(cudaMemcpy3DPeer(nullptr), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemcpy3DPeerAsync(nullptr, nullptr), cudaErrorInvalidValue);
}

TEST_CASE_FIXTURE(fresh_and_lazy, "cudaMemcpy3DPeer comes after the work of both devices, and waits for host memory") {
  cudaPitchedPtr const to = cube_of(1, 1, 1);
  ok(cudaSetDevice(1));
  cudaPitchedPtr const from = cube_of(1, 1, 1);
  cudaStream_t const sender = make_stream(cudaStreamDefault);
  ok(cudaSetDevice(0));
  ok(cudaMemsetAsync(from.ptr, 'a', 1, sender));
  auto asked = peer_copy_of(to, 0, from, 1, {1, 1, 1});
  ok(cudaMemcpy3DPeer(&asked));
  CHECK_EQ(cudaStreamQuery(cudaStreamLegacy), cudaErrorNotReady);
  ok(cudaMemsetAsync(from.ptr, 'b', 1, sender));
  ok(cudaStreamSynchronize(sender));
  void* pinned = nullptr;
  ok(cudaMallocHost(&pinned, 1));
  asked = peer_copy_of(packed(pinned, 1, 1), 0, to, 0, {1, 1, 1});
  ok(cudaMemcpy3DPeer(&asked));
  CHECK_EQ(*static_cast<char*>(pinned), 'a');
}

TEST_CASE_FIXTURE(fresh, "the order of copies and sets of slices is checked, row by row") {
  sim::check_order(true);
  cudaStream_t const a = make_stream();
  cudaStream_t const b = make_stream();
  void* p = nullptr;
  ok(cudaMallocAsync(&p, 4096, a));
  cudaPitchedPtr const cube{p, 512, 100, 2};
  ok(cudaMemset3DAsync(cube, 0, {100, 2, 2}, b));
  REQUIRE_EQ(sim::report_count(), 4);
  CHECK_EQ(sim::reports()[3].kind, sim::order_problem::use_before_allocation);
  sim::clear_reports();

  char host[400] = {};
  auto asked = copy_of(cube, packed(host, 100, 2), {100, 2, 2});
  ok(cudaMemcpy3DAsync(&asked, a));  // after a's own allocation, whatever b does
  CHECK_EQ(sim::report_count(), 0);
  asked.dstPos.z = 3;
  CHECK_EQ(cudaMemcpy3DAsync(&asked, a), cudaErrorInvalidValue);
  REQUIRE_EQ(sim::report_count(), 1);
  CHECK_EQ(sim::reports()[0].kind, sim::order_problem::out_of_bounds);
}

TEST_CASE_FIXTURE(fresh, "copies of slices can be captured") {
  cudaPitchedPtr const cube = cube_of(2, 1, 2);
  cudaPitchedPtr const other = cube_of(2, 1, 2);
  cudaStream_t const s = make_stream();
  ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  ok(cudaMemset3DAsync(cube, 'x', {2, 1, 2}, s));
  auto const asked = copy_of(other, cube, {2, 1, 2});
  ok(cudaMemcpy3DAsync(&asked, s));
  cudaGraph_t graph = nullptr;
  ok(cudaStreamEndCapture(s, &graph));
  cudaGraphExec_t run = nullptr;
  ok(cudaGraphInstantiate(&run, graph, 0));
  ok(cudaMemset3D(other, '.', {2, 1, 2}));
  ok(cudaGraphLaunch(run, s));
  ok(cudaStreamSynchronize(s));
  CHECK_EQ(all_of(other, {2, 1, 2}), "xxxx");
}
