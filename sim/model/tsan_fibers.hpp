#pragma once
// Streams as fibers of the thread sanitizer, internal. Compiled with it, the sanitizer sees each stream as a thread of
// its own, ordered with others only where CUDA orders them. Otherwise none of this does anything.

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

/// A place in the order of streams: whoever comes after it comes after all that reached it before. Null: nothing did.
using landmark = std::shared_ptr<char>;
landmark new_landmark();

/// What the sanitizer sees as a thread. It has a stack of its own, since on the stack of the thread that runs it the
/// two would seem to race.
class fiber;

/// The fibers of a stream that no thread runs just now. There are several only if several threads work for the stream
/// at once, or one queues its work while another runs it. The address of this is the landmark that the stream's
/// operations reach.
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
/// The stream whose turn it is comes after a landmark; the calling thread does if it is no stream's turn.
void come_after(landmark const& p);

/// What the host comes after once it has waited. It is asked for before the wait, after which the stream may be gone.
struct awaited {
  fibers_of_stream stream;
  void* of_device = nullptr;
};
awaited end_of(runtime& r, timeline const& t);
awaited end_of_device(runtime& r, int device);
void come_after(awaited const& end);

/// The calling thread begins to execute operations of streams. They come after the beginning of the thread, which made
/// the thread's variables, such as `errno`.
void begin_worker();

/// Between the two, the sanitizer does not look at what the calling thread does.
void look_away();
void look_again();

/// Calls a function as the stream whose turn it is; as the calling thread if it is no stream's turn.
void call_as_stream(void (*function)(void*), void* data);

/// The same for anything that can be called. It has to hold all that it needs by value, and must not throw.
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

/// While one lives, the sanitizer does not look at the call that a host function makes into the simulated runtime.
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
  ~turn() {}  // against warnings of unused variables
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

/// Gives up the runtime's mutex while `body` runs as the stream whose turn it is. The mutex is held again afterwards,
/// also if `body`, a host function, throws.
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
