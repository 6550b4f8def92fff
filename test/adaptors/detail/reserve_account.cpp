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
  CHECK(reserve.end_request(70, 70) == 0);
  CHECK(reserve.begin_request(70) == 30);
  CHECK(reserve.end_request(70, 30) == 0);
  CHECK(reserve.left() == 0);
  CHECK(reserve.begin_free(30) == 0);  // 110 are in use
  CHECK(reserve.end_free(0) == 0);
  CHECK(reserve.begin_free(30) == 20);  // 80 are
  CHECK(reserve.left() == 0);           // until the memory is there
  CHECK(reserve.end_free(20) == 0);
  CHECK(reserve.left() == 20);
  CHECK(reserve.begin_free(80) == 80);
  CHECK(reserve.end_free(80) == 0);
  CHECK(reserve.left() == 100);
}

TEST_CASE("what fails leaves no trace") {
  reserve_account reserve(100);
  CHECK(reserve.begin_request(150) == 100);
  CHECK(reserve.undo_request(100) == 0);
  CHECK(reserve.left() == 100);
  CHECK(reserve.begin_request(60) == 60);
  CHECK(reserve.end_request(60, 60) == 0);
  CHECK(reserve.begin_free(60) == 60);
  CHECK(reserve.undo_free(60, 60) == 0);
  CHECK(reserve.left() == 40);
  CHECK(reserve.begin_free(60) == 60);
  CHECK(reserve.end_free(60) == 0);
  CHECK(reserve.left() == 100);
}

TEST_CASE("a request that may still fail does not count as in use") {
  reserve_account reserve(100);
  CHECK(reserve.end_request(80, reserve.begin_request(80)) == 0);
  CHECK(reserve.begin_request(40) == 20);
  CHECK(reserve.begin_free(40) == 40);  // if the other one fails, only 40 are in use
  CHECK(reserve.end_free(40) == 0);
  CHECK(reserve.undo_request(20) == 0);
  CHECK(reserve.left() == 60);
}

TEST_CASE("what a request did not need after all is left again") {
  reserve_account reserve(100);
  CHECK(reserve.begin_request(80) == 80);
  CHECK(reserve.end_request(20, 20, 60) == 0);
  CHECK(reserve.left() == 80);
  CHECK(reserve.begin_free(20) == 20);
}

TEST_CASE("a free of what is not in use makes no more of it than there is") {
  reserve_account reserve(100);
  CHECK(reserve.end_request(60, reserve.begin_request(60)) == 0);
  CHECK(reserve.end_free(reserve.begin_free(60)) == 0);
  CHECK(reserve.end_free(reserve.begin_free(60)) == 0);
  CHECK(reserve.left() == 100);
  CHECK(reserve.begin_request(150) == 100);
  CHECK(reserve.end_request(150, 100) == 0);
  CHECK(reserve.begin_free(150) == 100);
}

TEST_CASE("what fills it up during a request that it does not pay is charged below once") {
  reserve_account reserve(100);
  CHECK(reserve.begin_request(150) == 100);
  CHECK(reserve.end_request(150, 100) == 0);
  CHECK(reserve.begin_request(60) == 0);  // it is all in use
  CHECK(reserve.begin_free(150) == 100);
  CHECK(reserve.end_free(100) == 0);
  CHECK(reserve.left() == 100);
  CHECK(reserve.end_request(60, 0) == 60);  // charged below for itself, and by what is left
  CHECK(reserve.left() == 40);
  CHECK(reserve.begin_free(60) == 60);
  CHECK(reserve.end_free(60) == 0);
  CHECK(reserve.left() == 100);
}

TEST_CASE("none is none") {
  reserve_account none(0);
  CHECK(none.begin_request(10) == 0);
  CHECK(none.end_request(10, 0) == 0);
  CHECK(none.begin_free(10) == 0);
  CHECK(none.end_free(0) == 0);
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
          static_cast<void>(reserve.undo_request(paid));
          continue;
        }
        static_cast<void>(reserve.end_request(bytes, paid));
        static_cast<void>(reserve.end_free(reserve.begin_free(bytes)));
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(reserve.left() == 1000);
}
