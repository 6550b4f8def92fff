// needs: tsan
#include <weir/support/shared_owner.hpp>

#include <doctest/doctest.h>

#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

using weir::detail::shared_owner;

namespace {
struct counted {
  explicit counted(int& live_ones) : live(live_ones) { ++live; }
  counted(counted const&) = delete;
  counted& operator=(counted const&) = delete;
  ~counted() { --live; }
  int& live;
};
struct derived : counted {
  explicit derived(int& live_ones, int& destroyed_ones) : counted(live_ones), destroyed(destroyed_ones) {}
  derived(derived const&) = delete;
  derived& operator=(derived const&) = delete;
  ~derived() { ++destroyed; }
  int& destroyed;
};
struct refuses {
  refuses() { throw std::runtime_error("no"); }
};
}  // namespace

TEST_CASE("the last owner destroys the object, whatever happened to the others") {
  int live = 0;
  {
    auto first = shared_owner<counted>::make(live);
    {
      auto const second = first;
      CHECK(second == first);
      CHECK_FALSE(first.alone());
      CHECK(second.get() == first.get());
      auto const moved = std::move(first);
      CHECK(first.get() == nullptr);
      CHECK(live == 1);
      first = moved;
      CHECK(first == second);
    }
    CHECK(first.alone());
    first = shared_owner<counted>::make(live);  // the one before goes
    CHECK(live == 1);
    auto& itself = first;
    first = itself;
    CHECK(live == 1);
  }
  CHECK(live == 0);
}

TEST_CASE("what was made as a derived class is destroyed as one, without a virtual destructor") {
  int live = 0, destroyed = 0;
  { shared_owner<counted> const held = shared_owner<counted>::make<derived>(live, destroyed); }
  CHECK(live == 0);
  CHECK(destroyed == 1);
}

TEST_CASE("an object that nobody owns is not destroyed, and an empty one owns nothing") {
  int live = 0;
  counted object(live);
  {
    auto const held = shared_owner<counted>::unowned(object);
    auto const copy = held;
    CHECK(copy.get() == &object);
  }
  CHECK(live == 1);
  shared_owner<counted> empty;
  shared_owner<counted> const other = std::move(empty);
  CHECK(other.get() == nullptr);
  CHECK(other == shared_owner<counted>());
}

TEST_CASE("a constructor that throws leaves nothing behind") {
  CHECK_THROWS_WITH_AS(shared_owner<refuses>::make(), "no", std::runtime_error);
}

TEST_CASE("owners on many threads: one of them destroys it, after what all of them did") {
  for (int round = 0; round < 200; ++round) {
    int live = 0;
    std::vector<int> written(4);
    struct reader : counted {
      reader(int& live_ones, std::vector<int>& what) : counted(live_ones), all(what) {}
      ~reader() {
        for (int one : all) sum += one;
        CHECK(sum == 4);
      }
      std::vector<int>& all;
      int sum = 0;
    };
    {
      std::vector<std::thread> threads;
      auto held = shared_owner<counted>::make<reader>(live, written);
      for (std::size_t i = 0; i < written.size(); ++i)
        threads.emplace_back([&written, i, own = held] { written[i] = 1; });
      held = {};
      for (auto& one : threads) one.join();
    }
    CHECK(live == 0);
  }
}
