// needs: tsan
#include <weir/adaptors/detail/reserve_account.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <thread>
#include <vector>

using weir::detail::reserve_account;

TEST_CASE("requests take from the reserve first, and frees fill it up below its size alone") {
  reserve_account reserve(100);
  CHECK(reserve.bytes() == 100);
  CHECK(reserve.begin_request(70) == 70);
  reserve.end_request(70, 70);
  CHECK(reserve.begin_request(70) == 30);
  reserve.end_request(70, 30);
  CHECK(reserve.left() == 0);
  CHECK(reserve.begin_free(30) == 0);  // 110 are in use
  reserve.end_free(0);
  CHECK(reserve.begin_free(30) == 20);  // 80 are
  CHECK(reserve.left() == 0);           // until the memory is there
  reserve.end_free(20);
  CHECK(reserve.left() == 20);
  CHECK(reserve.begin_free(80) == 80);
  reserve.end_free(80);
  CHECK(reserve.left() == 100);
}

TEST_CASE("what fails leaves no trace") {
  reserve_account reserve(100);
  CHECK(reserve.begin_request(150) == 100);
  reserve.undo_request(100);
  CHECK(reserve.left() == 100);
  CHECK(reserve.begin_request(60) == 60);
  reserve.end_request(60, 60);
  CHECK(reserve.begin_free(60) == 60);
  reserve.undo_free(60, 60);
  CHECK(reserve.left() == 40);
  CHECK(reserve.begin_free(60) == 60);
  reserve.end_free(60);
  CHECK(reserve.left() == 100);
}

TEST_CASE("a request that may still fail does not count as in use") {
  reserve_account reserve(100);
  reserve.end_request(80, reserve.begin_request(80));
  CHECK(reserve.begin_request(40) == 20);
  CHECK(reserve.begin_free(40) == 40);  // if the other one fails, only 40 are in use
  reserve.end_free(40);
  reserve.undo_request(20);
  CHECK(reserve.left() == 60);
}

TEST_CASE("what a request did not need after all is left again") {
  reserve_account reserve(100);
  CHECK(reserve.begin_request(80) == 80);
  reserve.end_request(20, 20, 60);
  CHECK(reserve.left() == 80);
  CHECK(reserve.begin_free(20) == 20);
}

TEST_CASE("a free of what is not in use makes no more of it than there is") {
  reserve_account reserve(100);
  reserve.end_request(60, reserve.begin_request(60));
  reserve.end_free(reserve.begin_free(60));
  reserve.end_free(reserve.begin_free(60));
  CHECK(reserve.left() == 100);
  CHECK(reserve.begin_request(150) == 100);
  reserve.end_request(150, 100);
  CHECK(reserve.begin_free(150) == 100);
}

TEST_CASE("none is none") {
  reserve_account none(0);
  CHECK(none.begin_request(10) == 0);
  none.end_request(10, 0);
  CHECK(none.begin_free(10) == 0);
  none.end_free(0);
  CHECK(none.left() == 0);
}

TEST_CASE("threads lose nothing of it") {
  reserve_account reserve(1000);
  std::vector<std::thread> threads;
  for (std::size_t t = 1; t <= 4; ++t)
    threads.emplace_back([&reserve, t] {
      for (int i = 0; i < 5000; ++i) {
        std::size_t const bytes = 100 * t, paid = reserve.begin_request(bytes);
        if (i % 3 == 0) {
          reserve.undo_request(paid);
          continue;
        }
        reserve.end_request(bytes, paid);
        reserve.end_free(reserve.begin_free(bytes));
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(reserve.left() == 1000);
}
