#pragma once
// What a probe is: one question about CUDA's behaviour, asked with the runtime API and what that finds of the driver,
// so that the same source runs on the simulated runtime and on a GPU. A new probe is a function and a line in the table
// at the end of its file.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace probes {

/// What a probe found. Each expectation has a few words that say what was asked.
class verdict {
 public:
  explicit verdict(std::string name) : name_(std::move(name)) {}

  /// A call's code, out of the answers that CUDA documents.
  void code(char const* what, cudaError_t got, std::initializer_list<cudaError_t> documented) {
    if (std::find(documented.begin(), documented.end(), got) != documented.end()) return;
    std::string expected;
    for (cudaError_t const one : documented) expected += (expected.empty() ? "" : " or ") + text(one);
    differs(what, expected, text(got));
  }
  void code(char const* what, cudaError_t got, cudaError_t expected) { code(what, got, {expected}); }
  void ok(char const* what, cudaError_t got) { code(what, got, cudaSuccess); }

  /// CUDA says that the call fails, and not how.
  void fails(char const* what, cudaError_t got) {
    if (got == cudaSuccess || got == cudaErrorNotReady) differs(what, "an error", text(got));
  }

  template <class T>
  void equal(char const* what, T got, T expected) {
    if (!(got == expected)) differs(what, std::to_string(expected), std::to_string(got));
  }
  void yes(char const* what, bool got) {
    if (!got) differs(what, "yes", "no");
  }
  void no(char const* what, bool got) {
    if (got) differs(what, "no", "yes");
  }

  /// `probe NAME: WHAT: expected X, got Y`, one for each difference.
  std::vector<std::string> const& differences() const { return differences_; }

 private:
  static std::string text(cudaError_t code) { return cudaGetErrorName(code); }
  void differs(char const* what, std::string const& expected, std::string const& got) {
    differences_.push_back("probe " + name_ + ": " + what + ": expected " + expected + ", got " + got);
  }

  std::string name_;
  std::vector<std::string> differences_;
};

/// What there must be besides a device: a second one, or a runtime under which queued work can wait for the host (the
/// simulated runtime's immediate mode is none).
enum class needs { nothing, pending_work, two_devices };

struct probe {
  char const* name;
  needs what;
  void (*run)(verdict&);
};

/// Holds a stream's work back until it is opened: a host function that waits. While it is closed, a probe must make no
/// call that may wait for the stream. If one does wait, the gate opens by itself in the end, and the probe says so.
class gate {
 public:
  gate(verdict& v, cudaStream_t stream) : verdict_(v), state_(std::make_shared<state>()) {
    auto* const for_function = new std::shared_ptr<state>(state_);
    cudaError_t const launched = cudaLaunchHostFunc(stream, &hold, for_function);
    v.ok("a host function is launched", launched);
    if (launched != cudaSuccess) delete for_function;
  }
  ~gate() { open(); }
  gate(gate const&) = delete;
  gate& operator=(gate const&) = delete;

  void open() {
    std::lock_guard const lock(state_->mutex);
    verdict_.no("a call waited for work that it must not wait for", state_->gave_up);
    state_->gave_up = false;  // said once
    state_->is_open = true;
    state_->opened.notify_all();
  }

 private:
  struct state {
    std::mutex mutex;
    std::condition_variable opened;
    bool is_open = false;
    bool gave_up = false;
  };
  static void hold(void* data) {
    std::unique_ptr<std::shared_ptr<state>> const owner(static_cast<std::shared_ptr<state>*>(data));
    state& s = **owner;
    std::unique_lock lock(s.mutex);
    s.gave_up = !s.opened.wait_for(lock, std::chrono::seconds(10), [&] { return s.is_open; });
  }

  verdict& verdict_;
  std::shared_ptr<state> state_;
};

/// A stream that ends with the probe.
class stream {
 public:
  explicit stream(unsigned flags = cudaStreamNonBlocking) {
    static_cast<void>(cudaStreamCreateWithFlags(&handle_, flags));
  }
  ~stream() { static_cast<void>(cudaStreamDestroy(handle_)); }
  stream(stream const&) = delete;
  stream& operator=(stream const&) = delete;
  operator cudaStream_t() const { return handle_; }

 private:
  cudaStream_t handle_ = nullptr;
};

class event {
 public:
  explicit event(unsigned flags = cudaEventDisableTiming) {
    static_cast<void>(cudaEventCreateWithFlags(&handle_, flags));
  }
  ~event() { static_cast<void>(cudaEventDestroy(handle_)); }
  event(event const&) = delete;
  event& operator=(event const&) = delete;
  operator cudaEvent_t() const { return handle_; }

 private:
  cudaEvent_t handle_ = nullptr;
};

/// A byte on the device and one that the host can read, both 0. Take one before a gate: it may wait for the device.
class flag {
 public:
  flag() {
    static_cast<void>(cudaMalloc(&on_device_, 1));
    void* p = nullptr;
    static_cast<void>(cudaMallocHost(&p, 1));
    on_host_ = static_cast<char*>(p);
    if (on_host_ != nullptr) *on_host_ = 0;
    static_cast<void>(cudaMemset(on_device_, 0, 1));
    static_cast<void>(cudaDeviceSynchronize());
  }
  ~flag() {
    static_cast<void>(cudaFree(on_device_));
    static_cast<void>(cudaFreeHost(on_host_));
  }
  flag(flag const&) = delete;
  flag& operator=(flag const&) = delete;

  cudaError_t raise(cudaStream_t s) { return cudaMemsetAsync(on_device_, 1, 1, s); }
  cudaError_t look(cudaStream_t s) { return cudaMemcpyAsync(on_host_, on_device_, 1, cudaMemcpyDeviceToHost, s); }
  bool was_up() const { return on_host_ != nullptr && *on_host_ == 1; }

 private:
  void* on_device_ = nullptr;
  char* on_host_ = nullptr;
};

/// Asks whether work that is given to `second` after work of `first` runs after it.
inline void expect_order(verdict& v, cudaStream_t first, cudaStream_t second) {
  flag f;
  gate g(v, first);
  v.ok("the first stream takes work", f.raise(first));
  v.ok("the second stream takes work", f.look(second));
  v.code("the second stream, before the first one's work is done", cudaStreamQuery(second), cudaErrorNotReady);
  g.open();
  v.ok("waiting for the second stream", cudaStreamSynchronize(second));
  v.yes("the second stream's work came after the first one's", f.was_up());
  v.ok("waiting for the first stream", cudaStreamSynchronize(first));
}

/// Asks whether work of `second` runs though work that `first` got before it is held back.
inline void expect_no_order(verdict& v, cudaStream_t first, cudaStream_t second) {
  flag f;
  gate g(v, first);
  v.ok("the first stream takes work", f.raise(first));
  v.ok("the second stream takes work", f.look(second));
  v.ok("waiting for the second stream", cudaStreamSynchronize(second));
  v.no("the second stream's work came after the first one's", f.was_up());
  v.code("the first stream", cudaStreamQuery(first), cudaErrorNotReady);
  g.open();
  v.ok("waiting for the first stream", cudaStreamSynchronize(first));
}

/// Runs one probe on device 0, leaves nothing pending and no error, and returns how CUDA differs.
inline std::vector<std::string> ask(probe const& p) {
  verdict v(p.name);
  static_cast<void>(cudaSetDevice(0));
  static_cast<void>(cudaGetLastError());
  p.run(v);
  static_cast<void>(cudaSetDevice(0));
  v.ok("the device, after the probe", cudaDeviceSynchronize());
  static_cast<void>(cudaGetLastError());
  return v.differences();
}

}  // namespace probes
