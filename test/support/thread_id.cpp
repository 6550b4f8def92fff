// needs: tsan
#include <weir/support/thread_id.hpp>

#include <doctest/doctest.h>

#include <unistd.h>

#include <cstdint>
#include <thread>

using weir::detail::thread_id;

TEST_CASE("a thread has the kernel's number, and each its own") {
  CHECK(thread_id() == static_cast<std::uint64_t>(::gettid()));
  CHECK(thread_id() == static_cast<std::uint64_t>(::gettid()));
  std::uint64_t theirs = 0, expected = 0;
  std::thread([&] { theirs = thread_id(), expected = static_cast<std::uint64_t>(::gettid()); }).join();
  CHECK(theirs == expected);
  CHECK(theirs != thread_id());
}
