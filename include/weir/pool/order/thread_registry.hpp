#pragma once
// Numbers for threads: whose default stream a per-thread one is, and whether that thread has ended.

#include <weir/support/spin_lock.hpp>

#include <pthread.h>

#include <cstdint>

namespace weir::detail {

/// Gives every thread a number, never 0 and never used twice in a process (a thread's address may come back), and knows
/// which threads still run: the default streams of the others get no more work. Libraries with a copy of this each give
/// a thread a number each. A thread may come first to give memory back, so nothing here asks for any (but what a
/// library that is loaded late needs for its thread-local objects): a `thread_local` with a destructor would.
class thread_registry {
 public:
  static std::uint64_t this_number() noexcept { return mine.number_ != 0 ? mine.number_ : begin(); }
  /// The same without a call; 0 for a thread that has none yet.
  static std::uint64_t number_so_far() noexcept { return mine.number_; }

  /// May be true for a thread that runs if the system could not promise to tell when it ends. Looks at all that run.
  static bool has_ended(std::uint64_t number) noexcept {
    spin_guard const lock(mutex);
    thread_registry const* t = first;
    while (t != nullptr && t->number_ != number) t = t->next_;
    return t == nullptr;
  }

 private:
  constexpr thread_registry() noexcept = default;

  [[gnu::noinline]] static std::uint64_t begin() noexcept {
    spin_guard const lock(mutex);
    mine.number_ = this_copy() << count_bits | ++last;
    if (mine.ended_ || !at_end.calls_for(&mine)) return mine.number_;
    mine.next_ = first;
    first = &mine;
    return mine.number_;
  }
  /// Some bits that are, most likely, of this copy of the program's code alone. They come from where it was loaded.
  static std::uint64_t this_copy() noexcept {
    return (reinterpret_cast<std::uintptr_t>(&last) >> 12) * 0x9e3779b97f4a7c15u >> (64 - copy_bits);
  }
  /// A destructor that runs later in the same thread and asks again gets another number, of a thread that has ended.
  static void end(void* thread) noexcept {
    auto* const t = static_cast<thread_registry*>(thread);
    spin_guard const lock(mutex);
    thread_registry** place = &first;
    while (*place != nullptr && *place != t) place = &(*place)->next_;
    if (*place == t) *place = t->next_;
    t->number_ = 0;
    t->ended_ = true;
  }
  /// A child has only the thread that made it, whatever the others were doing.
  static void end_others_in_child() noexcept {
    bool known = false;
    for (thread_registry const* t = first; t != nullptr; t = t->next_) known = known || t == &mine;
    first = known ? &mine : nullptr;
    mine.next_ = nullptr;
    mutex.unlock();
  }

  /// Has `end` called when a thread ends, for as long as the code of it is there.
  class end_of_threads {
   public:
    end_of_threads() noexcept : made_(::pthread_key_create(&key_, &end) == 0) {
      ::pthread_atfork(nullptr, nullptr, &end_others_in_child);
    }
    ~end_of_threads() {
      spin_guard const lock(mutex);
      if (made_) ::pthread_key_delete(key_);
      made_ = false;
      first = nullptr;  // nobody will say when they end
    }
    end_of_threads(end_of_threads const&) = delete;
    end_of_threads& operator=(end_of_threads const&) = delete;

    /// False if it will not. Takes no memory while the process has few such keys.
    bool calls_for(thread_registry* t) const noexcept { return made_ && ::pthread_setspecific(key_, t) == 0; }

   private:
    pthread_key_t key_{};
    bool made_;
  };

  static constexpr int copy_bits = 24, count_bits = 37;  // of the 61 that a key has for a number

  static inline constinit spin_lock mutex;
  static inline constinit thread_registry* first = nullptr;
  static inline constinit std::uint64_t last = 0;
  static thread_local thread_registry mine;
  static end_of_threads at_end;

  std::uint64_t number_ = 0;
  thread_registry* next_ = nullptr;
  bool ended_ = false;
};

inline constinit thread_local thread_registry thread_registry::mine;
inline thread_registry::end_of_threads thread_registry::at_end;

}  // namespace weir::detail
