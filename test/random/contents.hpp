#pragma once
// The blocks of a random program and what is in them: written and compared by the streams' work, or by the host.

#include <random/streams.hpp>
#include <support/filled.hpp>

#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>

namespace random_program {

namespace sim = weir::sim;

struct block {
  void* p;
  std::size_t bytes, alignment;
  std::size_t on;  // the stream that comes after all uses so far
  unsigned char content = 0;
  bool written = false;
  std::uint64_t number = 0;  // its own
  std::uint64_t owner = 0;   // the capture that allocated it, while the memory is that graph's
};

/// Writes and compares the first and the last bytes of blocks.
class block_contents {
 public:
  explicit block_contents(program_streams const& streams) : streams_(streams) {}

  /// True once some work found other contents than were expected of it.
  bool overwritten() const { return overwritten_; }

  /// Work on the stream `on` writes them.
  void put(block const& b, std::size_t on, unsigned char content) {
    each_end(
        b, [&](unsigned char* p, std::size_t n) { require(cudaMemsetAsync(p, content, n, streams_[on].handle)); },
        [&](unsigned char* p, std::size_t n) { sim::touch(streams_[on].handle, p, n, sim::access::write); });
  }

  /// The host writes them through a pointer, where the host can reach the memory.
  void host_write(block& b, unsigned char content) {
    cudaPointerAttributes known;
    require(cudaPointerGetAttributes(&known, b.p));
    if (known.type == cudaMemoryTypeDevice) return;
    require(cudaStreamSynchronize(streams_[b.on].handle));
    b.content = content;
    b.written = true;
    auto* const first = static_cast<unsigned char*>(b.p);
    std::size_t const n = std::min<std::size_t>(b.bytes, 256);
    for (unsigned char* p : {first, first + b.bytes - n}) {
      sim::host_access(p, n, sim::access::write);
      std::fill_n(p, n, content);
    }
  }

  /// Work on the stream `on` reads them, whatever is there.
  void read(block const& b, std::size_t on) {
    auto const touch = [&](unsigned char* p, std::size_t n) {
      sim::touch(streams_[on].handle, p, n, sim::access::read);
    };
    each_end(b, touch, touch);
  }
  /// Work on the stream `on` reads them and compares.
  void expect(block const& b, std::size_t on, unsigned char content) {
    each_end(
        b,
        [&](unsigned char* p, std::size_t n) {
          sim::touch(streams_[on].handle, p, n, sim::access::read);
          expectations_.push_back({this, p, n, content});
          require(cudaLaunchHostFunc(streams_[on].handle, &compare, &expectations_.back()));
        },
        // Nothing, but in a capture that is a node: to a pool, work is where there is one.
        [&](unsigned char*, std::size_t) {
          require(cudaLaunchHostFunc(
              streams_[on].handle, [](void*) {}, nullptr));
        });
  }

 private:
  struct expectation {
    block_contents* in;
    unsigned char const* p;
    std::size_t bytes;
    unsigned char content;
  };

  /// Host memory is no place for cudaMemset, so there the order alone is checked.
  template <class OnDevice, class OnHost>
  void each_end(block const& b, OnDevice device, OnHost host) {
    auto* const first = static_cast<unsigned char*>(b.p);
    std::size_t const n = std::min<std::size_t>(b.bytes, 256);
    cudaPointerAttributes known;
    require(cudaPointerGetAttributes(&known, b.p));
    for (unsigned char* p : {first, first + b.bytes - n})
      known.type == cudaMemoryTypeUnregistered ? host(p, n) : device(p, n);
  }

  static void compare(void* data) {
    auto const& e = *static_cast<expectation const*>(data);
    if (!weir::test::is_filled(e.p, e.bytes, e.content)) e.in->overwritten_ = true;
  }

  program_streams const& streams_;
  std::deque<expectation> expectations_;
  std::atomic<bool> overwritten_ = false;  // as a host function saw, in any thread
};

}  // namespace random_program
