#pragma once
// Streams as fibers of the thread sanitizer, internal: compiled under it, what a stream does is done, to the sanitizer,
// by a thread of its own, and comes after what others do only where CUDA says so. Otherwise none of this does anything.

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#if defined(__SANITIZE_THREAD__)
#define WEIR_SIM_FIBERS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WEIR_SIM_FIBERS 1
#endif
#endif

namespace weir::sim::detail {

struct runtime;
struct timeline;

#ifdef WEIR_SIM_FIBERS

inline constexpr bool streams_are_fibers = true;

/// Who comes after a landmark comes after all that reached it before. Null: nothing did.
using landmark = std::shared_ptr<char>;
landmark new_landmark();

/// A thread to the sanitizer, with a stack of its own: on the stack of the thread that runs it, the two would seem to
/// race.
class fiber;

/// The fibers of a stream that nobody runs: one, unless several threads work for the stream at once, in immediate mode,
/// or one queues its work while another runs it.
/// Where this lies is the landmark that the stream's operations reach.
struct stream_fibers {
  std::vector<std::shared_ptr<fiber>> idle;
};
using fibers_of_stream = std::shared_ptr<stream_fibers>;
inline fibers_of_stream new_fibers() { return std::make_shared<stream_fibers>(); }

/// Reached by all operations of a device, and by those of its blocking streams.
struct device_landmarks {
  std::uint64_t all = 0, blocking = 0;
};

/// While one lives, the calling thread executes an operation of a stream. Begins and ends with the runtime's mutex
/// held.
class turn {
 public:
  /// `handed_over`: by the call that queued the operation; null: that call is under way.
  turn(runtime& r, timeline const& t, landmark const& handed_over = nullptr);
  ~turn();
  turn(turn const&) = delete;
  turn& operator=(turn const&) = delete;

  turn const* before() const { return before_; }
  fiber& on() const { return *fiber_; }

 private:
  turn const* before_;
  fibers_of_stream stream_;
  device_landmarks& device_;
  bool blocking_;
  std::shared_ptr<fiber> fiber_;
};

/// The calling thread queues an operation of `t`, which comes after what the thread has done so far.
landmark hand_over(timeline const& t);
/// The stream whose turn it is reaches a landmark.
void reach(landmark const& p);
/// The stream whose turn it is comes after a landmark; if it is no stream's, the calling thread does.
void come_after(landmark const& p);

/// What the host comes after once it has waited. Asked for before: after the wait the stream may be gone.
struct awaited {
  fibers_of_stream stream;
  void* of_device = nullptr;
};
awaited end_of(runtime& r, timeline const& t);
awaited end_of_device(runtime& r, int device);
void come_after(awaited const& end);

/// The calling thread begins to execute the operations of streams: they come after what made the thread's own
/// variables, such as `errno`.
void begin_worker();

/// Between the two, the sanitizer does not look at what the calling thread does.
void look_away();
void look_again();

/// Calls a function as the stream whose turn it is; if it is no stream's, as the calling thread.
void call_as_stream(void (*function)(void*), void* data);

/// The same for anything that can be called. It holds all that it needs by value, and does not throw.
template <class Body>
void as_stream(Body body) {
  struct there {
    [[gnu::no_sanitize_thread]] static void call(void* from) {
      look_away();  // it is on the stack of the thread
      Body mine(std::move(*static_cast<Body*>(from)));
      look_again();
      mine();
    }
  };
  call_as_stream(&there::call, &body);
}

/// While one lives, a host function's call into the stand-in is none of its stream's doing.
class own_work {
 public:
  own_work();
  ~own_work();
  own_work(own_work const&) = delete;
  own_work& operator=(own_work const&) = delete;

 private:
  bool in_host_function_;
};

#else

inline constexpr bool streams_are_fibers = false;

struct landmark {};
inline landmark new_landmark() { return {}; }
struct fibers_of_stream {};
inline fibers_of_stream new_fibers() { return {}; }
struct device_landmarks {};

struct turn {
  turn(runtime&, timeline const&, landmark = {}) {}
  ~turn() {}  // so that one that only lives is no unused variable
  turn(turn const&) = delete;
  turn& operator=(turn const&) = delete;
};

inline landmark hand_over(timeline const&) { return {}; }
inline void reach(landmark) {}
inline void come_after(landmark) {}
struct awaited {};
inline awaited end_of(runtime&, timeline const&) { return {}; }
inline awaited end_of_device(runtime&, int) { return {}; }
inline void come_after(awaited) {}
inline void begin_worker() {}
inline void look_away() {}
inline void look_again() {}
template <class Body>
void as_stream(Body body) {
  body();
}
struct own_work {
  own_work() {}
  ~own_work() {}
  own_work(own_work const&) = delete;
  own_work& operator=(own_work const&) = delete;
};

#endif

/// Gives up the runtime's mutex while `body` does what the stream whose turn it is does to memory. Who called has it
/// again whatever a host function throws: there is state to put right on the way out.
template <class Body>
void unlocked(std::unique_lock<std::mutex>& held, Body body) {
  struct locked_again {
    std::unique_lock<std::mutex>& held;
    ~locked_again() { held.lock(); }
  };
  held.unlock();
  locked_again const at_the_end{held};
  as_stream(std::move(body));
}

}  // namespace weir::sim::detail
