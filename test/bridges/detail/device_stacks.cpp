// needs: tsan
#include <weir/bridges/detail/device_stacks.hpp>

#include <weir/adaptors/statistics.hpp>
#include <weir/core/numbers.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/sources/device.hpp>

#include <doctest/doctest.h>
#include <support/sim_fixture.hpp>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace weir;
using namespace weir::test;
using detail::device_stacks;

namespace {

std::atomic<int> stacks_made;

any_resource made_from(std::string const& text) {
  ++stacks_made;
  if (text == "plain") return any_resource(device{});
  if (text == "counted") return any_resource(device{} | statistics{});
  if (text == "of 1") return any_resource(device{.device = 1});
  throw std::runtime_error("no stack is called '" + text + "'");
}

std::atomic<int> asking;
template <int Count>
any_resource made_once_all_ask(std::string const&) {
  while (asking != Count) std::this_thread::yield();
  return made_from("plain");
}

struct two_devices : fresh_world {
  device_stacks stacks{&made_from, "plain"};
  two_devices() { stacks_made = 0; }
};

}  // namespace

TEST_CASE_FIXTURE(two_devices, "a stack is made of its device when it is first asked for, and once") {
  CHECK(stacks.made(1) == nullptr);
  any_resource const& first = stacks.get(1);
  CHECK(device_of(first) == 1);
  CHECK(current_device() == 0);
  CHECK(stacks.made(1) == &first);
  CHECK(&stacks.get(1) == &first);
  CHECK(stacks.made(0) == nullptr);
  CHECK(stacks_made == 1);
}

TEST_CASE_FIXTURE(two_devices, "each device may have a text of its own, and the last one that was given counts") {
  stacks.use("nonsense");
  stacks.use("counted", 1);
  stacks.use("plain", 0);
  CHECK(report_of(stacks.get(0)).chain() == "device(0)");
  CHECK(report_of(stacks.get(1)).chain() == "statistics > device(1)");
  CHECK(stacks_made == 2);
}

TEST_CASE_FIXTURE(two_devices, "no text takes the place of one that a stack was made from, and then none is changed") {
  stacks.get(1);
  CHECK_THROWS_AS(stacks.use("counted"), std::logic_error);
  CHECK_THROWS_AS(stacks.use("counted", 1), std::logic_error);
  CHECK(report_of(stacks.get(0)).chain() == "device(0)");
  stacks.use("plain", 1);
  stacks.use("plain");
}

TEST_CASE_FIXTURE(two_devices, "what cannot be made is not there, and may be tried again") {
  stacks.use("nonsense", 0);
  CHECK_THROWS_AS(stacks.get(0), std::runtime_error);
  stacks.use("of 1", 0);
  CHECK_THROWS_AS(stacks.get(0), std::invalid_argument);
  CHECK(stacks.made(0) == nullptr);
  CHECK(current_device() == 0);
  stacks.use("plain", 0);
  CHECK(device_of(stacks.get(0)) == 0);
}

TEST_CASE_FIXTURE(two_devices, "a device that cannot be is refused, and has no stack") {
  for (int const wrong : {-2, -1, 2, device_stacks::most, device_stacks::most + 1}) {
    CHECK_THROWS_AS(stacks.get(wrong), std::invalid_argument);
    CHECK(stacks.made(wrong) == nullptr);
  }
  CHECK_THROWS_AS(stacks.use("plain", -2), std::invalid_argument);
  CHECK_THROWS_AS(stacks.use("plain", device_stacks::most), std::invalid_argument);
  CHECK(stacks_made == 0);
}

TEST_CASE_FIXTURE(two_devices, "there may be several devices until the only one is seen") {
  CHECK(stacks.may_be_several_devices());
  stacks.get(0);
  CHECK(stacks.may_be_several_devices());

  sim::set_device_count(1);
  device_stacks of_one(&made_from, "plain");
  CHECK(of_one.may_be_several_devices());
  of_one.get(0);
  CHECK_FALSE(of_one.may_be_several_devices());
}

TEST_CASE_FIXTURE(two_devices, "threads that ask at once get one stack") {
  constexpr int count = 4;
  for (int round = 1; round <= 20; ++round) {
    asking = 0;
    device_stacks all_at_once(&made_once_all_ask<count>, "");
    std::vector<std::thread> threads;
    for (int t = 0; t < count; ++t)
      threads.emplace_back([&all_at_once] {
        ++asking;
        auto const* const mine = &all_at_once.get(0);
        CHECK(mine == all_at_once.made(0));
      });
    for (std::thread& each : threads) each.join();
    CHECK(stacks_made == round);
  }
}
