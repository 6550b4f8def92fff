#pragma once
// A program in correct stream order, made of random numbers, on any resource: what it does is always allowed, so
// whatever the check of order or the contents of its memory complain about is the resource's fault.

#include <laws/open_stack.hpp>

#include <weir/core/error.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace random_program {

namespace sim = weir::sim;
using namespace open_stack;

/// What a step does, and how many of a thousand do it.
enum kind : std::uint32_t {
  allocate_block,
  allocate_in_host_order,
  free_where_it_is,
  free_elsewhere,
  free_in_host_order,
  pass_to_other_stream,
  write_block,
  read_block,
  read_on_other_stream,
  wait_for_stream,
  query_stream,
  wait_for_device,
  end_stream,
  starve_stream,
  trim_stack,
  synchronize_stack,
  fail_in_allocate,  // one of the CUDA calls that the stack makes fails
  fail_in_free,
  write_by_host,
  describe_stack,
  kinds
};
inline constexpr unsigned weights[kinds] = {280, 20, 220, 40, 20, 80, 140, 80, 40, 20,
                                            20,  5,  15,  8,  8,  4,  10,  10, 10, 1};
inline constexpr char const* names[kinds] = {
    "allocate_block",       "allocate_in_host_order", "free_where_it_is", "free_elsewhere",
    "free_in_host_order",   "pass_to_other_stream",   "write_block",      "read_block",
    "read_on_other_stream", "wait_for_stream",        "query_stream",     "wait_for_device",
    "end_stream",           "starve_stream",          "trim_stack",       "synchronize_stack",
    "fail_in_allocate",     "fail_in_free",           "write_by_host",    "describe_stack"};

/// One step: plain numbers that mean something whatever the state is, so that any steps may be left out.
struct step {
  std::uint32_t what, x, y, z;  // `what`: a kind
};

struct setting {
  sim::mode mode = sim::mode::immediate;
  std::uint64_t schedule = 0;
  std::size_t capacity = std::size_t{32} << 20;
  bool streams_end = true;  ///< false: the stack was promised that they do not
  std::size_t most_bytes = std::size_t{3} << 20;
  bool starving = false;  ///< random mode, with one stream that gets nowhere from the start
};

/// What went wrong, and at which step; empty if nothing did.
struct outcome {
  std::string what;
  std::size_t at = 0;
  std::size_t refused = 0, served = 0;
};

class world {
 public:
  world(setting const& how, std::function<stack()> const& make) : how_(how) {
    sim::reset();
    sim::set_capacity(0, how.capacity);
    sim::set_host_capacity(how.capacity);
    sim::set_mode(how.mode);
    sim::set_depth(3, 2000);
    sim::set_seed(how.schedule);
    sim::check_order(true, {.uninitialised = how.schedule % 4 == 0});
    misuse().clear();
    before_ = weir::set_misuse_handler([](char const* what) noexcept { misuse() = what; });
    stack_ = make();
    for (cudaStream_t const s : {cudaStreamLegacy, cudaStreamPerThread, cudaStream_t{}}) {
      streams_.emplace_back();
      streams_.back().handle = s;
      streams_.back().blocking = s == cudaStreamPerThread;
    }
    streams_.back().lasting = std::make_unique<weir::stream>();
    streams_.back().handle = streams_.back().lasting->get();
    for (unsigned i = 0; i < 3; ++i) streams_.push_back(new_stream(0, i));
    for (unsigned i = 0; i < 2; ++i) streams_.push_back(new_stream(1, i));
    for (int device : {1, 0}) {
      require(cudaSetDevice(device));
      for (cudaEvent_t& e : events_[static_cast<std::size_t>(device)])
        require(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    }
    if (how.starving) sim::starve(streams_[3 + how.schedule % 5].id);
  }
  ~world() {
    stack_ = {};
    for (auto const& of_device : events_)
      for (cudaEvent_t const e : of_device) cudaEventDestroy(e);
    for (auto const& s : streams_)
      if (s.mortal()) cudaStreamDestroy(s.handle);
    streams_.clear();
    sim::reset();
    weir::set_misuse_handler(before_);
  }
  world(world const&) = delete;
  world& operator=(world const&) = delete;

  outcome run(std::span<step const> steps) {
    outcome result;
    for (; result.at < steps.size(); ++result.at) {
      try {
        do_step(steps[result.at], result);
        result.what = trouble();
      } catch (std::exception const& failure) {
        result.what = failure.what();
      }
      if (!result.what.empty()) return result;
    }
    while (!blocks_.empty()) free_block(blocks_.size() - 1, blocks_.back().on, 0);
    if (result.what = trouble(); !result.what.empty()) return result;
    if (how_.schedule % 2 == 0) wait_for_devices();  // else the stack ends with work to come
    stack_ = {};
    sim::run_all();
    result.what = trouble();
    // Memory whose free failed is lost, and CUDA's to blame.
    if (result.what.empty() && sim::live_allocations() != 0 && !may_be_lost_) result.what = "memory is lost";
    return result;
  }

 private:
  struct a_stream {
    cudaStream_t handle = nullptr;
    unsigned long long id = 0;
    std::unique_ptr<weir::stream> lasting;
    bool blocking = false;  // before the legacy stream's next work, and after its work so far
    int device = 0;
    bool mortal() const { return id != 0; }
    weir::stream_ref ref() const { return lasting ? weir::stream_ref(*lasting) : weir::stream_ref(handle); }
  };
  struct block {
    void* p;
    std::size_t bytes, alignment;
    std::size_t on;  // the stream that comes after all uses so far
    unsigned char content;
    bool written;
  };
  struct expectation {
    world* in;
    unsigned char const* p;
    std::size_t bytes;
    unsigned char content;
  };

  static std::string& misuse() {
    static std::string what;
    return what;
  }

  static void require(cudaError_t code) {
    if (code != cudaSuccess)
      throw std::runtime_error(std::string("the program's own call failed: ") + cudaGetErrorName(code));
  }

  a_stream new_stream(int device, unsigned number) {
    a_stream s;
    bool const blocking = number % 3 == 0;
    s.device = device;
    s.blocking = blocking && device == 0;  // the programs use the legacy stream of device 0 only
    require(cudaSetDevice(device));
    require(cudaStreamCreateWithFlags(&s.handle, blocking ? cudaStreamDefault : cudaStreamNonBlocking));
    require(cudaSetDevice(0));
    require(cudaStreamGetId(s.handle, &s.id));
    return s;
  }

  static void wait_for_devices() {
    for (int device : {1, 0}) {
      require(cudaSetDevice(device));
      require(cudaDeviceSynchronize());
    }
  }

  /// Calls the stack while some device is current: which one matters for default streams only, and it stays so.
  template <class Call>
  void with_device(bool any, std::uint32_t chance, Call call) {
    int const device = any ? static_cast<int>(chance >> 4 & 1) : 0;
    struct back {
      ~back() {
        sim::clear_failure();  // is for the stack's calls only
        cudaSetDevice(0);
      }
    } const to_first;
    require(cudaSetDevice(device));
    call();
    int now = -1;
    require(cudaGetDevice(&now));
    if (now != device && !failing_) wrong_ = "the stack changed the current device";
  }

  std::string trouble() {
    if (sim::report_count() != 0) return sim::reports().front().text;
    if (!misuse().empty()) return misuse();
    return wrong_;
  }

  void do_step(step const& s, outcome& result) {
    std::size_t const stream = s.x % streams_.size();
    switch (s.what) {
      case allocate_block:
        return allocate(s, streams_[stream].ref(), stream, result);
      case allocate_in_host_order:
        return allocate(s, weir::host_order, stream, result);
      case wait_for_stream:
        return require(cudaStreamSynchronize(streams_[stream].handle));
      case query_stream:
        static_cast<void>(cudaStreamQuery(streams_[stream].handle));
        static_cast<void>(cudaGetLastError());  // not ready
        return;
      case wait_for_device:
        return wait_for_devices();
      case describe_stack:
        if (stack_.describe && stack_.describe().empty()) wrong_ = "the stack has nothing to say about itself";
        return;
      case end_stream:
        if (streams_[stream].mortal() && how_.streams_end) replace(stream, s);
        return;
      case starve_stream:
        if (how_.mode == sim::mode::random) sim::starve(streams_[stream].id);
        return;
      case trim_stack:
        if (stack_.trim) stack_.trim(s.y % 3 == 0 ? s.z % (8 << 20) : 0);
        return;
      case synchronize_stack:
        if (stack_.synchronize) stack_.synchronize();
        return;
      case fail_in_allocate:
        if (blocks_.size() >= most_blocks) return;
        failing(1 + s.z / 32 % 4, [&] { allocate(s, streams_[stream].ref(), stream, result); });
        return;
      default:
        if (!blocks_.empty()) do_with_block(s, s.y % blocks_.size(), stream);
    }
  }

  /// One of the calls that the stack makes meanwhile fails.
  template <class Action>
  void failing(std::uint64_t call, Action action) {
    std::uint64_t const before = calls_that_give_back();
    failing_ = true;
    fails_in_ = call;
    action();
    failing_ = false;
    may_be_lost_ |= calls_that_give_back() != before;
    static_cast<void>(cudaGetLastError());
  }

  void do_with_block(step const& s, std::size_t which, std::size_t stream) {
    block& b = blocks_[which];
    switch (s.what) {
      case free_where_it_is:
        return free_block(which, b.on, s.z);
      case free_elsewhere:
        if (stream == legacy && streams_[b.on].blocking && s.z % 2 == 0) {
          expect(b, b.on);  // the legacy stream comes after it by itself
          b.written = false;
        } else {
          pass(b, stream);
        }
        return free_block(which, stream, s.z);
      case free_in_host_order:
        require(cudaStreamSynchronize(streams_[b.on].handle));
        return free_block(which, no_stream, s.z);
      case fail_in_free:
        return failing(1 + s.z % 4, [&] { free_block(which, b.on, 0); });
      case pass_to_other_stream:
        return pass(b, stream);
      case write_block:
        return write(b, static_cast<unsigned char>(s.z));
      case read_block:
        return expect(b, b.on);
      case write_by_host:
        return host_write(b, static_cast<unsigned char>(s.z));
      default:
        return read_elsewhere(b, stream);
    }
  }

  void allocate(step const& s, weir::stream_ref order, std::size_t stream, outcome& result) {
    if (blocks_.size() >= most_blocks) return free_block(s.y % blocks_.size(), blocks_[s.y % blocks_.size()].on, s.z);
    // Small ones are many, large ones fill the device.
    std::size_t const scale[] = {256, 4096, 4096, 65536, 65536, 1 << 20, how_.most_bytes};
    std::size_t const bytes = 1 + s.y % std::min(scale[s.z % std::size(scale)], how_.most_bytes);
    std::size_t const alignment = s.z % 16 == 0 ? std::size_t{1} << (s.z >> 8) % 17 : 256;
    void* p = nullptr;
    try {
      with_device(stream > per_thread, s.x, [&] {
        if (failing_) sim::fail_call(fails_in_, s.y % 2 == 0 ? cudaErrorMemoryAllocation : cudaErrorUnknown);
        p = stack_.allocate(order, bytes, alignment);
        sim::clear_failure();
      });
    } catch (weir::out_of_memory const&) {
      ++result.refused;
      if (cudaPeekAtLastError() != cudaSuccess) wrong_ = "a refusal left an error behind";
      return;
    } catch (weir::cuda_error const&) {
      if (!failing_) throw;
      return;
    }
    ++result.served;
    if (p == nullptr || reinterpret_cast<std::uintptr_t>(p) % alignment != 0) wrong_ = "not aligned as asked";
    blocks_.push_back({p, bytes, alignment, stream, 0, false});
    if (s.x % 8 != 0) write(blocks_.back(), static_cast<unsigned char>(s.z >> 3));
  }

  /// `no_stream`: by the host, who knows that all is done.
  void free_block(std::size_t which, std::size_t on, std::uint32_t chance) {
    block const b = blocks_[which];
    if (on != no_stream) expect(b, on);
    blocks_[which] = blocks_.back();
    blocks_.pop_back();
    with_device(on > per_thread, chance, [&] {
      if (failing_) sim::fail_call(fails_in_, cudaErrorUnknown);
      stack_.deallocate(on == no_stream ? weir::stream_ref(weir::host_order) : streams_[on].ref(), b.p, b.bytes,
                        b.alignment);
      sim::clear_failure();
    });
  }

  void order(std::size_t before, std::size_t after) {
    auto const& of_device = events_[static_cast<std::size_t>(streams_[before].device)];
    cudaEvent_t const e = of_device[next_event_++ % std::size(of_device)];
    require(cudaEventRecord(e, streams_[before].handle));
    require(cudaStreamWaitEvent(streams_[after].handle, e, 0));
  }

  void pass(block& b, std::size_t to) {
    if (b.on != to) order(b.on, to);
    b.on = to;
  }

  void write(block& b, unsigned char content) {
    b.content = content;
    b.written = true;
    each_end(
        b, [&](unsigned char* p, std::size_t n) { require(cudaMemsetAsync(p, content, n, streams_[b.on].handle)); },
        [&](unsigned char* p, std::size_t n) { sim::touch(streams_[b.on].handle, p, n, sim::access::write); });
  }

  /// Host memory is no place for cudaMemset, so there the order alone is checked.
  template <class OnDevice, class OnHost>
  void each_end(block const& b, OnDevice device, OnHost host) {
    auto* const first = static_cast<unsigned char*>(b.p);
    std::size_t const n = std::min<std::size_t>(b.bytes, 256);
    cudaPointerAttributes known;
    require(cudaPointerGetAttributes(&known, b.p));
    for (unsigned char* p : {first, first + b.bytes - n})
      known.type == cudaMemoryTypeUnregistered ? host(p, n) : device(p, n);
  }

  /// Through a pointer, where the host can reach the memory.
  void host_write(block& b, unsigned char content) {
    cudaPointerAttributes known;
    require(cudaPointerGetAttributes(&known, b.p));
    if (known.type == cudaMemoryTypeDevice) return;
    require(cudaStreamSynchronize(streams_[b.on].handle));
    b.content = content;
    b.written = true;
    auto* const first = static_cast<unsigned char*>(b.p);
    std::size_t const n = std::min<std::size_t>(b.bytes, 256);
    for (unsigned char* p : {first, first + b.bytes - n}) {
      sim::host_access(p, n, sim::access::write);
      std::fill_n(p, n, content);
    }
  }

  void expect(block const& b, std::size_t on) {
    if (!b.written) return;
    each_end(
        b,
        [&](unsigned char* p, std::size_t n) {
          sim::touch(streams_[on].handle, p, n, sim::access::read);
          expectations_.push_back({this, p, n, b.content});
          require(cudaLaunchHostFunc(streams_[on].handle, &compare, &expectations_.back()));
        },
        [](unsigned char*, std::size_t) {});
  }

  static void compare(void* data) {
    auto const& e = *static_cast<expectation const*>(data);
    for (std::size_t i = 0; i < e.bytes; ++i)
      if (e.p[i] != e.content) e.in->wrong_ = "a block's contents were overwritten";
  }

  void read_elsewhere(block& b, std::size_t on) {
    if (b.on == on) return;
    order(b.on, on);
    expect(b, on);
    order(on, b.on);
  }

  /// Ends a stream whose blocks go on elsewhere; the next one may get its handle.
  void replace(std::size_t which, step const& s) {
    for (block& b : blocks_)
      if (b.on == which) pass(b, s.y % 3);
    require(cudaStreamDestroy(streams_[which].handle));
    if (s.z % 2 == 0) require(cudaGetLastError());
    streams_[which] = new_stream(streams_[which].device, s.z);
  }

  static constexpr std::size_t most_blocks = 60, legacy = 0, per_thread = 1, no_stream = ~std::size_t{0};

  setting how_;
  stack stack_;
  std::vector<a_stream> streams_;
  std::array<std::array<cudaEvent_t, 4>, 2> events_ = {};  // of each device
  std::size_t next_event_ = 0;
  std::vector<block> blocks_;
  std::deque<expectation> expectations_;
  std::string wrong_;
  bool failing_ = false, may_be_lost_ = false;
  std::uint64_t fails_in_ = 0;
  weir::misuse_handler before_ = nullptr;
};

inline outcome run(setting const& how, std::function<stack()> const& make, std::span<step const> steps) try {
  world w(how, make);
  return w.run(steps);
} catch (std::exception const& failure) {
  return {failure.what()};
}

}  // namespace random_program
