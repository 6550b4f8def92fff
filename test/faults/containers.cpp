// Every CUDA call that containers make, and those of the stack below them, fails once; then all fail from some call on.
// Whatever fails, a container is as it was or can still be used, nothing leaks, and no error is left behind.
#include <random/open_stack.hpp>

#include <weir/adaptors/pool.hpp>
#include <weir/containers.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/error.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/device.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <support/test_source.hpp>
#include <utility>
#include <vector>

using namespace weir;

namespace {

using numbers = std::vector<int>;
numbers const five{1, 2, 3, 4, 5};

/// One run of the program below, in which a call fails: the k-th from now.
class trial {
 public:
  explicit trial(std::uint64_t k) : fault_at_(sim::calls() + k) {}

  /// Does it. If it fails, for the fault, does it once more; false if it fails then too, which only sticky faults may.
  bool step(std::function<void()> const& act) {
    works_ = works_ && (attempt(act) || attempt(act));
    return works_;
  }
  /// After a fault that stays nothing can be read.
  bool works() const { return works_; }
  bool was_hit() const { return sim::calls() >= fault_at_; }
  /// How many pieces of memory, or events, may be lost: one, where the fault was in a step that gave some back.
  std::size_t may_be_lost() const { return may_be_lost_; }

 private:
  bool attempt(std::function<void()> const& act) {
    bool const was_to_come = !was_hit();
    std::uint64_t const before = open_stack::calls_that_give_back();
    bool worked = true;
    try {
      act();
    } catch (cuda_error const&) {
      worked = false;
    } catch (std::bad_alloc const&) {
      worked = false;
    }
    may_be_lost_ += was_to_come && was_hit() && open_stack::calls_that_give_back() != before;
    return worked;
  }

  std::uint64_t fault_at_;
  bool works_ = true;
  std::size_t may_be_lost_ = 0;
};

void program(trial& t, std::optional<any_resource>& memory, stream const& s, stream const& other) {
  std::optional<vector<int>> v, w;
  if (!t.step([&] { v.emplace(five, s, *memory); })) return;

  // What fails leaves the elements and the memory they are in.
  int const* const before = v->data();
  t.step([&] {
    try {
      v->resize(100'000);
    } catch (...) {
      CHECK(v->data() == before);
      CHECK(v->size() == 5);
      throw;
    }
  });
  t.step([&] { v->resize(5); });
  t.step([&] { v->shrink_to_fit(); });
  t.step([&] { w.emplace(v->copy(other)); });
  t.step([&] { v->set_stream(other); });
  t.step([&] { v->set_stream(s); });
  numbers seen;
  if (t.step([&] { seen = v->to_host(); })) CHECK(seen == five);
  if (t.step([&] { seen = w->to_host(); })) CHECK(seen == five);

  static int const late = 9;
  t.step([&] { v->set(0, 7); });
  t.step([&] { v->set(1, 8, other); });
  t.step([&] { v->set_async(2, late, other); });
  t.step([&] { v->set_async(3, late); });
  int value = 0;
  if (t.step([&] { value = v->get(1, other); })) CHECK(value == 8);
  if (t.step([&] { value = v->get(2); })) CHECK(value == 9);
  if (t.works()) t.step([&] { *v = std::move(*w); });
  if (t.step([&] { value = v->get(0); })) CHECK(value == 1);

  std::optional<scalar<int>> one;
  t.step([&] { one.emplace(3, cudaStreamLegacy, *memory); });
  t.step([&] { one->set_to_zero(); });
  if (t.step([&] { value = one->value(); })) CHECK(value == 0);

  t.step([&] {
    one.reset();
    w.reset();
    v.reset();
    memory.reset();
  });
}

/// One run with a fault in its k-th CUDA call; whether there were so many.
bool run(std::function<any_resource()> const& make_memory, int device, sim::mode mode, std::uint64_t k, bool sticky) {
  CAPTURE(k);
  CAPTURE(sticky);
  CAPTURE(static_cast<int>(mode));
  sim::reset();
  sim::set_mode(mode);
  sim::check_order(true);
  test::caught_misuse const misuse;
  bool hit = false;
  {
    cudaSetDevice(device);
    stream const s, other;
    cudaSetDevice(0);
    std::size_t const handles = sim::live_handles();
    {
      std::optional<any_resource> memory(make_memory());
      trial t(k);
      if (sticky)
        sim::fail_from(k, cudaErrorIllegalAddress);
      else
        sim::fail_call(k, cudaErrorUnknown);
      program(t, memory, s, other);
      hit = t.was_hit();
      if (!sticky) {
        CHECK(t.works());
        CHECK(cudaPeekAtLastError() == cudaSuccess);
        sim::clear_failure();
        sim::run_all();
        CHECK(sim::live_allocations() + sim::live_handles() <= handles + t.may_be_lost());
      }
    }
    CHECK(misuse.count() == 0);
    for (auto const& report : sim::reports()) MESSAGE(report.text);
    CHECK(sim::report_count() == 0);
  }
  sim::reset();
  return hit;
}

}  // namespace

TEST_CASE("each CUDA call fails once, and from each on all fail") {
  struct {
    std::function<any_resource()> make;
    int device = 0;
  } const stacks[] = {
      {[] { return any_resource(async{}); }},
      {[] { return any_resource(async{} | pool{}); }},
      {[] { return any_resource(device{.device = 1} | pool{}); }, 1},
  };
  for (bool const sticky : {false, true})
    for (sim::mode const mode : {sim::mode::immediate, sim::mode::lazy})
      for (auto const& stack : stacks) {
        std::uint64_t k = 1;
        while (run(stack.make, stack.device, mode, k, sticky)) ++k;
        CHECK(k > 40);
      }
}
