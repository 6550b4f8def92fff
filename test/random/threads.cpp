// needs: tsan
// Threads that share one stack, each with streams of its own, hand blocks to each other, and capture graphs beside each
// other: in order, whatever happens, whether a thread knows what others waited for or not.
//
//   WEIR_SOAK_OPERATIONS  how much of it (default 40,000)
//   WEIR_SOAK_SEED        where to begin (default 1); a failure prints what comes closest to repeating it
#include "repeat.hpp"
#include "stacks.hpp"

#include <weir/adaptors/arena.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/layers.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources.hpp>
#include <weir/testing/checked.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

using namespace weir;
using random_program::number_from;
using random_program::repeat_with;

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
  worker(Memory& memory, letter_box& box, std::uint64_t seed, std::size_t streams)
      : memory_(memory), box_(box), random_(seed), own_(streams) {
    for (cudaStream_t& s : own_) s = make();
  }

  void run(int operations) {
    for (int i = 0; i < operations; ++i) step();
    for (auto& b : blocks_) memory_.deallocate(stream(b.second), b.first.p, b.first.bytes);
    for (parcel p; box_.take(p);) {
      memory_.deallocate(stream(receive(p)), p.what.p, p.what.bytes);
    }
    for (cudaStream_t const s : own_) require(cudaStreamDestroy(s) == cudaSuccess);
  }

 private:
  static constexpr std::size_t most = 20;

  /// First the thread's own ones, of which number 0 lasts and the others end and are replaced; then its default stream,
  /// and the legacy one.
  stream_ref stream(std::size_t which) const {
    if (which < own_.size()) return own_[which];
    return which == own_.size() ? cudaStreamPerThread : cudaStreamLegacy;
  }
  std::size_t any_stream() { return random_() % (own_.size() + 2); }

  void step() {
    auto const what = random_() % 17;
    std::size_t const on = any_stream();
    if (what < 6 && blocks_.size() < most) return allocate(on);
    if (what == 6) return renew();
    if (what == 16) return random_() % 4 == 0 ? capture() : void();
    parcel p;
    if (what == 7 && box_.take(p)) {
      std::size_t const here = receive(p);
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
    if (what < 13) return memory_.deallocate(stream(s), b.p, b.bytes);
    cudaEvent_t const behind = record_on(s);
    if (what < 14) return free_after_two(b, s, behind);
    box_.post({b, behind});
  }

  cudaEvent_t record_on(std::size_t s) {
    cudaEvent_t behind = nullptr;
    require(cudaEventCreateWithFlags(&behind, cudaEventDisableTiming) == cudaSuccess);
    require(cudaEventRecord(behind, stream(s).get()) == cudaSuccess);
    return behind;
  }

  /// Another stream uses the block after what is `behind` it on its own, which does not wait for that.
  void free_after_two(block const& b, std::size_t s, cudaEvent_t behind) {
    std::size_t const other = receive({b, behind});
    sim::touch(stream(other).get(), b.p, b.bytes, sim::access::write);
    weir::deallocate_after(memory_, stream(s), b.p, b.bytes, {stream(other)});
  }

  void allocate(std::size_t on) {
    std::size_t const bytes = 1 + random_() % (random_() % 4 == 0 ? 1 << 20 : 4096);
    try {
      void* const p = memory_.allocate(stream(on), bytes);
      sim::touch(stream(on).get(), p, bytes, sim::access::write);
      blocks_.push_back({{p, bytes}, on});
    } catch (out_of_memory const&) {
    }
  }

  std::size_t receive(parcel const& p) {
    std::size_t const on = any_stream();
    require(cudaStreamWaitEvent(stream(on).get(), p.behind, 0) == cudaSuccess);
    require(cudaEventDestroy(p.behind) == cudaSuccess);
    return on;
  }

  /// Ends one of the streams that do not last, with all that is on it, and makes a new one in its place.
  void renew() {
    if (random_() % 4 != 0) return;
    std::size_t const which = 1 + random_() % (own_.size() - 1);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (blocks_[i].second != which) continue;
      memory_.deallocate(stream(which), blocks_[i].first.p, blocks_[i].first.bytes);
      blocks_[i] = blocks_.back();
      blocks_.pop_back();
      --i;
    }
    require(cudaStreamDestroy(own_[which]) == cudaSuccess);
    own_[which] = make();
  }

  /// One of its streams becomes a graph that has memory of the stack's, runs, and ends, while the other threads go on.
  void capture() {
    cudaStream_t const on = own_[random_() % own_.size()];
    std::optional<capture_scope> declared;
    if (random_() % 2 == 0) declared.emplace();
    require(cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    std::uint64_t const id = capture_id(on);
    std::vector<block> left;
    for (auto count = random_() % 6; count > 0; --count) use_in_capture(on, left);
    cudaGraph_t made = nullptr;
    cudaGraphExec_t graph = nullptr;
    require(cudaStreamEndCapture(on, &made) == cudaSuccess);
    declared.reset();
    require(cudaGraphInstantiate(&graph, made, 0) == cudaSuccess);
    require(cudaGraphDestroy(made) == cudaSuccess);
    for (auto count = random_() % 3; count > 0; --count) require(cudaGraphLaunch(graph, on) == cudaSuccess);
    for (block const& b : left) memory_.deallocate(on, b.p, b.bytes);
    require(cudaStreamSynchronize(on) == cudaSuccess);
    require(cudaGraphExecDestroy(graph) == cudaSuccess);
    release_captured(memory_, id);
  }
  void use_in_capture(cudaStream_t on, std::vector<block>& left) try {
    std::size_t const bytes = 1 + random_() % (1 << 18);
    void* const p = memory_.allocate(on, bytes);
    sim::touch(on, p, bytes, sim::access::write);
    if (random_() % 2 == 0)
      memory_.deallocate(on, p, bytes);
    else
      left.push_back({p, bytes});
  } catch (out_of_memory const&) {
  }

  static cudaStream_t make() {
    cudaStream_t s = nullptr;
    require(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
    return s;
  }

  Memory& memory_;
  letter_box& box_;
  std::mt19937_64 random_;
  std::vector<cudaStream_t> own_;
  std::vector<std::pair<block, std::size_t>> blocks_;
};

/// How many threads there are at once, how many of them there are in each place, one after another, and how many
/// streams each of them has.
struct crowd {
  std::size_t threads, generations, streams;
};

constexpr crowd few{4, 2, 2}, many{8, 3, 8};

/// A thread that ends is replaced while the others go on, on the memory that it leaves behind.
template <class Memory>
void come_and_go(Memory& memory, letter_box& box, crowd const& who, std::uint64_t seed, int operations) {
  std::vector<std::thread> threads(who.threads);
  for (std::uint64_t generation = 0; generation <= who.generations; ++generation)
    for (std::size_t i = 0; i < who.threads; ++i) {
      if (generation > 0) {
        threads[i].join();
        sim::host_acquire(&failures);
      }
      if (generation == who.generations) continue;
      sim::host_release(&threads);
      threads[i] = std::thread([&, own_seed = seed * 100 + generation * 10 + i] {
        sim::host_acquire(&threads);
        worker(memory, box, own_seed, who.streams).run(operations);
        sim::host_release(&failures);
      });
    }
}

template <class F>
void run_threads(F const& recipe, crowd const& who, sim::mode mode, sim::host_clocks clocks, std::uint64_t seed,
                 int operations) {
  bool const per_thread = clocks == sim::host_clocks::per_thread;
  repeat_with = "WEIR_SOAK_SEED=" + std::to_string(seed) + ", mode " + random_program::name_of(mode) + ", " +
                (per_thread ? "a clock for each thread" : "one clock") + ", " + std::to_string(who.threads) +
                " threads, " + std::to_string(operations) + " operations each";
  sim::reset();
  sim::set_capacity(0, who.threads * 6_MiB);
  sim::set_mode(mode);
  sim::set_seed(seed);
  sim::check_order(true, {.host = clocks});
  failures = 0;
  {
    auto memory = make(recipe);
    letter_box box;
    come_and_go(memory, box, who, seed, operations);
    for (parcel p; box.take(p);) {
      CHECK_EQ(cudaEventSynchronize(p.behind), cudaSuccess);
      CHECK_EQ(cudaEventDestroy(p.behind), cudaSuccess);
      memory.deallocate(host_order, p.what.p, p.what.bytes);
    }
  }
  bool const wrong = sim::report_count() + sim::captures_invalidated() + sim::live_allocations() != 0 || failures != 0;
  if (wrong) MESSAGE("repeat with " << repeat_with << ", commit " << random_program::commit());
  for (auto const& r : sim::reports()) MESSAGE(r.text);
  CHECK_EQ(sim::report_count(), 0);
  CHECK_EQ(sim::captures_invalidated(), 0);
  CHECK_EQ(failures.load(), 0);
  CHECK_EQ(sim::live_allocations(), 0);
  sim::reset();
}

constexpr sim::mode modes[] = {sim::mode::immediate, sim::mode::lazy, sim::mode::random, sim::mode::pct,
                               sim::mode::threads};

/// Each mode with both kinds of clocks and `seeds` seeds, a `share` of the operations asked for in each thread.
template <class F>
void run_all_modes(F const& recipe, crowd const& who = few, std::uint64_t seeds = 2, std::uint64_t share = 100) {
  random_program::print_in_a_crash();
  int const operations =
      static_cast<int>(std::max<std::uint64_t>(number_from("WEIR_SOAK_OPERATIONS", 40'000) / share, 1));
  std::uint64_t const first = number_from("WEIR_SOAK_SEED", 1);
  std::uint64_t sum = 0;
  for (sim::mode const mode : modes)
    for (sim::host_clocks const clocks : {sim::host_clocks::one, sim::host_clocks::per_thread})
      for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
        run_threads(recipe, who, mode, clocks, seed, operations);
        sum += who.threads * who.generations * static_cast<std::uint64_t>(operations);
      }
  MESSAGE(sum << " operations by threads");
}

checked const above{"the top"};
checked const below{"the upstream"};

}  // namespace

// The address sanitizer calls this before it reports.
extern "C" void __asan_on_error();
void __asan_on_error() {
  std::fprintf(stderr, "%s, commit %s\n", repeat_with.c_str(), random_program::commit().c_str());
}

TEST_CASE("threads on one pool") { run_all_modes(device{} | below | pool{} | above); }
TEST_CASE("threads on one pool, with caches") { run_all_modes(device{} | below | pool{.thread_caches = true} | above); }
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
TEST_CASE("threads on pools that share chunks") { run_all_modes(random_program::sharing_pages{.device = 0} | above); }
TEST_CASE("eight threads with eight streams each, on one pool") {
  run_all_modes(device{} | below | pool{} | above, many, 1, 400);
}
TEST_CASE("eight threads with eight streams each, on one small pool with caches") {
  run_all_modes(device{} | below | pool{.max_bytes = 24_MiB, .thread_caches = true} | above, many, 1, 400);
}
TEST_CASE("eight threads with eight streams each, on arenas") {
  run_all_modes(async{} | below | arena{.growth_bytes = 1_MiB, .max_arenas = 4} | above, many, 1, 400);
}
