// Random programs of vectors on two streams, beside a model on the host. The order of every copy, resize and free is
// proved, and whatever is read is what the model says.
#include <weir/adaptors/pool.hpp>
#include <weir/containers/vector.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources/async.hpp>
#include <weir/testing/checked.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace weir;

namespace {

/// A vector, and what is known of its elements.
struct subject {
  vector<int> on_device;
  std::vector<std::optional<int>> model;
};

class program {
 public:
  explicit program(std::uint64_t seed) : draw_(seed) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) step();
    for (subject const& each : subjects_) compare(each);
  }

 private:
  std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(draw_); }
  stream_ref a_stream() { return streams_[below(2)]; }
  std::vector<int> values() {
    std::vector<int> made(below(2000));
    for (int& value : made) value = static_cast<int>(below(1000));
    return made;
  }

  void step() {
    if (subjects_.size() < 3) return add();
    std::size_t const at = below(subjects_.size());
    subject& one = subjects_[at];
    switch (below(11)) {
      case 0:
        return add();
      case 1:
        std::swap(one, subjects_.back());
        return subjects_.pop_back();
      case 2: {
        std::size_t const count = below(4000);
        one.on_device.resize(count);
        return one.model.resize(count);
      }
      case 3:
        return one.on_device.reserve(below(4000));
      case 4:
        return one.on_device.shrink_to_fit();
      case 5:
        return subjects_.push_back({one.on_device.copy(a_stream()), std::vector(subjects_[at].model)});
      case 6:
        return one.on_device.set_stream(a_stream());
      case 7:
        one = subject(std::move(subjects_.back()));
        return subjects_.pop_back();
      case 8:
        one.on_device.set_to_zero();
        return one.model.assign(one.model.size(), 0);
      case 9:
        return compare(one);
      default:
        return set(one);
    }
  }

  void add() {
    std::vector<int> const some = values();
    subjects_.push_back({vector<int>(some, a_stream(), memory_), {some.begin(), some.end()}});
  }
  void set(subject& one) {
    if (one.model.empty()) return;
    std::size_t const i = below(one.model.size());
    int const& value = kept_[below(kept_.size())];
    if (below(2) == 0)
      one.on_device.set(i, value, a_stream());
    else
      one.on_device.set_async(i, value, a_stream());
    one.model[i] = value;
    if (below(2) == 0) CHECK(one.on_device.get(i, a_stream()) == value);
  }
  static void compare(subject const& one) {
    std::vector<int> const seen = one.on_device.to_host();
    REQUIRE(seen.size() == one.model.size());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < seen.size(); ++i) wrong += one.model[i] && *one.model[i] != seen[i];
    CHECK(wrong == 0);
  }

  std::mt19937_64 draw_;
  std::vector<int> const kept_{3, 1, 4, 1, 5, 9};  // copied from while work is queued
  made_by<decltype(async{} | pool{} | checked{})> memory_ = make(async{} | pool{} | checked{});
  stream streams_[2];
  std::vector<subject> subjects_;
};

}  // namespace

TEST_CASE("vectors have what a model says, and every use of their memory has an order") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    sim::reset();
    sim::set_mode(seed % 3 == 0 ? sim::mode::lazy : sim::mode::random);
    sim::set_seed(seed);
    sim::check_order(true);
    program(seed).run(300);
    for (auto const& report : sim::reports()) MESSAGE(report.text);
    CHECK(sim::report_count() == 0);
    sim::run_all();
    CHECK(sim::live_allocations() == 0);
  }
  sim::reset();
}
