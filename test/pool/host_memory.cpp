// What a pool takes of the host's memory for its bookkeeping: as it says, and as `operator new` sees it.
#include <weir/adaptors/pool.hpp>
#include <weir/core/bytes.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/device.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <random>
#include <vector>

#include "support/streams_at_work.hpp"

using namespace weir;

namespace {

/// What `operator new` was asked for while it is on, and not given back since.
class counted_host_memory {
 public:
  void* take(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) noexcept {
    if (is_used_up && !sim::in_runtime_call()) return nullptr;
    void* const p = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    for (std::size_t i = 0; is_on && p != nullptr && i < places_.size(); ++i)
      if (places_[i].address == nullptr) {
        places_[i] = {p, bytes};
        live_ += bytes;
        break;
      }
    return p;
  }
  void give(void* p) noexcept {
    for (place& at : places_)
      if (p != nullptr && at.address == p) {
        live_ -= at.bytes;
        at = {};
      }
    std::free(p);
  }
  std::size_t live() const noexcept { return live_; }

  bool is_on = false;
  bool is_used_up = false;

 private:
  struct place {
    void* address = nullptr;
    std::size_t bytes = 0;
  };
  std::array<place, 4096> places_{};  // more than a test's pool has
  std::size_t live_ = 0;
};
constinit counted_host_memory host_memory;

void* or_throw(void* p) { return p != nullptr ? p : throw std::bad_alloc(); }

/// Addresses with nothing behind them, so that a pool alone is what takes memory of the host.
struct addresses {
  std::size_t* held = nullptr;
  std::uintptr_t next = 0x7f00'0000'0000;

  void* allocate(stream_ref, std::size_t bytes, std::size_t) {
    std::uintptr_t const begin = next;
    next += (bytes + (std::size_t{2} << 20) - 1) >> 21 << 21;
    if (held != nullptr) *held += bytes;
    return reinterpret_cast<void*>(begin);
  }
  void deallocate(stream_ref, void*, std::size_t bytes, std::size_t) noexcept {
    if (held != nullptr) *held -= bytes;
  }
};
struct nowhere {
  std::size_t* held = nullptr;
  addresses operator()() const { return {.held = held}; }
};

/// Blocks of at most 64 KiB, of which a random one is replaced at each step, as in `bench/suite`.
template <class Pool>
class random_blocks {
 public:
  random_blocks(Pool& memory, std::size_t live, unsigned seed = 1) : memory_(memory), blocks_(live), random_(seed) {}
  ~random_blocks() {
    for (block& b : blocks_) memory_.deallocate(legacy, b.address, b.bytes);
  }
  random_blocks(random_blocks const&) = delete;
  random_blocks& operator=(random_blocks const&) = delete;

  void fill() {
    for (block& b : blocks_) fill(b);
  }
  void replace(std::size_t steps) {
    for (std::size_t i = 0; i < steps; ++i) {
      block& b = blocks_[random_() % blocks_.size()];
      memory_.deallocate(legacy, b.address, b.bytes);
      fill(b);
    }
  }

 private:
  struct block {
    void* address = nullptr;
    std::size_t bytes = 0;
  };
  void fill(block& b) {
    b.bytes = 1 + random_() % (64 << 10);
    b.address = memory_.allocate(legacy, b.bytes);
  }

  static inline stream_ref const legacy = cudaStreamLegacy;
  Pool& memory_;
  std::vector<block> blocks_;
  std::mt19937 random_;
};

}  // namespace

void* operator new(std::size_t bytes) { return or_throw(host_memory.take(bytes)); }
void* operator new[](std::size_t bytes) { return or_throw(host_memory.take(bytes)); }
void* operator new(std::size_t bytes, std::align_val_t a) { return or_throw(host_memory.take(bytes, std::size_t(a))); }
void* operator new(std::size_t bytes, std::nothrow_t const&) noexcept { return host_memory.take(bytes); }
void* operator new(std::size_t bytes, std::align_val_t a, std::nothrow_t const&) noexcept {
  return host_memory.take(bytes, std::size_t(a));
}
// Not inlined, or g++ sees `free` beside `operator new` and takes them for a mismatch.
[[gnu::noinline]] void operator delete(void* p) noexcept { host_memory.give(p); }
[[gnu::noinline]] void operator delete[](void* p) noexcept { host_memory.give(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { host_memory.give(p); }
[[gnu::noinline]] void operator delete[](void* p, std::size_t) noexcept { host_memory.give(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { host_memory.give(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept { host_memory.give(p); }

TEST_CASE("a live block takes few bytes of the host's memory, and a pool says all that it takes") {
  struct bar {
    std::size_t live, steps_each, most_bytes_each;
    unsigned seed = 1;
  };
  {
    auto first = make(nowhere{} | pool{});  // what the process keeps is not this pool's
    random_blocks(first, 1).fill();
  }
  for (bar const b :
       {bar{1'000, 4, 64}, bar{1'000, 200, 64}, bar{1'000, 200, 64, 2}, bar{1'000, 200, 64, 5}, bar{100'000, 4, 16}}) {
    CAPTURE(b.live);
    CAPTURE(b.steps_each);
    CAPTURE(b.seed);
    host_memory.is_on = true;
    auto memory = make(nowhere{} | pool{});
    host_memory.is_on = false;
    random_blocks blocks(memory, b.live, b.seed);
    host_memory.is_on = true;
    blocks.fill();
    blocks.replace(b.steps_each * b.live);
    host_memory.is_on = false;
    CHECK(memory.snapshot().host_bytes <= b.most_bytes_each * b.live);
    CHECK(memory.snapshot().host_bytes == host_memory.live());
  }
}

TEST_CASE("an allocation needs no room for as many new streams as once found none") {
  sim::reset();
  std::vector<weir::stream> const streams(40), others(5);
  auto memory = make(nowhere{} | pool{.initial_bytes = 64_MiB});
  std::vector<void*> blocks(streams.size());
  for (void*& p : blocks) p = memory.allocate(cudaStreamLegacy, 1_MiB);
  for (std::size_t i = 0; i < streams.size(); ++i) memory.deallocate(streams[i], blocks[i], 1_MiB);
  blocks.resize(others.size());
  for (void*& p : blocks) p = memory.allocate(cudaStreamLegacy, 1_MiB);  // now there is room for forty more
  for (std::size_t i = 0; i < others.size(); ++i) memory.deallocate(others[i], blocks[i], 1_MiB);
  host_memory.is_used_up = true;
  void* p = nullptr;
  CHECK_NOTHROW(p = memory.allocate(cudaStreamLegacy, 1_MiB));
  host_memory.is_used_up = false;
  memory.deallocate(cudaStreamLegacy, p, 1_MiB);
}

TEST_CASE("without host memory to take slabs apart, frees on other streams wait, and nothing is lost") {
  sim::reset();
  std::size_t held = 0;
  {
    auto memory = make(nowhere{&held} | pool{});
    weir::stream const a, b, c;
    std::vector<void*> one(2000), two(2000);
    for (void*& p : one) p = memory.allocate(a, 256);
    for (void*& p : two) p = memory.allocate(a, 256);
    CHECK(held > 0);
    host_memory.is_used_up = true;
    for (void* const p : one) memory.deallocate(b, p, 256);
    for (void* const p : two) memory.deallocate_after(b, p, 256, {c});
    host_memory.is_used_up = false;
    CHECK(memory.numbers().requested.current == 0);
    CHECK(memory.numbers().allocated.current == 0);
  }
  CHECK(held == 0);
}

TEST_CASE("without host memory to know streams by, what they free is free after the work of all, and nobody waits") {
  test::lazy_world const world;
  auto memory = make(device{} | pool{.max_bytes = 16_MiB});
  std::vector<weir::stream> const users(16);
  weir::stream const taker;
  test::queued_checks checks;
  std::vector<void*> blocks(users.size() / 2);
  for (void*& p : blocks) p = memory.allocate(taker, 2_MiB);
  for (std::size_t i = 0; i < users.size(); ++i) checks.expect(users[i], blocks[i / 2], 0, 0);
  sim::reset_counters();
  host_memory.is_used_up = true;
  for (std::size_t i = 0; i < blocks.size(); ++i)
    memory.deallocate_after(users[2 * i], blocks[i], 2_MiB, {users[2 * i + 1]});
  host_memory.is_used_up = false;
  for (char const* const waits : {"cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize"})
    CHECK(sim::calls(waits) == 0);
  CHECK(checks.done() == 0);
  for (void*& p : blocks) p = memory.allocate(taker, 2_MiB);
  REQUIRE(cudaStreamSynchronize(taker.get()) == cudaSuccess);
  CHECK(checks.done() == 16);
  for (void* const p : blocks) memory.deallocate(taker, p, 2_MiB);
}
