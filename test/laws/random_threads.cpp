// needs: tsan
// Threads that share one stack, each with streams of its own, and hand blocks to each other: in order, whatever
// happens, whether a thread knows what others waited for or not.
#include <weir/adaptors/arena.hpp>
#include <weir/adaptors/checked.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

using namespace weir;

namespace {

std::atomic<int> failures;

void require(bool right) {
  if (!right) ++failures;
}

struct block {
  void* p;
  std::size_t bytes;
};

/// A block on its way to another thread, and the event behind all that was done with it. One event goes with it, is
/// recorded for each transfer and destroyed with the block's life in the box.
struct parcel {
  block what;
  cudaEvent_t behind;
};

class letter_box {
 public:
  void post(parcel p) {
    std::lock_guard const lock(mutex_);
    parcels_.push_back(p);
    sim::host_release(this);
  }
  bool take(parcel& p) {
    std::lock_guard const lock(mutex_);
    if (parcels_.empty()) return false;
    sim::host_acquire(this);
    p = parcels_.back();
    parcels_.pop_back();
    return true;
  }

 private:
  std::mutex mutex_;
  std::vector<parcel> parcels_;
};

template <class Memory>
class worker {
 public:
  worker(Memory& memory, letter_box& box, std::uint64_t seed) : memory_(memory), box_(box), random_(seed) {}

  void run(int operations) {
    for (int i = 0; i < operations; ++i) step();
    for (auto& b : blocks_) memory_.deallocate(stream(b.second), b.first.p, b.first.bytes);
    for (parcel p; box_.take(p);) {
      memory_.deallocate(stream(receive(p)), p.what.p, p.what.bytes);
    }
    require(cudaStreamDestroy(mortal_) == cudaSuccess);
  }

 private:
  static constexpr std::size_t most = 20;

  /// 0: this thread's default stream, 1: a lasting one, 2: one that ends and is replaced, 3: the legacy stream.
  stream_ref stream(unsigned which) const {
    if (which == 1) return lasting_;
    return which == 0 ? cudaStreamPerThread : which == 2 ? mortal_ : cudaStreamLegacy;
  }

  void step() {
    unsigned const what = static_cast<unsigned>(random_() % 16), on = static_cast<unsigned>(random_() % 4);
    if (what < 6 && blocks_.size() < most) return allocate(on);
    if (what == 6) return renew();
    parcel p;
    if (what == 7 && box_.take(p)) {
      unsigned const here = receive(p);
      blocks_.push_back({p.what, here});
      return;
    }
    if (what == 8) return void(cudaStreamSynchronize(stream(on).get()));
    if (blocks_.empty()) return;
    auto const at = random_() % blocks_.size();
    auto const [b, s] = blocks_[at];
    if (what < 11) return sim::touch(stream(s).get(), b.p, b.bytes, sim::access::write);
    blocks_[at] = blocks_.back();
    blocks_.pop_back();
    if (what < 14) return memory_.deallocate(stream(s), b.p, b.bytes);
    cudaEvent_t behind = nullptr;
    require(cudaEventCreateWithFlags(&behind, cudaEventDisableTiming) == cudaSuccess);
    require(cudaEventRecord(behind, stream(s).get()) == cudaSuccess);
    box_.post({b, behind});
  }

  void allocate(unsigned on) {
    std::size_t const bytes = 1 + random_() % (random_() % 4 == 0 ? 1 << 20 : 4096);
    try {
      void* const p = memory_.allocate(stream(on), bytes);
      sim::touch(stream(on).get(), p, bytes, sim::access::write);
      blocks_.push_back({{p, bytes}, on});
    } catch (out_of_memory const&) {
    }
  }

  unsigned receive(parcel const& p) {
    unsigned const on = static_cast<unsigned>(random_() % 4);
    require(cudaStreamWaitEvent(stream(on).get(), p.behind, 0) == cudaSuccess);
    require(cudaEventDestroy(p.behind) == cudaSuccess);
    return on;
  }

  void renew() {
    if (random_() % 4 != 0) return;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (blocks_[i].second != 2) continue;
      memory_.deallocate(stream(2), blocks_[i].first.p, blocks_[i].first.bytes);
      blocks_[i] = blocks_.back();
      blocks_.pop_back();
      --i;
    }
    require(cudaStreamDestroy(mortal_) == cudaSuccess);
    mortal_ = make();
  }

  static cudaStream_t make() {
    cudaStream_t s = nullptr;
    require(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
    return s;
  }

  Memory& memory_;
  letter_box& box_;
  std::mt19937_64 random_;
  weir::stream lasting_;
  cudaStream_t mortal_ = make();
  std::vector<std::pair<block, unsigned>> blocks_;
};

template <class F>
void run_threads(F const& recipe, sim::mode mode, sim::host_clocks clocks, std::uint64_t seed, int operations) {
  sim::reset();
  sim::set_capacity(0, 24_MiB);
  sim::set_mode(mode);
  sim::set_seed(seed);
  sim::check_order(true, {.host = clocks});
  failures = 0;
  {
    auto memory = make(recipe);
    letter_box box;
    // Threads come and go: two rounds of them, on the memory that the first leaves behind.
    for (std::uint64_t round = 0; round < 2; ++round) {
      std::vector<std::thread> threads;
      sim::host_release(&threads);
      for (std::uint64_t i = 0; i < 4; ++i)
        threads.emplace_back([&, i] {
          sim::host_acquire(&threads);
          worker(memory, box, seed * 100 + round * 10 + i).run(operations);
          sim::host_release(&failures);
        });
      for (auto& t : threads) t.join();
      sim::host_acquire(&failures);
    }
    for (parcel p; box.take(p);) {
      CHECK_EQ(cudaEventSynchronize(p.behind), cudaSuccess);
      CHECK_EQ(cudaEventDestroy(p.behind), cudaSuccess);
      memory.deallocate(host_order, p.what.p, p.what.bytes);
    }
  }
  for (auto const& r : sim::reports()) MESSAGE(r.text);
  CHECK_EQ(sim::report_count(), 0);
  CHECK_EQ(failures.load(), 0);
  CHECK_EQ(sim::live_allocations(), 0);
  sim::reset();
}

template <class F>
void run_all_modes(F const& recipe) {
  char const* const text = std::getenv("WEIR_SOAK_OPERATIONS");
  int const operations = text == nullptr ? 400 : static_cast<int>(std::strtoul(text, nullptr, 10) / 100 + 1);
  for (sim::mode const mode : {sim::mode::immediate, sim::mode::lazy, sim::mode::random, sim::mode::pct})
    for (sim::host_clocks const clocks : {sim::host_clocks::one, sim::host_clocks::per_thread})
      for (std::uint64_t seed = 1; seed <= 2; ++seed) run_threads(recipe, mode, clocks, seed, operations);
  constexpr int workers = 4 * 2 * 2 * 2 * 4;  // modes, clocks, seeds, rounds, threads
  MESSAGE((workers * operations) << " operations by threads");
}

checked const above{"the top"};
checked const below{"the upstream"};

}  // namespace

TEST_CASE("threads on one pool") { run_all_modes(device{} | below | pool{} | above); }
TEST_CASE("threads on one pool that waits, over CUDA's own") {
  run_all_modes(async{} | below |
                pool{.growth_bytes = 1_MiB, .release_threshold = 4_MiB, .pending = when_pending::wait} | above);
}
TEST_CASE("threads on arenas") { run_all_modes(device{} | below | arena{} | above); }
TEST_CASE("threads on arenas for each stream, with a bound") {
  run_all_modes(async{} | below |
                arena{.max_bytes = 16_MiB, .growth_bytes = 1_MiB, .per = arena::owner::stream, .max_arenas = 4} |
                above);
}
