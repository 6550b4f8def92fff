// needs: tsan
#include <weir/pool/order/thread_registry.hpp>

#include <doctest/doctest.h>

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

using weir::detail::thread_registry;

namespace {
std::atomic<int> registered{0};  // destructors of thread_local objects, which the C library keeps on the heap
}

extern "C" int __cxa_thread_atexit_impl(void (*destructor)(void*), void* object, void* library) {
  using register_function = int (*)(void (*)(void*), void*, void*);
  static auto const real = reinterpret_cast<register_function>(::dlsym(RTLD_NEXT, "__cxa_thread_atexit_impl"));
  ++registered;
  return real(destructor, object, library);
}

TEST_CASE("every thread has a number of its own, and threads that ended are known") {
  std::set<std::uint64_t> numbers{0, thread_registry::this_number()};
  for (int i = 0; i < 20; ++i)
    std::thread([&] {
      std::uint64_t const mine = thread_registry::this_number();
      CHECK(thread_registry::this_number() == mine);
      CHECK(numbers.insert(mine).second);
      CHECK_FALSE(thread_registry::has_ended(mine));
    }).join();
  for (std::uint64_t const number : numbers)
    CHECK(thread_registry::has_ended(number) == (number != thread_registry::this_number()));
}

TEST_CASE("threads may begin, ask and end at once") {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round)
        std::thread([&] { wrong += thread_registry::has_ended(thread_registry::this_number()); }).join();
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
}

TEST_CASE("a thread that asks first when it gives memory back needs none") {
  std::thread([] {
    thread_local std::vector<int> const other(1);
    CHECK(other.size() == 1);
  }).join();
  REQUIRE(registered != 0);  // so it is seen

  int const before = registered;
  std::thread([] { CHECK(thread_registry::this_number() != 0); }).join();
  CHECK(registered == before);
}

TEST_CASE("a destructor that runs after the thread's own end gets a number that is over") {
  static std::uint64_t numbers[2] = {};
  pthread_key_t late{};
  auto const ask = [](void*) { numbers[1] = thread_registry::this_number(); };
  REQUIRE(::pthread_key_create(&late, ask) == 0);  // keys' destructors run in the order of the keys
  std::thread([&] {
    ::pthread_setspecific(late, &numbers);
    numbers[0] = thread_registry::this_number();
  }).join();
  ::pthread_key_delete(late);
  CHECK(numbers[0] != 0);
  CHECK(numbers[1] > numbers[0]);
  CHECK(thread_registry::has_ended(numbers[0]));
  CHECK(thread_registry::has_ended(numbers[1]));
}
