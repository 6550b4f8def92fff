#include <weir/cuda/process_exit.hpp>

#include <doctest/doctest.h>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>

using weir::detail::captures_declared;
using weir::detail::process_exit;

namespace {

/// The exit status of a child that runs `work`, and then exits as any program does; -1 if it did not end so.
template <class Work>
int status_of_child(Work work) {
  std::fflush(nullptr);
  ::pid_t const child = ::fork();
  if (child == 0) {
    ::alarm(30);
    std::exit(work());
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

process_exit* asked = nullptr;  // exit functions take no arguments
bool earlier_one_was_over = false;

std::atomic<bool> is_slow_to_watch{false}, is_watching{false};

}  // namespace

extern "C" {
int __register_atfork(void (*before)(), void (*in_parent)(), void (*in_child)(), void* library) noexcept;

/// In place of the C library's, which does only what is last: a thread may be held here until a test has forked.
int pthread_atfork(void (*before)(), void (*in_parent)(), void (*in_child)()) noexcept {
  is_watching = true;
  while (is_slow_to_watch) std::this_thread::yield();
  return __register_atfork(before, in_parent, in_child, nullptr);
}
}

// Before all others, which watch forks from then on.
TEST_CASE("a child that is forked while another thread makes the first object can make its own") {
  CHECK(status_of_child([] {
          is_slow_to_watch = true;
          std::thread other([] { process_exit const first; });
          while (!is_watching) std::this_thread::yield();
          std::fflush(nullptr);
          ::pid_t const child = ::fork();
          if (child == 0) {
            is_slow_to_watch = false;
            ::alarm(10);
            process_exit const own;
            ::_exit(7);
          }
          is_slow_to_watch = false;
          int status = -1;
          ::waitpid(child, &status, 0);
          other.join();
          return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        }) == 7);
}

TEST_CASE("a child's parent's objects are over, its own and the parent's are not") {
  process_exit life;
  CHECK_FALSE(life.is_exiting());
  CHECK(status_of_child([&] {
          process_exit of_child;
          int const grandchild = status_of_child([&] { return of_child.is_exiting() && life.is_exiting() ? 5 : 0; });
          return life.is_exiting() && !of_child.is_exiting() ? grandchild : 0;
        }) == 5);
  CHECK_FALSE(life.is_exiting());
  CHECK_FALSE(process_exit().is_exiting());
}

TEST_CASE("a child has declared no captures, though its parent has, and its own declarations count") {
  process_exit const watched;
  std::optional<weir::capture_scope> ends_in_child(std::in_place);
  weir::capture_scope const still_open;
  CHECK(status_of_child([&] {
          bool const none_at_first = !captures_declared();
          weir::capture_scope const own;
          ends_in_child.reset();
          return none_at_first && captures_declared() ? 7 : 1;
        }) == 7);
  CHECK(captures_declared());
}

TEST_CASE("exit ends a life that was settled before it destroys what was made earlier") {
  CHECK(status_of_child([] {
          static process_exit life;
          asked = &life;
          std::atexit([] { ::_exit(asked->is_exiting() && !earlier_one_was_over ? 7 : 1); });
          life.settle();
          std::atexit(
              [] { earlier_one_was_over = asked->is_exiting(); });  // what was made later goes while CUDA is there
          life.settle();
          return 0;
        }) == 7);
}

TEST_CASE("a life that was never settled is not ended by exit") {
  CHECK(status_of_child([] {
          static process_exit life;
          asked = &life;
          std::atexit([] { ::_exit(asked->is_exiting() ? 1 : 7); });
          return 0;
        }) == 7);
}

TEST_CASE("a program that makes objects all the time collects no end of exit functions") {
  CHECK(status_of_child([] {
          for (int i = 0; i < 1000; ++i) process_exit().settle();
          static process_exit late;
          asked = &late;
          std::atexit([] { ::_exit(asked->is_exiting() ? 1 : 7); });
          late.settle();
          return 0;
        }) == 7);
}
