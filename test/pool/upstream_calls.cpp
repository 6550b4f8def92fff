// needs: tsan
#include <weir/core/call_note.hpp>
#include <weir/cuda/process_exit.hpp>
#include <weir/pool/upstream_calls.hpp>

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <thread>

using weir::detail::growth;
using weir::detail::upstream_calls;

namespace {

/// Stands for the owner's lock, and does what other threads do while it is not held.
struct scripted_lock {
  std::function<void()> meanwhile = [] {};
  int dropped = 0;
  void unlock() {
    ++dropped;
    meanwhile();
  }
  void lock() {}
};

/// An attempt that another thread began and that has not ended.
struct attempt_elsewhere {
  std::unique_ptr<upstream_calls::attempt> under_way;

  explicit attempt_elsewhere(upstream_calls& all) {
    std::thread([&] { under_way = std::make_unique<upstream_calls::attempt>(all); }).join();
  }
  growth end() {
    growth const refusal = under_way->refusal();
    under_way.reset();
    return refusal;
  }
};

}  // namespace

TEST_CASE("bytes are counted during a call, without the lock") {
  upstream_calls all;
  scripted_lock lock;
  lock.meanwhile = [&] { CHECK(all.bytes() == 100); };
  { upstream_calls::call<scripted_lock> const under_way(all, lock, 100); }
  CHECK(lock.dropped == 1);
  CHECK(all.bytes() == 0);
}

TEST_CASE("what is noted in a call is not of what its owner was asked for") {
  using weir::detail::call_note, weir::detail::last_call;
  upstream_calls all;
  scripted_lock lock;
  lock.meanwhile = [] { last_call.what = call_note::misuse; };
  last_call = {call_note::captured, 3, 5};
  { upstream_calls::call<scripted_lock> const under_way(all, lock, 100); }
  CHECK(last_call.what == call_note::captured);
  CHECK(last_call.capture == 3);
  last_call.clear();
}

TEST_CASE("an attempt is contended if another was under way when it began, or began before it ended") {
  upstream_calls all;
  attempt_elsewhere first(all), second(all);
  CHECK(first.end() == growth::contended);
  CHECK(second.end() == growth::contended);
  CHECK(attempt_elsewhere(all).end() == growth::refused);
}

TEST_CASE("a wait ends with the attempts that were under way, whatever begins meanwhile") {
  upstream_calls all;
  scripted_lock lock;
  CHECK_FALSE(all.wait(lock));
  CHECK(lock.dropped == 0);

  attempt_elsewhere first(all), second(all);
  std::unique_ptr<attempt_elsewhere> later;
  lock.meanwhile = [&] {
    if (lock.dropped == 1) later = std::make_unique<attempt_elsewhere>(all);
    if (lock.dropped == 2) second.end();
    if (lock.dropped == 3) first.end();
  };
  CHECK(all.wait(lock));
  CHECK(lock.dropped == 3);
  later->end();
}

TEST_CASE("a thread that is in an attempt itself neither waits nor repeats") {
  upstream_calls all;
  attempt_elsewhere other(all);
  scripted_lock lock;
  {
    upstream_calls::attempt const own(all);
    CHECK_FALSE(all.wait(lock));
    CHECK_FALSE(all.repeat(lock, [] { return growth::done; }));
  }
  CHECK(lock.dropped == 0);
  other.end();
}

TEST_CASE("nor does one that is in a call of what they share below") {
  upstream_calls below, unrelated;
  upstream_calls all(&below);
  upstream_calls above(&all);
  attempt_elsewhere other(all), other_above(above);
  scripted_lock lock, lock_below;
  lock.meanwhile = [&] { other.under_way.reset(); };
  {
    upstream_calls::call<scripted_lock> const outer(below, lock_below, 1);
    upstream_calls::call<scripted_lock> const inner(unrelated, lock_below, 1);
    CHECK_FALSE(all.wait(lock));
    CHECK_FALSE(above.wait(lock));
    CHECK_FALSE(all.repeat(lock, [] { return growth::done; }));
  }
  CHECK(lock.dropped == 0);
  upstream_calls::call<scripted_lock> const elsewhere(unrelated, lock_below, 1);
  CHECK(all.wait(lock));
}

TEST_CASE("of threads in calls of pools that use each other one waits, and no other while it does") {
  upstream_calls first, second, below;
  upstream_calls above(&below);
  scripted_lock lock, lock_of_call;
  auto mine = std::make_unique<upstream_calls::attempt>(first);
  attempt_elsewhere others(second);
  upstream_calls::call<scripted_lock> const in_first(first, lock_of_call, 1);
  auto const as_other_thread = [&] {
    scripted_lock its, its_of_call;
    its.meanwhile = [&] { mine.reset(); };  // else it would wait for ever
    upstream_calls::call<scripted_lock> const in_second(second, its_of_call, 1);
    CHECK_FALSE(first.wait(its));
    CHECK_FALSE(first.repeat(its, [] { return growth::done; }));
    CHECK(its.dropped == 0);
    others.end();
  };
  auto const in_a_call_above = [&] {
    scripted_lock its, its_of_call;
    attempt_elsewhere last(below);
    its.meanwhile = [&] { last.under_way.reset(); };
    upstream_calls::call<scripted_lock> const in_above(above, its_of_call, 1);
    CHECK(below.wait(its));  // nothing there waits for what stands on it
  };
  lock.meanwhile = [&] {
    if (lock.dropped != 1) return;
    std::thread(in_a_call_above).join();
    std::thread(as_other_thread).join();
  };
  CHECK(second.wait(lock));
  CHECK(mine != nullptr);
  attempt_elsewhere again(second);
  lock.meanwhile = [&] { again.under_way.reset(); };
  CHECK(second.wait(lock));  // it is not as if one waited still
}

TEST_CASE("a child that is forked while a thread in a call waits may have one that waits, too") {
  weir::detail::process_exit const watches_forks;
  upstream_calls all, elsewhere;
  scripted_lock lock, lock_of_call;
  attempt_elsewhere other(all);
  ::pid_t child = -1;
  lock.meanwhile = [&] {
    other.end();
    std::fflush(nullptr);
    child = ::fork();
    if (child != 0) return;
    ::alarm(30);
    upstream_calls of_child;
    attempt_elsewhere its_other(of_child);
    scripted_lock its;
    its.meanwhile = [&] { its_other.under_way.reset(); };
    bool const waited = of_child.wait(its);
    ::_exit(waited && its.dropped == 1 ? 7 : 1);
  };
  upstream_calls::call<scripted_lock> const in_call(elsewhere, lock_of_call, 1);
  CHECK(all.wait(lock));
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
}

TEST_CASE("a contended attempt is repeated as long as anybody gets or gives back anything, and once if not") {
  upstream_calls all;
  scripted_lock lock;
  int tries = 0;
  CHECK_FALSE(all.repeat(lock, [&] { return ++tries, growth::contended; }));
  CHECK(tries == 1);
  CHECK_FALSE(all.repeat(lock, [&] {
    if (++tries < 5) std::thread([&] { all.count_success(); }).join();
    return growth::contended;
  }));
  CHECK(tries == 5);
  CHECK_FALSE(all.repeat(lock, [&] { return ++tries, all.count_success(), growth::refused; }));
  CHECK(tries == 6);
  CHECK(all.repeat(lock, [&] { return ++tries, growth::done; }));
  CHECK(tries == 7);
}

TEST_CASE("what an attempt itself gets and gives back meanwhile is no reason to repeat it") {
  upstream_calls all;
  scripted_lock lock;
  int tries = 0;
  CHECK_FALSE(all.repeat(lock, [&] {
    all.count_success();  // as an upstream does that uses what stands on it
    return ++tries < 5 ? growth::contended : growth::done;
  }));
  CHECK(tries == 1);
}

TEST_CASE("contended requests are repeated one by one") {
  upstream_calls all;
  weir::detail::spin_lock mutex;
  int inside = 0, most = 0;
  auto const request = [&] {
    weir::detail::spin_guard const lock(mutex);
    all.repeat(mutex, [&] {
      if (++inside > most) most = inside;
      mutex.unlocked([] { return std::this_thread::yield(), 0; });
      --inside;
      return growth::refused;
    });
  };
  std::thread threads[] = {std::thread(request), std::thread(request), std::thread(request)};
  for (std::thread& t : threads) t.join();
  CHECK(most == 1);
}
