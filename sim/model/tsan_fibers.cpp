// Tells the thread sanitizer when a thread goes on as a stream, and what orders two streams. Compiled without it,
// nothing is here.

#include "model/tsan_fibers.hpp"

#include "model/runtime.hpp"

#ifdef WEIR_SIM_FIBERS

#include <sys/mman.h>
#include <ucontext.h>

#include <new>
#include <string>

extern "C" {  // as in <sanitizer/tsan_interface.h>, and two that are in no header
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_set_fiber_name(void* fiber, char const* name);
void __tsan_acquire(void* place);
void __tsan_release(void* place);
void __tsan_ignore_thread_begin(void);
void __tsan_ignore_thread_end(void);
void AnnotateIgnoreSyncBegin(char const* file, int line);
void AnnotateIgnoreSyncEnd(char const* file, int line);
}

namespace weir::sim::detail {

// To the sanitizer it comes after what the thread that makes it did. So the thread that queues the stream's work makes
// it.
class fiber {
 public:
  static constexpr std::size_t stack_bytes = 512 * 1024;

  explicit fiber(std::uint64_t stream) : context_(nullptr) {
    stack_ = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack_ == MAP_FAILED) throw std::bad_alloc();
    mprotect(stack_, 4096, PROT_NONE);  // a guard page
    context_ = __tsan_create_fiber(0);
    __tsan_set_fiber_name(context_, ("stream " + std::to_string(stream)).c_str());
  }
  ~fiber() {
    __tsan_destroy_fiber(context_);
    munmap(stack_, stack_bytes);
  }
  fiber(fiber const&) = delete;
  fiber& operator=(fiber const&) = delete;

  void* context() const { return context_; }
  void* stack() const { return stack_; }

 private:
  void* stack_;
  void* context_;
};

namespace {

constexpr unsigned no_sync = 1;  // __tsan_switch_to_fiber_no_sync

struct call_to_make {
  void (*function)(void*);
  void* data;
};

constinit thread_local turn const* current = nullptr;
constinit thread_local bool in_fiber = false;
constinit thread_local call_to_make to_make{};
constinit thread_local char worker = 0;  // its address is the landmark of a worker's beginning

// In the functions that are not sanitized a fiber is on its thread's stack, or reads what the thread wrote: it would
// seem to race with it.
template <void (*Action)(void*)>
[[gnu::no_sanitize_thread]] void at(void* context, void* a, void* b, void* c) {
  void* const home = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(context, no_sync);
  if (a != nullptr) Action(a);
  if (b != nullptr) Action(b);
  if (c != nullptr) Action(c);
  __tsan_switch_to_fiber(home, no_sync);
}

[[gnu::no_sanitize_thread]] void enter() { to_make.function(to_make.data); }

[[gnu::no_sanitize_thread]] void run_on(void* context, void* stack, void (*function)(void*), void* data) {
  ucontext_t here, there;
  getcontext(&there);
  there.uc_stack.ss_sp = stack;
  there.uc_stack.ss_size = fiber::stack_bytes;
  there.uc_link = &here;
  makecontext(&there, &enter, 0);
  to_make = {function, data};
  bool const nested = std::exchange(in_fiber, true);
  void* const home = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(context, no_sync);
  swapcontext(&here, &there);
  __tsan_switch_to_fiber(home, no_sync);
  in_fiber = nested;
}

[[gnu::no_sanitize_thread]] bool runs_in_fiber() { return in_fiber; }

void need_fiber(timeline const& t) {
  if (t.fibers->idle.empty()) t.fibers->idle.push_back(std::make_shared<fiber>(t.id));
}

device_landmarks& landmarks_of(runtime& r, timeline const& t) {
  return r.devices[static_cast<std::size_t>(t.device)].landmarks;
}

}  // namespace

landmark new_landmark() { return std::make_shared<char>('\0'); }

turn::turn(runtime& r, timeline const& t, landmark const& handed_over)
    : before_(current), stream_(t.fibers), device_(landmarks_of(r, t)), blocking_(t.blocking()) {
  need_fiber(t);
  fiber_ = std::move(stream_->idle.back());
  stream_->idle.pop_back();
  if (handed_over == nullptr) __tsan_release(stream_.get());
  void* by_default = nullptr;  // what CUDA's default streams order
  if (t.legacy) by_default = &device_.blocking;
  if (blocking_) by_default = r.devices[static_cast<std::size_t>(t.device)].legacy->fibers.get();
  at<__tsan_acquire>(fiber_->context(), handed_over.get(), stream_.get(), by_default);
  current = this;
}

turn::~turn() {
  current = before_;
  at<__tsan_release>(fiber_->context(), stream_.get(), &device_.all, blocking_ ? &device_.blocking : nullptr);
  stream_->idle.push_back(std::move(fiber_));
}

landmark hand_over(timeline const& t) {
  need_fiber(t);
  landmark const result = new_landmark();
  __tsan_release(result.get());
  return result;
}

void reach(landmark const& p) {
  if (current != nullptr) at<__tsan_release>(current->on().context(), p.get(), nullptr, nullptr);
}

void come_after(landmark const& p) {
  void* const context = current != nullptr ? current->on().context() : __tsan_get_current_fiber();
  at<__tsan_acquire>(context, p.get(), nullptr, nullptr);
}

awaited end_of(runtime& r, timeline const& t) { return {t.fibers, t.legacy ? &landmarks_of(r, t).blocking : nullptr}; }

awaited end_of_device(runtime& r, int device) {
  return {nullptr, &r.devices[static_cast<std::size_t>(device)].landmarks.all};
}

void come_after(awaited const& end) {
  at<__tsan_acquire>(__tsan_get_current_fiber(), end.stream.get(), end.of_device, nullptr);
}

[[gnu::no_sanitize_thread]] void begin_worker() { __tsan_release(&worker); }

void look_away() {
  __tsan_ignore_thread_begin();
  AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
}

void look_again() {
  AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  __tsan_ignore_thread_end();
}

void call_as_stream(void (*function)(void*), void* data) {
  if (current == nullptr) return function(data);
  at<__tsan_acquire>(current->on().context(), &worker, nullptr, nullptr);  // no effect in a thread that is no worker
  run_on(current->on().context(), current->on().stack(), function, data);
}

own_work::own_work() : in_host_function_(runs_in_fiber()) {
  if (in_host_function_) look_away();
}

own_work::~own_work() {
  if (in_host_function_) look_again();
}

}  // namespace weir::sim::detail

#endif
