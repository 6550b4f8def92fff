#pragma once
// The streams of a random program, on two devices, and the events that order them.

#include <weir/cuda/stream.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace random_program {

inline void require(cudaError_t code) {
  if (code != cudaSuccess)
    throw std::runtime_error(std::string("the program's own call failed: ") + cudaGetErrorName(code));
}

struct a_stream {
  cudaStream_t handle = nullptr;
  unsigned long long id = 0;
  std::unique_ptr<weir::stream> lasting{};
  bool blocking = false;  // before the legacy stream's next work, and after its work so far
  int device = 0;
  bool destroyable() const { return id != 0; }
  weir::stream_ref ref() const { return lasting ? weir::stream_ref(*lasting) : weir::stream_ref(handle); }
};

/// Both default streams, one that lasts and some that may end; of the stack's device, but for the last two.
class program_streams {
 public:
  static constexpr std::size_t legacy = 0, per_thread = 1, lasting = 2, marks = 2;

  /// `home`: the stack's device, which is current from then on. `one_thread`: else a thread's own stream is none.
  void open(int home, bool one_thread) {
    home_ = home;
    all_.push_back({.handle = cudaStreamLegacy, .device = home_});
    if (one_thread)
      all_.push_back({.handle = cudaStreamPerThread, .blocking = true, .device = home_});
    else
      all_.push_back(new_stream(home_, 0));
    all_.push_back(new_lasting_stream());
    for (unsigned i = 0; i < 3; ++i) all_.push_back(new_stream(home_, i));
    for (unsigned i = 0; i < 2; ++i) all_.push_back(new_stream(elsewhere(), i));
    for (int device : {elsewhere(), home_}) {
      require(cudaSetDevice(device));
      for (cudaEvent_t& e : events_[static_cast<std::size_t>(device)])
        require(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    }
  }
  void close() {
    for (auto const& of_device : events_)
      for (cudaEvent_t const e : of_device) cudaEventDestroy(e);
    for (a_stream const& s : all_)
      if (s.destroyable()) cudaStreamDestroy(s.handle);
    all_.clear();
  }

  std::size_t size() const { return all_.size(); }
  a_stream const& operator[](std::size_t which) const { return all_[which]; }
  a_stream const& back() const { return all_.back(); }

  /// What `after` does from now on comes after all that `before` has now.
  void order(std::size_t before, std::size_t after) {
    auto const& of_device = events_[static_cast<std::size_t>(all_[before].device)];
    cudaEvent_t const e = of_device[next_event_++ % (std::size(of_device) - marks)];
    require(cudaEventRecord(e, all_[before].handle));
    require(cudaStreamWaitEvent(all_[after].handle, e, 0));
  }

  /// Remembers what a stream has now, for streams that are to come after that much later.
  void mark(std::size_t number, std::size_t before) {
    marked_on_[number] = all_[before].device;
    require(cudaEventRecord(mark_on(number), all_[before].handle));
  }
  void order_after_mark(std::size_t number, std::size_t after) const {
    require(cudaStreamWaitEvent(all_[after].handle, mark_on(number), 0));
  }

  /// Ends a stream and makes another in its place, which may have its handle; `number` says which kind.
  void renew(std::size_t which, unsigned number) {
    a_stream& s = all_[which];
    if (s.lasting) {
      s.lasting.reset();
      s = new_lasting_stream();
    } else {
      require(cudaStreamDestroy(s.handle));
      s = new_stream(s.device, number);
    }
  }

  void wait_for_devices() const {
    for (int device : {elsewhere(), home_}) {
      require(cudaSetDevice(device));
      require(cudaDeviceSynchronize());
    }
  }

 private:
  int elsewhere() const { return 1 - home_; }

  a_stream new_lasting_stream() const {
    a_stream s{.lasting = std::make_unique<weir::stream>(), .device = home_};
    s.handle = s.lasting->get();
    return s;
  }
  a_stream new_stream(int device, unsigned number) {
    a_stream s;
    bool const blocking = number % 3 == 0;
    s.device = device;
    s.blocking = blocking && device == home_;  // the programs use the legacy stream of that device only
    require(cudaSetDevice(device));
    require(cudaStreamCreateWithFlags(&s.handle, blocking ? cudaStreamDefault : cudaStreamNonBlocking));
    require(cudaSetDevice(home_));
    require(cudaStreamGetId(s.handle, &s.id));
    return s;
  }

  int home_ = 0;
  std::vector<a_stream> all_;
  cudaEvent_t mark_on(std::size_t number) const {
    auto const& of_device = events_[static_cast<std::size_t>(marked_on_[number])];
    return of_device[std::size(of_device) - 1 - number];
  }

  std::array<std::array<cudaEvent_t, 4 + marks>, 2> events_ = {};  // of each device; the last are marks
  std::size_t next_event_ = 0;
  std::array<int, marks> marked_on_ = {};  // which device
};

}  // namespace random_program
