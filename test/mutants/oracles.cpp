// A program whose mistakes, if weir makes some, are each seen by one oracle only. Which of them look is told by
// arguments: `clock`, `contents`; the address sanitizer, if it is compiled in, is told by ASAN_OPTIONS; and the thread
// sanitizer, which takes streams for threads, looks where it is compiled in.
// Exit status 0: nothing found.
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/device.hpp>
#include <weir/testing/checked.hpp>

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

using namespace weir;

namespace {

stream_ref const legacy = cudaStreamLegacy;
constexpr std::size_t bytes = 4096, piece = 1024;
bool contents_look = false, contents_changed = false;

/// As a kernel does, each of whose threads writes a little.
void write(std::byte* p, int value) {
  for (std::size_t at = 0; at < bytes; at += piece) cudaMemsetAsync(p + at, value, piece, cudaStreamLegacy);
}

struct expectation {
  std::byte const* p;
  std::byte value;
};

/// Runs in the stream's turn: the check of order does not know what a host function reads.
void compare(void* data) {
  auto const& e = *static_cast<expectation const*>(data);
  for (std::size_t i = 0; i < bytes; ++i)
    if (contents_look && e.p[i] != e.value) contents_changed = true;
}
void read_all(void* data) {
  auto const* const p = static_cast<std::byte const volatile*>(static_cast<expectation*>(data)->p);
  for (std::size_t i = 0; i < bytes; ++i) static_cast<void>(p[i]);
}

/// A pool that ends with work pending on what was freed.
void end_with_pending_work() {
  auto memory = make(device{} | checked{"the pool's upstream"} | pool{} | checked{"the pool"});
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  void* const p = memory.allocate(stream, bytes);
  sim::touch(stream, p, bytes, sim::access::write);
  memory.deallocate(stream, p, bytes);
  cudaStreamDestroy(stream);
}

/// Blocks side by side on one stream, whose users know of a size that layers between might get wrong.
void fill_neighbours() {
  auto memory = make(device{} | pool{} | checked{"the pool"} | limit{.max_bytes = 1_GiB});
  static_cast<void>(memory.allocate(legacy, bytes));
  auto* const a = static_cast<std::byte*>(memory.allocate(legacy, bytes));
  auto* const b = static_cast<std::byte*>(memory.allocate(legacy, bytes));
  expectation of_a{a, std::byte{1}}, of_b{b, std::byte{2}};
  write(a, 1);
  write(b, 2);
  cudaLaunchHostFunc(cudaStreamLegacy, compare, &of_a);
  cudaLaunchHostFunc(cudaStreamLegacy, compare, &of_b);
  cudaDeviceSynchronize();
}

/// Large alignments straight from a source, and work on them that nobody announced.
void reach_the_ends_of_aligned_blocks() {
  auto memory = make(device{});
  std::vector<expectation> blocks;
  for (int i = 0; i < 16; ++i)
    blocks.push_back({static_cast<std::byte*>(memory.allocate(legacy, bytes, 2048)), std::byte{0}});
  for (auto& block : blocks) cudaLaunchHostFunc(cudaStreamLegacy, read_all, &block);
  cudaDeviceSynchronize();
  for (auto& block : blocks) memory.deallocate(legacy, const_cast<std::byte*>(block.p), bytes, 2048);
}

/// In words: of each eight bytes the thread sanitizer remembers but the last few accesses.
void fill(void* p) {
  auto* const words = static_cast<std::size_t volatile*>(p);
  for (std::size_t i = 0; i < bytes / sizeof(std::size_t); ++i) words[i] = 1;
}

/// A block that goes from one stream to another, each of which does the same with it, unannounced.
void pass_a_block_on() {
  auto memory = make(device{} | pool{.max_bytes = bytes});
  cudaStream_t streams[2] = {};
  for (cudaStream_t& s : streams) cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
  for (cudaStream_t const s : streams) {
    void* const p = memory.allocate(s, bytes);
    cudaLaunchHostFunc(s, fill, p);
    memory.deallocate(s, p, bytes);
  }
  cudaDeviceSynchronize();
  for (cudaStream_t const s : streams) cudaStreamDestroy(s);
}

}  // namespace

int main(int count, char** arguments) {
  sim::set_mode(sim::mode::lazy);
  for (int i = 1; i < count; ++i) {
    if (arguments[i] == std::string("clock")) sim::check_order(true);
    if (arguments[i] == std::string("contents")) contents_look = true;
  }
  end_with_pending_work();
  fill_neighbours();
  reach_the_ends_of_aligned_blocks();
  pass_a_block_on();
  for (auto const& report : sim::reports()) std::printf("clock: %s\n", report.text.c_str());
  if (contents_changed) std::puts("contents: a block's contents were overwritten");
  return sim::report_count() != 0 || contents_changed ? 1 : 0;
}
