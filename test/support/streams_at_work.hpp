#pragma once
// Streams of the simulated runtime with work on them whose order can be seen in the memory it writes.

#include <weir/cuda/stream_ref.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/destroyable_stream.hpp>
#include <support/filled.hpp>
#include <support/sim_fixture.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace weir::test {

/// Queues a write of all of a block.
inline void fill(stream_ref stream, void* p, std::size_t bytes, unsigned char value) {
  REQUIRE(cudaMemsetAsync(p, value, bytes, stream.get()) == cudaSuccess);
}

/// Queued looks at blocks: each counts as wrong if any byte is not what was written last in the order of its stream.
class queued_checks {
 public:
  /// As `fill`, for memory that CUDA does not know.
  void write(stream_ref stream, void* p, std::size_t bytes, unsigned char value) {
    looks_.push_back(std::make_unique<look>(look{this, static_cast<unsigned char*>(p), bytes, value}));
    ++writes_;
    auto const run = [](void* data) {
      look const& l = *static_cast<look const*>(data);
      std::fill_n(const_cast<unsigned char*>(l.p), l.bytes, l.value);
    };
    REQUIRE(cudaLaunchHostFunc(stream.get(), run, looks_.back().get()) == cudaSuccess);
  }
  void expect(stream_ref stream, void const* p, std::size_t bytes, unsigned char value) {
    looks_.push_back(std::make_unique<look>(look{this, static_cast<unsigned char const*>(p), bytes, value}));
    REQUIRE(cudaLaunchHostFunc(stream.get(), &run, looks_.back().get()) == cudaSuccess);
  }
  int wrong() const { return wrong_; }
  int done() const { return done_; }
  std::size_t queued() const { return looks_.size() - writes_; }

 private:
  struct look {
    queued_checks* owner;
    unsigned char const* p;
    std::size_t bytes;
    unsigned char value;
  };
  static void run(void* data) {
    look const& l = *static_cast<look const*>(data);
    l.owner->wrong_ += !is_filled(l.p, l.bytes, l.value);
    ++l.owner->done_;
  }

  std::vector<std::unique_ptr<look>> looks_;
  std::size_t writes_ = 0;
  std::atomic<int> wrong_{0};  // streams may work at the same time
  std::atomic<int> done_{0};
};

}  // namespace weir::test
