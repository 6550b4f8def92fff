// needs: tsan
#include <weir/support/biased_lock.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

using weir::detail::basic_biased_lock;
using weir::detail::biased_guard;
using weir::detail::biased_lock;
using weir::detail::biased_owner_section;
using weir::detail::biased_owner_section_of;
using weir::detail::biased_section;
using weir::detail::process_barrier;
using weir::detail::short_guard;

namespace {

/// Takes and leaves it so often that this thread owns it, where locks have owners.
template <class Lock>
void own(Lock& lock) {
  for (int i = 0; i < 70; ++i) short_guard<Lock> const held(lock);
}

/// Something that happens once, and that threads wait for.
class happening {
 public:
  void happen() {
    std::lock_guard const lock(mutex_);
    happened_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return happened_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool happened_ = false;
};

/// A barrier that does in each test what a processor or a scheduler may do.
struct scripted_barrier {
  static bool exists() { return true; }
  static void announce(bool& flag) { on_announce(flag); }
  static void withdraw(bool& flag) {
    __atomic_store_n(&flag, false, __ATOMIC_RELEASE);
    on_withdraw();
  }
  static void pass() { on_pass(); }

  static void set(bool& flag) { __atomic_store_n(&flag, true, __ATOMIC_RELAXED); }
  static void reset() {
    on_announce = set;
    on_withdraw = on_pass = [] {};
  }
  static inline std::function<void(bool&)> on_announce;
  static inline std::function<void()> on_withdraw, on_pass;
};
using scripted_lock = basic_biased_lock<scripted_barrier>;

/// Not atomic: wrong, and reported by the thread sanitizer, without the lock. On lines of their own.
struct counted {
  alignas(64) long one = 0;
  alignas(64) long other = 0;
  void add() {
    ++one;
    ++other;
  }
};

}  // namespace

TEST_CASE("a thread that takes it again and again owns it, until another one takes it") {
  biased_lock lock;
  CHECK_FALSE(lock.has_owner());
  own(lock);
  CHECK(lock.has_owner() == process_barrier::exists());
  std::thread([&] { biased_guard const held(lock); }).join();
  CHECK_FALSE(lock.has_owner());
  own(lock);
  CHECK_FALSE(lock.has_owner());  // it takes longer each time
  own(lock);
  CHECK(lock.has_owner() == process_barrier::exists());
}

TEST_CASE("a lock that is one thread's is so again after at most so many entries, however often others came") {
  biased_lock lock{128};
  for (int round = 0; round < 6; ++round) {
    own(lock);
    own(lock);
    CHECK(lock.has_owner() == process_barrier::exists());
    std::thread([&] { biased_guard const held(lock); }).join();
    CHECK_FALSE(lock.has_owner());
  }
}

TEST_CASE("a few threads can own it in turn, and own it again; the others never do") {
  biased_lock lock;
  std::atomic<int> turn{0};
  int owned = 0, owned_again = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 2; ++round) {
        while (turn != 6 * round + t) std::this_thread::yield();
        for (int i = 0; i < 70'000; ++i) biased_guard const held(lock);
        (round == 0 ? owned : owned_again) += lock.has_owner();
        ++turn;
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(owned == (process_barrier::exists() ? 4 : 0));
  CHECK(owned_again == owned);
}

TEST_CASE("one thread at a time, an owner or not") {
  biased_lock lock;
  counted numbers;
  own(lock);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        biased_guard const held(lock);
        numbers.add();
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(numbers.one == 4 * 5000);
  CHECK(numbers.other == numbers.one);
}

TEST_CASE("a section is one thread's at a time too, an owner's or not, also beside guards") {
  biased_lock lock;
  counted numbers;
  for (int i = 0; i < 200; ++i) {
    biased_section const held(lock);
    numbers.add();
  }
  CHECK(lock.has_owner() == process_barrier::exists());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        {
          biased_section const held(lock);
          numbers.add();
        }
        biased_guard const held(lock);
        numbers.add();
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(numbers.one == 200 + 4 * 2 * 5000);
  CHECK(numbers.other == numbers.one);
}

TEST_CASE("an owner that is at work loses nothing when others come, again and again") {
  for (int round = 0; round < 40; ++round) {
    biased_lock lock;
    counted numbers;
    std::atomic<bool> over{false};
    long mine = 0;
    std::thread owner([&] {
      do {
        biased_guard const held(lock);
        numbers.add();
        ++mine;
      } while (!over);
    });
    long theirs = 0;
    bool whole = true;
    for (int i = 0; i < 5; ++i) {
      for (int k = 0; k < 10'000 && process_barrier::exists() && !lock.has_owner(); ++k)
        std::this_thread::yield();  // it owns it, as a rule
      biased_guard const held(lock);
      whole = whole && numbers.one == numbers.other;
      numbers.add();
      ++theirs;
    }
    over = true;
    owner.join();
    REQUIRE(whole);
    REQUIRE(numbers.one == mine + theirs);
  }
}

TEST_CASE("who waits for an owner that is inside gets it when that one has left") {
  biased_lock lock;
  own(lock);
  std::atomic<bool> waiting{false}, got{false};
  lock.lock();
  CHECK(lock.has_owner() == process_barrier::exists());
  std::thread waiter([&] {
    waiting = true;
    biased_guard const held(lock);
    got = true;
  });
  while (!waiting) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // long enough to take the ownership away
  CHECK_FALSE(got);
  lock.unlock();
  waiter.join();
  CHECK(got);
}

TEST_CASE("an owner that is stopped before it says that it is inside sees that it is none any more") {
  scripted_barrier::reset();
  scripted_lock lock;
  happening stopped, taken, decided;
  bool other_is_inside = false, met = false;
  std::thread owner([&] {
    own(lock);
    scripted_barrier::on_announce = [&](bool& flag) {
      stopped.happen();
      taken.wait();
      scripted_barrier::set(flag);
    };
    scripted_barrier::on_withdraw = [&] { decided.happen(); };  // it leaves at once, or after it was inside
    lock.lock();
    met = other_is_inside;
    lock.unlock();
  });
  stopped.wait();
  lock.lock();
  other_is_inside = true;
  taken.happen();
  decided.wait();
  other_is_inside = false;
  lock.unlock();
  owner.join();
  CHECK_FALSE(met);
}

TEST_CASE("what an owner said is seen, however late the processor lets others see it") {
  scripted_barrier::reset();
  scripted_lock lock;
  happening inside, asked;
  bool owner_is_inside = false, met = false;
  std::atomic<bool*> not_seen_yet{nullptr};  // the owner's flag, until it has passed a barrier
  std::thread owner([&] {
    own(lock);
    scripted_barrier::on_announce = [&](bool& flag) { not_seen_yet = &flag; };
    scripted_barrier::on_pass = [&] {
      scripted_barrier::set(*not_seen_yet.load());
      asked.happen();
    };
    lock.lock();
    owner_is_inside = true;
    inside.happen();
    asked.wait();
    owner_is_inside = false;
    lock.unlock();
  });
  inside.wait();
  lock.lock();
  met = owner_is_inside;
  asked.happen();  // had there been no barrier
  lock.unlock();
  owner.join();
  CHECK_FALSE(met);
}

namespace {

/// Another thread comes while it is held; as a rule it waits then.
void come_while_held(biased_lock& lock) {
  std::atomic<bool> coming{false};
  lock.lock();
  std::thread other([&] {
    coming = true;
    biased_guard const held(lock);
  });
  while (!coming) std::this_thread::yield();
  for (int i = 0; i < 50; ++i) std::this_thread::yield();
  lock.unlock();
  other.join();
}

}  // namespace

TEST_CASE("threads that often wait for each other have it noticed, others have not") {
  biased_lock lock;
  for (int i = 0; i < 200'000; ++i) biased_guard const held(lock);
  for (int i = 0; i < 100; ++i) std::thread([&] { biased_guard const held(lock); }).join();
  CHECK_FALSE(lock.is_contended());
  for (int i = 0; i < 63; ++i) come_while_held(lock);
  CHECK_FALSE(lock.is_contended());
  for (int i = 0; i < 1000 && !lock.is_contended(); ++i) come_while_held(lock);
  CHECK(lock.is_contended());
}

TEST_CASE("waits before a thread had it for itself do not count") {
  if (!process_barrier::exists()) return;  // then no thread ever has it for itself
  biased_lock lock;
  for (int i = 0; i < 20; ++i) {
    for (int k = 0; k < 10; ++k) come_while_held(lock);  // the first one takes the ownership away, the others wait
    for (int k = 0; k < 70'000; ++k) biased_guard const held(lock);
    REQUIRE(lock.has_owner());
  }
  CHECK_FALSE(lock.is_contended());
}

TEST_CASE("waits that are ignored do not count") {
  biased_lock lock;
  lock.ignore_waits();
  for (int i = 0; i < 200; ++i) come_while_held(lock);
  CHECK_FALSE(lock.is_contended());
}

TEST_CASE("an owner's section holds the lock for its owner, and nothing for others") {
  biased_lock lock;
  CHECK_FALSE(static_cast<bool>(biased_owner_section(lock)));
  own(lock);
  CHECK(static_cast<bool>(biased_owner_section(lock)) == process_barrier::exists());
  std::thread([&] { CHECK_FALSE(static_cast<bool>(biased_owner_section(lock))); }).join();
  CHECK(lock.has_owner() == process_barrier::exists());  // nobody asked for it
  biased_guard const free(lock);
}

TEST_CASE("an owner's section is none if the owner was stopped before it said that it is inside") {
  scripted_barrier::reset();
  scripted_lock lock;
  own(lock);
  scripted_barrier::on_announce = [&](bool& flag) {
    std::thread([&] { short_guard<scripted_lock> const held(lock); }).join();
    scripted_barrier::set(flag);
  };
  CHECK_FALSE(static_cast<bool>(biased_owner_section_of<scripted_lock>(lock)));
  scripted_barrier::reset();
}

TEST_CASE("a lock whose ownership has ended has no owner again") {
  biased_lock lock;
  own(lock);
  lock.end_ownership();
  CHECK_FALSE(lock.has_owner());
  for (int i = 0; i < 2000; ++i) biased_guard const held(lock);
  CHECK_FALSE(lock.has_owner());
}
