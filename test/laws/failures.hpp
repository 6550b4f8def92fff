#pragma once
// One run of a small program on a stack, in which one CUDA call or one host allocation of the stack's fails.

#include <laws/open_stack.hpp>

#include <weir/core/error.hpp>
#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sim/state.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace failures {

namespace sim = weir::sim;

enum class fault { out_of_memory, unknown, host_memory };

inline char const* name_of(fault f) {
  return f == fault::out_of_memory ? "CUDA is out of memory"
         : f == fault::unknown     ? "CUDA fails"
                                   : "the host is out of memory";
}

// ---- host memory, for the program's `operator new`

struct host_plan {
  bool on = false;
  std::uint64_t left = 0;  // 0: none fails
  std::uint64_t asked = 0;
};
inline thread_local constinit host_plan plan;

/// Whether this allocation has to fail. The stand-in's own are none of the stack's.
inline bool host_allocation_fails() {
  if (!plan.on || sim::detail::this_thread().in_call) return false;
  ++plan.asked;
  return plan.left != 0 && --plan.left == 0;
}

class mortal_stream {
 public:
  mortal_stream() { REQUIRE_EQ(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), cudaSuccess); }
  ~mortal_stream() { cudaStreamDestroy(handle_); }
  mortal_stream(mortal_stream const&) = delete;
  mortal_stream& operator=(mortal_stream const&) = delete;
  cudaStream_t get() const { return handle_; }

 private:
  cudaStream_t handle_ = nullptr;
};

struct block {
  void* p;
  std::size_t bytes, alignment;
  cudaStream_t used_on;
};

/// Streams, events and pools that exist.
inline std::size_t handles() {
  auto& r = sim::detail::state();
  std::lock_guard const lock(r.mutex);
  std::size_t count = 0;
  auto const one = [&](auto const&) { ++count; };
  r.streams.for_each(one), r.events.for_each(one), r.pools.for_each(one);
  return count;
}

/// The stack, its streams, and the fault that is to come. What the program calls is checked here, each time.
class trial {
 public:
  trial(std::function<open_stack::stack()> const& make, fault kind, std::uint64_t k, sim::mode mode)
      : kind_(kind), left_(k) {
    sim::reset();
    sim::set_capacity(0, std::size_t{4} << 20);
    sim::set_host_capacity(std::size_t{4} << 20);
    sim::set_mode(mode);
    sim::check_order(true);
    misuse().clear();
    before_ = weir::set_misuse_handler([](char const* what) noexcept { misuse() = what; });
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    static_cast<void>(cudaStreamSynchronize(cudaStreamPerThread));  // it exists from now on
    handles_ = handles();
    bool const made = try_to([&] { stack_ = make(); });
    if (made) return;
    CHECK_EQ(sim::live_allocations(), 0);
    CHECK_EQ(handles(), handles_);
    stack_ = make();
  }
  ~trial() {
    stack_ = {};
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
    sim::reset();
    weir::set_misuse_handler(before_);
  }
  trial(trial const&) = delete;
  trial& operator=(trial const&) = delete;

  /// A block; it fails at most once, for the fault, and leaves all as it was.
  block* take(weir::stream_ref order, std::size_t bytes, std::size_t alignment = 256) {
    block* p = try_to_take(order, bytes, alignment);
    REQUIRE(p != nullptr);
    return p;
  }
  /// The same where there may be no room: null then.
  block* try_to_take(weir::stream_ref order, std::size_t bytes, std::size_t alignment = 256) {
    void* p = nullptr;
    auto const before = numbers();
    auto const allocate = [&] { p = stack_.allocate(order, bytes, alignment); };
    if (!try_to(allocate, true)) {
      CHECK(p == nullptr);
      CHECK(before == numbers());
      if (!hit_now_) return nullptr;
      lost_ += gave_back_;
      bool const again = try_to(allocate, true);
      if (!again) return nullptr;
    }
    REQUIRE(p != nullptr);
    bool const on_host = order.is_host_order();
    blocks_.push_back({p, bytes, alignment, on_host ? a : order.get()});
    use(blocks_.back());
    return &blocks_.back();
  }

  void give(weir::stream_ref order, block* given) {
    use(*given);
    if (order.is_host_order()) wait_for(given->used_on);
    try_to([&] { stack_.deallocate(order, given->p, given->bytes, given->alignment); });
    CHECK_EQ(host_allocations_, 0);
    lost_ += hit_now_ && gave_back_;
    blocks_.remove_if([given](block const& each) { return &each == given; });
  }

  void trim() {
    if (!stack_.trim) return;
    try_to([&] { stack_.trim(0); });
    lost_ += hit_now_ && gave_back_;
  }
  void synchronize() {
    if (!stack_.synchronize) return;
    try_to([&] { stack_.synchronize(); });
    lost_ += hit_now_ && gave_back_;
  }
  void describe() {
    auto const before = numbers();
    std::string text;
    auto const ask = [&] { text = stack_.describe(); };
    if (!try_to(ask)) ask();
    CHECK_FALSE(text.empty());
    CHECK(before == numbers());
  }
  void wait_for(cudaStream_t s) { REQUIRE_EQ(cudaStreamSynchronize(s), cudaSuccess); }

  /// The stack ends; what it had is CUDA's again, but for what CUDA did not take back.
  void end() {
    if (lost_ == 0) {
      // All is free again, so all of it can go back, and no layer has anything in use.
      if (stack_.synchronize) stack_.synchronize();
      if (stack_.trim) stack_.trim(0);
      for (std::uint64_t const n : numbers()) CHECK_EQ(n, 0);
    }
    try_to([&] { stack_ = {}; });
    lost_ += hit_now_ && gave_back_;
    sim::run_all();
    CHECK(sim::live_allocations() <= lost_);
    CHECK(handles() <= handles_ + lost_);
    CHECK(handles() + lost_ >= handles_);
  }

  bool was_hit() const { return hit_; }

  cudaStream_t a = nullptr, b = nullptr;

 private:
  static std::string& misuse() {
    static std::string what;
    return what;
  }

  /// What the layers say is in use, one after the other.
  std::vector<std::uint64_t> numbers() const {
    std::vector<std::uint64_t> now;
    for (auto const& ask : stack_.accounts) {
      open_stack::account const said = ask();
      if (said.wrong != nullptr) FAIL_CHECK(said.wrong);  // an assertion for each would cost more than all else
      for (std::uint64_t const n : {said.requested, said.allocated})
        if (n != open_stack::account::unsaid) now.push_back(n);
    }
    return now;
  }

  /// Of a large block both ends: to write all of each would take most of the test's time.
  void use(block const& used) {
    std::size_t const end = std::min(used.bytes, std::size_t{4096});
    sim::touch(used.used_on, used.p, end, sim::access::write);
    sim::touch(used.used_on, static_cast<char*>(used.p) + used.bytes - end, end, sim::access::write);
  }

  /// Does it with the fault to come. False if it threw what a stack may throw.
  template <class Action>
  bool try_to(Action action, bool may_be_refused = false) {
    bool worked = true;
    arm();
    try {
      action();
      disarm();
    } catch (std::bad_alloc const&) {
      disarm();
      worked = false;
    } catch (weir::cuda_error const&) {
      disarm();
      worked = false;
      CHECK(hit_now_);
    }
    CHECK((worked || hit_now_ || may_be_refused));
    CHECK_EQ(cudaPeekAtLastError(), cudaSuccess);
    CHECK_EQ(misuse(), "");
    CHECK_EQ(sim::report_count(), 0);
    for (auto const& r : sim::reports()) MESSAGE(r.text);
    sim::clear_reports();
    static_cast<void>(cudaGetLastError());
    return worked;
  }

  void arm() {
    calls_ = sim::calls();
    calls_back_ = open_stack::calls_that_give_back();
    bool const cuda = kind_ != fault::host_memory;
    if (cuda && left_ != 0)
      sim::fail_call(left_, kind_ == fault::unknown ? cudaErrorUnknown : cudaErrorMemoryAllocation);
    plan = {true, cuda ? 0 : left_, 0};
  }
  void disarm() {
    plan.on = false;
    sim::clear_failure();
    host_allocations_ = plan.asked;
    std::uint64_t const seen = kind_ == fault::host_memory ? plan.asked : sim::calls() - calls_;
    hit_now_ = left_ != 0 && seen >= left_;
    hit_ |= hit_now_;
    gave_back_ = open_stack::calls_that_give_back() != calls_back_;
    left_ = hit_now_ ? 0 : left_ == 0 ? 0 : left_ - seen;
  }

  fault kind_;
  std::uint64_t left_, calls_ = 0, calls_back_ = 0, host_allocations_ = 0;
  bool hit_ = false, hit_now_ = false, gave_back_ = false;
  std::size_t lost_ = 0, handles_ = 0;
  open_stack::stack stack_;
  std::list<block> blocks_;
  weir::misuse_handler before_ = nullptr;
};

}  // namespace failures
