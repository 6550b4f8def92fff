#pragma once
// Small numbers for threads: which of a few things each has for itself.

#include <weir/support/grown_array.hpp>
#include <weir/support/mutex.hpp>
#include <weir/support/shared_owner.hpp>
#include <weir/support/thread_hints.hpp>

#include <pthread.h>
#include <unistd.h>

#include <cstddef>
#include <new>

namespace weir::detail {

class thread_lease;

/// The lease that the calling thread used last. Never destroyed, so that it can be asked while the thread's other
/// objects are. What it points to is alive: the thread's list owns it, and forgets it here first.
struct latest_lease {
  thread_lease const* lease = nullptr;
  std::size_t index = 0;
  bool holds_some = false;  // the thread's list is not empty
  bool ended = false;       // and stays so: the thread ends
};
inline thread_local constinit latest_lease this_thread_lease{};

/// Hands out the numbers of things that threads have for themselves: arenas, caches. A thread keeps its number until it
/// ends; then the next new thread gets it, and what is there with it. When all are taken, threads share.
class thread_lease {
 public:
  static constexpr std::size_t most = 64;
  static constexpr std::size_t none = ~std::size_t{0};

  explicit thread_lease(std::size_t count) : holders_(count) {}

  /// The calling thread's number in what `lease` belongs to. Takes one if it has none yet.
  static std::size_t of_this_thread(shared_owner<thread_lease> const& lease) noexcept {
    if (this_thread_lease.lease == lease.get()) [[likely]]
      return this_thread_lease.index;
    return find_or_take(lease);
  }
  /// The same, but `none` if it has none: who only frees needs no number.
  static std::size_t held_by_this_thread(shared_owner<thread_lease> const& lease) noexcept {
    if (this_thread_lease.lease == lease.get()) [[likely]]
      return this_thread_lease.index;
    return this_thread_lease.holds_some ? this_thread.find(lease) : none;
  }

  /// What the calling thread kept here last, or another thread: see `thread_hints`. Any thread's, in a few
  /// instructions.
  [[gnu::always_inline]] void* hint() const noexcept { return hints_.find(); }
  /// For a thread that has a number here. Does nothing where its end would not be noticed.
  void keep_hint(void* what) noexcept {
    if (this_thread_lease.lease == this && hints_.find() != what) hints_.keep(what);
  }

  /// What it belongs to is gone: threads need not give anything back.
  void close() noexcept {
    if (is_of_parent()) return;
    mutex_guard const lock(mutex_);
    closed_ = true;
  }

 private:
  /// A thread's numbers, of all that it used. Not destroyed but ended by a key of the system's: a `thread_local` with a
  /// destructor would keep a library loaded for as long as a thread lives that used it.
  class held_leases {
   public:
    constexpr held_leases() noexcept = default;

    std::size_t find(shared_owner<thread_lease> const& lease) noexcept {
      for (held const* h = first_; h != nullptr; h = h->next)
        if (h->lease == lease) return remember(*h);
      return none;
    }
    std::size_t take(shared_owner<thread_lease> const& lease) {
      this_thread_lease.lease = nullptr;  // may be among those forgotten now, and its address another's soon
      for (held** at = &first_; *at != nullptr;)
        if ((*at)->lease->is_closed())
          *at = forget(*at);
        else
          at = &(*at)->next;
      first_ = new held{lease, 0, first_};
      first_->index = lease->take();
      this_thread_lease.holds_some = true;
      return remember(*first_);
    }
    void end() noexcept {
      this_thread_lease = {.ended = true};
      while (first_ != nullptr) {
        first_->lease->give_back(first_->index);
        first_ = forget(first_);
      }
    }

   private:
    struct held {
      shared_owner<thread_lease> lease;
      std::size_t index;
      held* next;
    };
    /// Returns the next one.
    static held* forget(held* h) noexcept {
      held* const next = h->next;
      delete h;
      return next;
    }
    static std::size_t remember(held const& h) noexcept {
      this_thread_lease.lease = h.lease.get();
      return this_thread_lease.index = h.index;
    }
    held* first_ = nullptr;
  };

  /// Has a thread's numbers given back when it ends, for as long as the code of it is there.
  class end_of_threads {
   public:
    end_of_threads() noexcept : made_(::pthread_key_create(&key_, &end) == 0) {}
    /// The numbers of the thread that unloads the library; those of others that still live stay in memory.
    ~end_of_threads() {
      if (made_) ::pthread_key_delete(key_);
      made_ = false;
      this_thread.end();
    }
    end_of_threads(end_of_threads const&) = delete;
    end_of_threads& operator=(end_of_threads const&) = delete;

    /// False if it will not be told.
    bool calls_for(held_leases& leases) const noexcept { return made_ && ::pthread_setspecific(key_, &leases) == 0; }

   private:
    static void end(void* leases) noexcept { static_cast<held_leases*>(leases)->end(); }

    pthread_key_t key_{};
    bool made_;
  };

  static std::size_t find_or_take(shared_owner<thread_lease> const& lease) noexcept try {
    if (this_thread_lease.ended) return 0;  // objects that outlive the thread's list share the first
    std::size_t const index = this_thread.find(lease);
    if (index != none) return index;
    return at_end.calls_for(this_thread) ? this_thread.take(lease) : 0;  // who is not missed shares the first, too
  } catch (std::bad_alloc const&) {
    return 0;  // any serves; the first is then shared
  }

  /// The lowest number with the fewest holders: what ended threads left is used before anything new is made.
  std::size_t take() noexcept {
    mutex_guard const lock(mutex_);
    std::size_t best = 0;
    for (std::size_t i = 0; i < holders_.size(); ++i)
      if (holders_[i] < holders_[best]) best = i;
    ++holders_[best];
    return best;
  }
  void give_back(std::size_t index) noexcept {
    hints_.forget();
    if (is_of_parent()) return;
    mutex_guard const lock(mutex_);
    --holders_[index];
  }
  bool is_closed() noexcept {
    if (is_of_parent()) return true;
    mutex_guard const lock(mutex_);
    return closed_;
  }

  /// In a forked child another thread of the parent may have held the mutex, for good. A system call: asked only where
  /// threads begin and end.
  bool is_of_parent() const noexcept { return process_ != ::getpid(); }

  ::pid_t const process_ = ::getpid();
  mutex mutex_;
  grown_array<std::size_t> holders_;  // threads that have each number
  bool closed_ = false;
  thread_hints<void> hints_;

  static thread_local held_leases this_thread;
  static end_of_threads at_end;
};

inline constinit thread_local thread_lease::held_leases thread_lease::this_thread;
inline thread_lease::end_of_threads thread_lease::at_end;

}  // namespace weir::detail
