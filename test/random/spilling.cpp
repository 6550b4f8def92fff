// needs: tsan
// Programs made of random numbers on memory that spills: handles are made, pinned on any stream, held, dropped, and
// sent to the host by whatever else is allocated; streams end, a capture goes on, CUDA's calls fail. Contents are
// compared in stream order, and the check of order sees both memories.
//
//   WEIR_SOAK_OPERATIONS  how many steps (default 30,000)
//   WEIR_SOAK_SEED        only this one
#include "repeat.hpp"

#include <weir/core/error.hpp>
#include <weir/core/layers.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <doctest/doctest.h>
#include <support/filled.hpp>
#include <support/spilling.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace weir;
using namespace weir::test;
using random_program::number_from;
using random_program::repeat_with;

namespace {

using byte_handle = spillable<unsigned char>;

/// Looks at memory when its stream gets there.
class looks {
 public:
  void expect(stream_ref stream, spill_pin<unsigned char> const& p, unsigned char value) {
    sim::touch(stream.get(), p.data(), p.size(), sim::access::read);
    queued_.push_back({this, p.data(), p.size(), value});
    if (cudaLaunchHostFunc(stream.get(), &run, &queued_.back()) != cudaSuccess) ++wrong_;
  }
  int wrong() const { return wrong_; }

 private:
  struct one {
    looks* owner;
    unsigned char const* p;
    std::size_t bytes;
    unsigned char value;
  };
  static void run(void* data) {
    one const& l = *static_cast<one const*>(data);
    if (!weir::test::is_filled(l.p, l.bytes, l.value)) ++l.owner->wrong_;
  }
  std::deque<one> queued_;
  std::atomic<int> wrong_{0};
};

struct one_handle {
  one_handle(byte_handle made, unsigned char content) : x(std::move(made)), value(content) {}

  byte_handle x;
  unsigned char value;
  std::vector<std::pair<stream_ref, spill_pin<unsigned char>>> held = {};
  std::mutex mutex = {};  // for threads
};

struct one_block {
  void* p;
  std::size_t bytes;
  stream_ref stream;
};

void write(stream_ref stream, spill_pin<unsigned char> const& p, unsigned char value) {
  if (cudaMemsetAsync(p.data(), value, p.size(), stream.get()) != cudaSuccess)
    throw std::runtime_error("the program's own call failed");
}

/// One program on one stack.
template <class Memory>
class program {
 public:
  program(Memory& memory, std::uint64_t seed) : memory_(memory), random_(seed), own_(2) {
    for (cudaStream_t& s : own_) s = make_stream();
  }
  ~program() {
    sim::clear_failure();
    if (capture_) end_capture();
    handles_.clear();
    for (one_block const& b : blocks_) memory_.deallocate(b.stream, b.p, b.bytes);
    for (cudaStream_t const s : own_) cudaStreamDestroy(s);
    cudaDeviceSynchronize();  // before the looks go
  }
  program(program const&) = delete;
  program& operator=(program const&) = delete;

  void step() {
    switch (below(16)) {
      case 0:
      case 1:
        return make();
      case 2:
        return drop();
      case 3:
      case 4:
      case 5:
        return change();
      case 6:
      case 7:
      case 8:
        return look();
      case 9:
        return hold();
      case 10:
        return let_go();
      case 11:
      case 12:
        return allocate();
      case 13:
        return free_block();
      case 14:
        return replace_stream();
      default:
        return below(2) == 0 ? trim_or_wait() : capture_ ? end_capture() : begin_capture();
    }
  }

  void finish() {
    if (capture_) end_capture();
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
  }
  int wrong() const { return looks_.wrong(); }
  bool has_failed() const { return has_failed_; }
  int refused() const { return refused_; }

 private:
  static cudaStream_t make_stream() {
    cudaStream_t s = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
    return s;
  }

  std::size_t below(std::size_t n) { return random_() % n; }
  stream_ref any_stream() {
    switch (below(6)) {
      case 0:
        return cudaStreamLegacy;
      case 1:
        return cudaStreamPerThread;
      case 2:
      case 3:
        return lasting_[below(2)];
      default:
        return own_[below(2)];
    }
  }
  one_handle* any_handle() {
    if (handles_.empty()) return nullptr;
    return &*std::next(handles_.begin(), static_cast<std::ptrdiff_t>(below(handles_.size())));
  }

  /// Does what the stack does, now and then with one of CUDA's calls failing. False if it was refused or failed.
  template <class Action>
  bool attempt(Action action, bool may_fail = true) {
    bool const fails = may_fail && !capture_ && below(12) == 0;
    if (fails) sim::fail_call(1 + below(6), below(2) == 0 ? cudaErrorUnknown : cudaErrorMemoryAllocation);
    has_failed_ |= fails;
    bool worked = true;
    try {
      action();
    } catch (out_of_memory const&) {
      ++refused_;
      worked = false;
    } catch (cuda_error const&) {
      if (!fails) throw;
      worked = false;
    }
    sim::clear_failure();
    return worked;
  }

  void make() {
    if (handles_.size() >= 12) return;
    stream_ref const stream = any_stream();
    auto const value = static_cast<unsigned char>(below(256));
    std::size_t const bytes = 1 + below(below(2) == 0 ? 700'000 : 20'000);
    if (attempt([&] { handles_.emplace_back(byte_handle(memory_, stream, bytes), value); }))
      put(handles_.back(), value);
  }
  void put(one_handle& h, unsigned char value) {
    stream_ref const stream = any_stream();
    std::optional<spill_pin<unsigned char>> p;
    h.value = value;
    while (!attempt([&] { p.emplace(h.x.pin(stream)); })) {
      let_all_go();
      if (!blocks_.empty()) free_block();
    }
    write(stream, *p, value);
    attempt([&] { p.reset(); });
  }
  void change() {
    if (one_handle* const h = any_handle(); h != nullptr && h->held.empty()) {
      stream_ref const stream = any_stream();
      std::optional<spill_pin<unsigned char>> p;
      if (!attempt([&] { p.emplace(h->x.pin(stream)); })) return;
      write(stream, *p, h->value = static_cast<unsigned char>(below(256)));
      attempt([&] { p.reset(); });
    }
  }
  void look() {
    one_handle* const h = any_handle();
    if (h == nullptr) return;
    stream_ref const stream = any_stream();
    std::optional<spill_pin<unsigned char>> p;
    if (!attempt([&] { p.emplace(h->x.pin(stream)); })) return;
    looks_.expect(stream, *p, h->value);
    attempt([&] { p.reset(); });
  }
  /// While a pin is held, nobody writes.
  void hold() {
    one_handle* const h = any_handle();
    if (h == nullptr || h->held.size() >= 3) return;
    stream_ref const stream = below(2) == 0 ? stream_ref(lasting_[below(2)]) : stream_ref(cudaStreamLegacy);
    attempt([&] { h->held.emplace_back(stream, h->x.pin(stream)); });
  }
  void let_go() {
    one_handle* const h = any_handle();
    if (h == nullptr || h->held.empty()) return;
    looks_.expect(h->held.back().first, h->held.back().second, h->value);
    attempt([&] { h->held.pop_back(); });
  }
  void let_all_go() {
    for (auto& h : handles_) h.held.clear();
  }
  void drop() {
    if (handles_.empty()) return;
    auto const h = std::next(handles_.begin(), static_cast<std::ptrdiff_t>(below(handles_.size())));
    if (h->held.empty()) attempt([&] { handles_.erase(h); });
  }

  void allocate() {
    if (blocks_.size() >= 6) return;
    stream_ref const stream = any_stream();
    std::size_t const bytes = 1 + below(900'000);
    void* p = nullptr;
    if (!attempt([&] { p = memory_.allocate(stream, bytes); })) return;
    sim::touch(stream.get(), p, bytes, sim::access::write);
    blocks_.push_back({p, bytes, stream});
  }
  void free_block() {
    if (blocks_.empty()) return;
    std::swap(blocks_[below(blocks_.size())], blocks_.back());
    one_block const b = blocks_.back();
    blocks_.pop_back();
    attempt([&] { memory_.deallocate(b.stream, b.p, b.bytes); });
  }

  void replace_stream() {
    cudaStream_t& s = own_[below(2)];
    for (std::size_t i = blocks_.size(); i-- > 0;)
      if (blocks_[i].stream.get() == s) {
        memory_.deallocate(s, blocks_[i].p, blocks_[i].bytes);
        blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    cudaStreamDestroy(s);
    s = make_stream();
  }
  void trim_or_wait() {
    if (below(2) == 0)
      weir::trim(memory_);
    else if (!capture_)
      weir::synchronize(memory_);
  }
  void begin_capture() {
    capture_.emplace();
    REQUIRE(cudaStreamBeginCapture(captured_.get(), cudaStreamCaptureModeGlobal) == cudaSuccess);
    if (one_handle* const h = any_handle()) CHECK_THROWS_AS(static_cast<void>(h->x.pin(captured_)), std::logic_error);
  }
  void end_capture() {
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(captured_.get(), &graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    capture_.reset();
  }

  Memory& memory_;
  std::mt19937_64 random_;
  std::array<stream, 2> lasting_;
  std::vector<cudaStream_t> own_;
  stream captured_;
  std::optional<capture_scope> capture_;
  looks looks_;
  std::list<one_handle> handles_;
  std::vector<one_block> blocks_;
  bool has_failed_ = false;
  int refused_ = 0;
};

void expect_in_order() {
  for (auto const& r : sim::reports()) MESSAGE(r.text);
  CHECK(sim::report_count() == 0);
  CHECK(sim::captures_invalidated() == 0);
}

}  // namespace

TEST_CASE("whatever a program does with handles, contents stay and everything is in order") {
  random_program::print_in_a_crash();
  std::uint64_t const only = number_from("WEIR_SOAK_SEED", 0), operations = number_from("WEIR_SOAK_OPERATIONS", 30'000);
  std::uint64_t spills = 0, returns = 0;
  constexpr std::uint64_t steps = 300;
  for (std::uint64_t seed = only == 0 ? 1 : only; only == 0 ? seed <= operations / steps : seed == only; ++seed) {
    auto const mode = seed % 32 == 0 ? sim::mode::threads : every_sim_mode[seed % 4];
    repeat_with = "WEIR_SOAK_SEED=" + std::to_string(seed) + " at " + random_program::commit();
    CAPTURE(repeat_with);
    sim::reset();
    sim::set_mode(mode);
    sim::set_seed(seed);
    sim::check_order(true);
    bool lost = false;
    auto const run_on = [&](auto const& pools) {
      auto host = make(host_stack(seed % 3 == 0 ? 2_MiB : 0));
      auto memory = make(pools | checked{"device"} | spill{.to = share(host)});
      program run(memory, seed);
      for (std::uint64_t i = 0; i < steps && sim::report_count() == 0 && run.wrong() == 0; ++i) run.step();
      run.finish();
      CHECK(run.wrong() == 0);
      lost = run.has_failed();
      spill_numbers const n = memory.numbers();
      spills += n.spills;
      returns += n.returns;
    };
    if (seed % 5 == 0)
      run_on(virtual_memory{.max_bytes = 4_MiB + seed / 5 % 2 * 2_MiB} |
             pool{.max_waste = 0, .move_pending = seed / 5 % 3 != 1});
    else
      run_on(device{} | pool{.max_bytes = 2_MiB + seed % 5 * 1_MiB,
                             .pending = seed % 2 == 0 ? when_pending::wait : when_pending::grow,
                             .synchronize = seed % 4 < 2});
    sim::run_all();
    expect_in_order();
    CHECK((lost || sim::live_allocations() == 0));
    sim::reset();
  }
  CHECK(spills > 0);
  CHECK(returns > 0);
}

TEST_CASE("threads share handles, and each finds what was written last") {
  random_program::print_in_a_crash();
  for (sim::mode const mode : {sim::mode::immediate, sim::mode::threads}) {
    sim::reset();
    sim::set_mode(mode);
    sim::check_order(true);
    std::atomic<int> wrong{0}, refused{0};
    {
      auto host = make(host_stack());
      auto memory = make(spilling_stack(host, 3_MiB));
      std::list<one_handle> handles;
      stream const first;
      for (unsigned char value = 0; value < 12; ++value) {
        handles.emplace_back(byte_handle(memory, first, 400'000), value);
        fill_pinned(handles.back().x, first, value);
      }
      auto const work = [&](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        stream const own;
        looks all;
        for (int i = 0; i < 200; ++i) try {
            one_handle& h = *std::next(handles.begin(), static_cast<std::ptrdiff_t>(random() % handles.size()));
            if (random() % 4 == 0) {
              std::size_t const bytes = 1 + random() % 500'000;
              void* const p = memory.allocate(own, bytes);
              sim::touch(own.get(), p, bytes, sim::access::write);
              memory.deallocate(own, p, bytes);
            }
            std::lock_guard const lock(h.mutex);
            auto const p = h.x.pin(own);
            all.expect(own, p, h.value);
            write(own, p, h.value = static_cast<unsigned char>(random()));
          } catch (out_of_memory const&) {
            ++refused;
          }
        own.synchronize();
        wrong += all.wrong();
      };
      std::vector<std::thread> threads;
      for (std::uint64_t seed = 1; seed <= 4; ++seed) threads.emplace_back(work, seed);
      for (auto& thread : threads) thread.join();
      CHECK(memory.numbers().returns > 0);
      CHECK(refused == 0);  // four pins and four blocks always fit
    }
    sim::run_all();
    CHECK(wrong == 0);
    expect_in_order();
    CHECK(sim::live_allocations() == 0);
    sim::reset();
  }
}
