#pragma once
// One run of a small program on a stack, in which one CUDA call or one host allocation of the stack's fails, or all
// CUDA calls from some call of the stack's on.

#include <random/open_stack.hpp>

#include <weir/core/error.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/destroyable_stream.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace failures {

namespace sim = weir::sim;
using weir::test::destroyable_stream;

enum class fault { none, out_of_memory, unknown, host_memory, sticky };

inline char const* name_of(fault f) {
  return f == fault::out_of_memory ? "CUDA is out of memory"
         : f == fault::unknown     ? "CUDA fails"
         : f == fault::sticky      ? "CUDA fails from then on"
         : f == fault::none        ? "nothing fails"
                                   : "the host is out of memory";
}

// ---- host memory, for the program's `operator new`

struct host_plan {
  bool on = false;
  std::uint64_t left = 0;  // 0: none fails
  std::uint64_t asked = 0;
};
inline thread_local constinit host_plan plan;

/// Whether this allocation has to fail. The simulated runtime's own are none of the stack's.
inline bool host_allocation_fails() {
  if (!plan.on || sim::in_runtime_call()) return false;
  ++plan.asked;
  return plan.left != 0 && --plan.left == 0;
}

struct block {
  void* p;
  std::size_t bytes, alignment;
  cudaStream_t used_on;
};

/// The stack, its streams, and the fault that is to come. What the program calls is checked here, each time.
class trial {
 public:
  trial(std::function<open_stack::stack()> const& make, fault kind, std::uint64_t k, sim::mode mode,
        std::size_t capacity = std::size_t{4} << 20)
      : make_(make), kind_(kind), left_(kind == fault::none ? 0 : k), kept_for_good_(kind == fault::sticky) {
    sim::reset();
    sim::set_capacity(0, capacity);
    sim::set_host_capacity(capacity);
    sim::set_mode(mode);
    sim::check_order(true);
    misuse().clear();
    before_ = weir::set_misuse_handler([](char const* what) noexcept { misuse() = what; });
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    static_cast<void>(cudaStreamSynchronize(cudaStreamPerThread));  // it exists from now on
    handles_ = sim::live_handles();
    bool const made = try_to([&] { stack_ = make(); }, kind == fault::none);
    if (made || all_is_lost_ || kind == fault::none) return;
    CHECK_EQ(sim::live_allocations(), 0);
    CHECK_EQ(sim::live_handles(), handles_);
    stack_ = make();
  }
  ~trial() {
    stack_ = {};
    sim::clear_failure();
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
    sim::reset();
    weir::set_misuse_handler(before_);
  }
  trial(trial const&) = delete;
  trial& operator=(trial const&) = delete;

  /// A block; it fails at most once, for the fault, and leaves all as it was. Null once all is lost, or a capture.
  block* take(weir::stream_ref order, std::size_t bytes, std::size_t alignment = 256) {
    block* p = try_to_take(order, bytes, alignment);
    REQUIRE((p != nullptr || all_is_lost_ || capture_is_hit_));
    return p;
  }
  /// The same where there may be no room: null then.
  block* try_to_take(weir::stream_ref order, std::size_t bytes, std::size_t alignment = 256) {
    if (!stack_.allocate) return nullptr;
    void* p = nullptr;
    auto const before = numbers();
    auto const allocate = [&] { p = stack_.allocate(order, bytes, alignment); };
    if (!try_to(allocate, true)) {
      expect(before == numbers(), "a request that failed changed the numbers");
      if (!hit_now_ || all_is_lost_) return nullptr;
      lost_ += gave_back_;
      bool const again = try_to(allocate, true);
      if (!again) return nullptr;
    }
    REQUIRE(p != nullptr);
    check_apart(p, bytes);
    bool const on_host = order.is_host_order();
    blocks_.push_back({p, bytes, alignment, on_host ? a : order.get()});
    use(blocks_.back());
    return &blocks_.back();
  }

  void give(weir::stream_ref order, block* given) {
    if (given == nullptr) return;
    use(*given);
    if (order.is_host_order()) wait_for(given->used_on);
    try_to([&] { stack_.deallocate(order, given->p, given->bytes, given->alignment); });
    // To say that not even the current device is known.
    expect(host_allocations_ == 0 || all_is_lost_, "a deallocate asked for host memory");
    lost_ += hit_now_ && gave_back_;
    blocks_.remove_if([given](block const& each) { return &each == given; });
  }

  /// Work on another stream, after that of the block's own, which does not wait for it.
  void read_on(weir::stream_ref other, block* p) {
    if (p == nullptr) return;
    cudaEvent_t e = nullptr;
    if (!own(cudaEventCreateWithFlags(&e, cudaEventDisableTiming))) return;
    own(cudaEventRecord(e, p->used_on));
    own(cudaStreamWaitEvent(other.get(), e, 0));
    own(cudaEventDestroy(e));
    if (!all_is_lost_) sim::touch(other.get(), p->p, p->bytes, sim::access::read);
  }
  /// Without host memory it waits.
  void give_after(weir::stream_ref order, block* given, weir::stream_ref other) {
    if (given == nullptr) return;
    use(*given);
    try_to([&] { stack_.deallocate_after(order, given->p, given->bytes, {other}, given->alignment); });
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
    if (!stack_.describe) return;
    if (!try_to(ask) && !all_is_lost_) ask();
    CHECK((!text.empty() || all_is_lost_));
    CHECK(before == numbers());
  }
  void wait_for(cudaStream_t s) { own(cudaStreamSynchronize(s)); }

  /// Whether pools serve captures here.
  bool can_capture() const { return stack_.pooled; }
  void begin_capture(cudaStream_t s) {
    declared_.emplace();
    own(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    if (!all_is_lost_) capture_ = weir::capture_id(s);
  }
  /// The capture ends, and its graph is launched there. If CUDA failed meanwhile, the capture may be broken, and memory
  /// of which nobody knows when it is done is kept.
  void end_capture(cudaStream_t s) {
    kept_for_good_ |= capture_is_hit_;
    cudaGraph_t graph = nullptr;
    bool const works = own(cudaStreamEndCapture(s, &graph));
    declared_.reset();
    if (!works) return;
    own(cudaGraphInstantiate(&launched_, graph, 0));
    own(cudaGraphDestroy(graph));
    own(cudaGraphLaunch(launched_, s));
  }
  /// The graph is gone, and the pools may have its memory.
  void end_graph(cudaStream_t s) {
    wait_for(s);
    if (launched_ != nullptr) own(cudaGraphExecDestroy(launched_));
    launched_ = nullptr;
    if (stack_.release_captured) try_to([&] { stack_.release_captured(capture_); });
    capture_is_hit_ = false;
  }

  /// The stack ends; what it had is CUDA's again, but for what CUDA did not take back.
  void end() {
    if (all_is_lost_) return end_lost();
    if (lost_ == 0 && !kept_for_good_) {
      // All is free again, so all of it can go back, and no layer has anything in use.
      if (stack_.synchronize) stack_.synchronize();
      if (stack_.trim) stack_.trim(0);
      for (std::uint64_t const n : numbers()) CHECK_EQ(n, 0);
    }
    try_to([&] { stack_ = {}; });
    if (all_is_lost_) return end_lost();
    lost_ += hit_now_ && gave_back_;
    sim::run_all();
    if (!kept_for_good_) CHECK(sim::live_allocations() <= lost_);
    CHECK(sim::live_handles() <= handles_ + lost_);
    CHECK(sim::live_handles() + lost_ >= handles_);
  }

  bool was_hit() const { return hit_; }
  bool has_stack() const { return stack_.allocate != nullptr; }
  bool can_trim() const { return stack_.trim != nullptr; }
  /// False after an error that stays.
  bool works() const { return !all_is_lost_; }

  cudaStream_t a = nullptr, b = nullptr;

 private:
  /// Most of what is asked, many million times, is told to doctest only if it is not so: else that would take most of
  /// the test's time.
  static void expect(bool right, char const* what) {
    if (!right) FAIL_CHECK(std::string(what));
  }

  /// A call of the program's own: works, unless nothing does any more, or a capture was hit.
  bool own(cudaError_t code) {
    expect(code == cudaSuccess || all_is_lost_ || capture_is_hit_, "a call of the program's own failed");
    if (code != cudaSuccess) static_cast<void>(cudaGetLastError());
    return code == cudaSuccess;
  }

  /// Nobody can look at contents once no work is done, so that two owners of one place are looked for here.
  void check_apart(void* p, std::size_t bytes) const {
    auto const begin = reinterpret_cast<std::uintptr_t>(p);
    for (block const& each : blocks_) {
      auto const other = reinterpret_cast<std::uintptr_t>(each.p);
      expect(begin + bytes <= other || other + each.bytes <= begin, "two blocks overlap");
    }
  }

  /// After an error that stays the stack ends all the same; then the program starts anew, and the next stack works.
  void end_lost() {
    declared_.reset();
    for (block const& each : blocks_) stack_.deallocate(each.used_on, each.p, each.bytes, each.alignment);
    blocks_.clear();
    stack_ = {};
    sim::run_all();
    CHECK_EQ(misuse(), "");
    sim::reset();
    sim::check_order(true);
    stack_ = make_();
    void* const p = stack_.allocate(a, 1000, 256);
    REQUIRE(p != nullptr);
    sim::touch(a, p, 1000, sim::access::write);
    stack_.deallocate(a, p, 1000, 256);
    stack_ = {};
    sim::run_all();
    CHECK_EQ(sim::live_allocations(), 0);
    CHECK_EQ(sim::report_count(), 0);
    CHECK_EQ(misuse(), "");
  }

  static std::string& misuse() {
    static std::string what;
    return what;
  }

  /// What the layers say is in use, one after the other.
  std::vector<std::uint64_t> numbers() const {
    std::vector<std::uint64_t> now;
    for (auto const& ask : stack_.accounts) {
      open_stack::account const said = ask();
      expect(said.wrong == nullptr, said.wrong);
      for (std::uint64_t const n : {said.requested, said.allocated})
        if (n != open_stack::account::unsaid) now.push_back(n);
    }
    return now;
  }

  /// Of a large block both ends: to write all of each would take most of the test's time.
  void use(block const& used) {
    if (all_is_lost_ || capture_is_hit_) return;
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
      expect(hit_now_, "CUDA was said to fail and did not");
    }
    expect(worked || hit_now_ || may_be_refused, "it threw though nothing failed");
    expect(all_is_lost_ || cudaPeekAtLastError() == cudaSuccess, "an error was left behind");
    expect(misuse().empty(), "misuse was reported");
    expect(sim::report_count() == 0, "a call was out of order");
    for (auto const& r : sim::reports()) MESSAGE(r.text);
    sim::clear_reports();
    static_cast<void>(cudaGetLastError());
    return worked;
  }

  void arm() {
    calls_ = sim::calls();
    calls_back_ = open_stack::calls_that_give_back();
    bool const cuda = kind_ != fault::host_memory;
    if (kind_ == fault::sticky && left_ != 0)
      sim::fail_from(left_, cudaErrorIllegalAddress);
    else if (cuda && left_ != 0)
      sim::fail_call(left_, kind_ == fault::unknown ? cudaErrorUnknown : cudaErrorMemoryAllocation);
    plan = {true, cuda ? 0 : left_, 0};
  }
  void disarm() {
    plan.on = false;
    host_allocations_ = plan.asked;
    std::uint64_t const seen = kind_ == fault::host_memory ? plan.asked : sim::calls() - calls_;
    hit_now_ = all_is_lost_ || (left_ != 0 && seen >= left_);
    all_is_lost_ |= hit_now_ && kind_ == fault::sticky;
    if (!all_is_lost_) sim::clear_failure();
    hit_ |= hit_now_;
    capture_is_hit_ |= hit_now_ && declared_;
    gave_back_ = open_stack::calls_that_give_back() != calls_back_;
    left_ = hit_now_ ? 0 : left_ == 0 ? 0 : left_ - seen;
  }

  std::function<open_stack::stack()> make_;
  fault kind_;
  std::uint64_t left_;
  bool kept_for_good_;           // memory may be, as nobody can tell when its work is done
  bool all_is_lost_ = false;     // CUDA's calls fail for good
  bool capture_is_hit_ = false;  // CUDA failed in it
  std::optional<weir::capture_scope> declared_;
  std::uint64_t capture_ = 0;
  cudaGraphExec_t launched_ = nullptr;
  std::uint64_t calls_ = 0, calls_back_ = 0, host_allocations_ = 0;
  bool hit_ = false, hit_now_ = false, gave_back_ = false;
  std::size_t lost_ = 0, handles_ = 0;
  open_stack::stack stack_;
  std::list<block> blocks_;
  weir::misuse_handler before_ = nullptr;
};

}  // namespace failures
