#pragma once
// A program in correct stream order, made of random numbers, on any resource: what it does is always allowed, so
// whatever the check of order or the contents of its memory complain about is the resource's fault.

#include <weir/core/error.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace random_program {

namespace sim = weir::sim;

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
  kinds
};
inline constexpr unsigned weights[kinds] = {280, 20, 220, 40, 20, 80, 140, 80, 40, 20, 20, 5, 15, 8, 8, 4, 10, 10};

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
};

/// A stack, made anew for each program. Functions that the stack lacks are empty.
struct stack {
  std::function<void*(weir::stream_ref, std::size_t, std::size_t)> allocate;
  std::function<void(weir::stream_ref, void*, std::size_t, std::size_t)> deallocate;
  std::function<void(std::size_t keep)> trim;
  std::function<void()> synchronize;
  std::shared_ptr<void> owner;
};

template <class Top>
void add_layers(stack& s, Top& top) {
  auto const then = [](auto& list, auto f) {
    list = [before = std::move(list), f](auto... argument) {
      if (before) before(argument...);
      f(argument...);
    };
  };
  if constexpr (requires { top.trim(std::size_t{}); }) then(s.trim, [&top](std::size_t keep) { top.trim(keep); });
  if constexpr (requires { top.synchronize(); }) then(s.synchronize, [&top] { top.synchronize(); });
  if constexpr (requires { top.upstream(); }) add_layers(s, top.upstream());
}

template <weir::recipe F>
stack make_stack(F const& recipe) {
  struct holder {
    weir::made_by<F> top;
    explicit holder(F const& f) : top(f()) {}
  };
  auto const held = std::make_shared<holder>(recipe);
  stack s;
  s.allocate = [&top = held->top](weir::stream_ref st, std::size_t n, std::size_t a) { return top.allocate(st, n, a); };
  s.deallocate = [&top = held->top](weir::stream_ref st, void* p, std::size_t n, std::size_t a) {
    top.deallocate(st, p, n, a);
  };
  add_layers(s, held->top);
  s.owner = held;
  return s;
}

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
    sim::set_seed(how.schedule);
    sim::check_order(true);
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
    for (unsigned i = 0; i < 3; ++i) streams_.push_back(new_stream(i));
    for (auto& e : events_) require(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  }
  ~world() {
    stack_ = {};
    for (cudaEvent_t const e : events_) cudaEventDestroy(e);
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
    while (!blocks_.empty()) free_block(blocks_.size() - 1, blocks_.back().on);
    if (result.what = trouble(); !result.what.empty()) return result;
    if (how_.schedule % 2 == 0) require(cudaDeviceSynchronize());  // else the stack ends with work to come
    stack_ = {};
    sim::run_all();
    result.what = trouble();
    // Memory whose free failed is lost, and CUDA's to blame.
    if (result.what.empty() && sim::live_allocations() != 0 && !any_failed_) result.what = "memory is lost";
    return result;
  }

 private:
  struct a_stream {
    cudaStream_t handle = nullptr;
    unsigned long long id = 0;
    std::unique_ptr<weir::stream> lasting;
    bool blocking = false;  // before the legacy stream's next work, and after its work so far
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

  a_stream new_stream(unsigned number) {
    a_stream s;
    s.blocking = number % 3 == 0;
    require(cudaStreamCreateWithFlags(&s.handle, s.blocking ? cudaStreamDefault : cudaStreamNonBlocking));
    require(cudaStreamGetId(s.handle, &s.id));
    return s;
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
        return require(cudaDeviceSynchronize());
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
        sim::fail_call(1 + s.z / 32 % 4, s.y % 2 == 0 ? cudaErrorMemoryAllocation : cudaErrorUnknown);
        failing_ = true;
        allocate(s, streams_[stream].ref(), stream, result);
        sim::clear_failure();
        failing_ = false;
        static_cast<void>(cudaGetLastError());
        return;
      default:
        if (!blocks_.empty()) do_with_block(s, s.y % blocks_.size(), stream);
    }
  }

  void do_with_block(step const& s, std::size_t which, std::size_t stream) {
    block& b = blocks_[which];
    switch (s.what) {
      case free_where_it_is:
        return free_block(which, b.on);
      case free_elsewhere:
        if (stream == legacy && streams_[b.on].blocking && s.z % 2 == 0) {
          expect(b, b.on);  // the legacy stream comes after it by itself
          b.written = false;
        } else {
          pass(b, stream);
        }
        return free_block(which, stream);
      case free_in_host_order:
        require(cudaStreamSynchronize(streams_[b.on].handle));
        return free_block(which, no_stream);
      case fail_in_free:
        failing_ = any_failed_ = true;
        fails_in_ = 1 + s.z % 4;
        free_block(which, b.on);
        failing_ = false;
        static_cast<void>(cudaGetLastError());
        return;
      case pass_to_other_stream:
        return pass(b, stream);
      case write_block:
        return write(b, static_cast<unsigned char>(s.z));
      case read_block:
        return expect(b, b.on);
      default:
        return read_elsewhere(b, stream);
    }
  }

  void allocate(step const& s, weir::stream_ref order, std::size_t stream, outcome& result) {
    if (blocks_.size() >= most_blocks) return free_block(s.y % blocks_.size(), blocks_[s.y % blocks_.size()].on);
    // Small ones are many, large ones fill the device.
    std::size_t const scale[] = {256, 4096, 4096, 65536, 65536, 1 << 20, how_.most_bytes};
    std::size_t const bytes = 1 + s.y % std::min(scale[s.z % std::size(scale)], how_.most_bytes);
    std::size_t const alignment = s.z % 16 == 0 ? std::size_t{1} << (s.z >> 8) % 17 : 256;
    void* p = nullptr;
    try {
      p = stack_.allocate(order, bytes, alignment);
    } catch (weir::out_of_memory const&) {
      ++result.refused;
      if (cudaPeekAtLastError() != cudaSuccess) wrong_ = "a refusal left an error behind";
      return;
    } catch (weir::cuda_error const&) {
      if (!failing_) throw;
      return;
    }
    sim::clear_failure();
    ++result.served;
    if (p == nullptr || reinterpret_cast<std::uintptr_t>(p) % alignment != 0) wrong_ = "not aligned as asked";
    blocks_.push_back({p, bytes, alignment, stream, 0, false});
    if (s.x % 8 != 0) write(blocks_.back(), static_cast<unsigned char>(s.z >> 3));
  }

  /// `no_stream`: by the host, who knows that all is done.
  void free_block(std::size_t which, std::size_t on) {
    block const b = blocks_[which];
    if (on != no_stream) expect(b, on);
    blocks_[which] = blocks_.back();
    blocks_.pop_back();
    if (failing_) sim::fail_call(fails_in_, cudaErrorUnknown);
    stack_.deallocate(on == no_stream ? weir::stream_ref(weir::host_order) : streams_[on].ref(), b.p, b.bytes,
                      b.alignment);
    if (failing_) sim::clear_failure();
  }

  void order(std::size_t before, std::size_t after) {
    cudaEvent_t const e = events_[next_event_++ % std::size(events_)];
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
    streams_[which] = new_stream(s.z);
  }

  static constexpr std::size_t most_blocks = 60, legacy = 0, no_stream = ~std::size_t{0};

  setting how_;
  stack stack_;
  std::vector<a_stream> streams_;
  cudaEvent_t events_[4] = {};
  std::size_t next_event_ = 0;
  std::vector<block> blocks_;
  std::deque<expectation> expectations_;
  std::string wrong_;
  bool failing_ = false, any_failed_ = false;
  std::uint64_t fails_in_ = 0;
  weir::misuse_handler before_ = nullptr;
};

inline outcome run(setting const& how, std::function<stack()> const& make, std::span<step const> steps) try {
  world w(how, make);
  return w.run(steps);
} catch (std::exception const& failure) {
  return {failure.what()};
}

/// Every seed likes some kinds of steps more than others, and some not at all: that reaches further than the same
/// mixture always.
inline std::vector<step> steps_from(std::uint64_t seed, std::size_t count) {
  std::mt19937_64 random(seed);
  unsigned upto[kinds];
  unsigned sum = 0;
  for (unsigned i = 0; i < kinds; ++i) {
    unsigned const liking = i == allocate_block || i == free_where_it_is ? 1 : std::array{0u, 1u, 1u, 4u}[random() % 4];
    upto[i] = sum += weights[i] * liking;
  }
  std::vector<step> steps(count);
  for (step& s : steps) {
    auto const what = std::upper_bound(upto, upto + kinds, random() % sum) - upto;
    std::uint64_t const a = random(), b = random();
    s = {static_cast<std::uint32_t>(what), static_cast<std::uint32_t>(a >> 32), static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(b >> 32)};
  }
  return steps;
}

/// Leaves out whatever is not needed for some failure; `failing` is one that fails.
inline std::vector<step> shrunk(setting const& how, std::function<stack()> const& make, std::vector<step> failing) {
  int tries = 3000;
  for (std::size_t chunk = failing.size() / 2; chunk > 0 && tries > 0;) {
    bool smaller = false;
    for (std::size_t begin = 0; begin + chunk <= failing.size() && --tries > 0;) {
      std::vector<step> candidate = failing;
      auto const first = candidate.begin() + static_cast<std::ptrdiff_t>(begin);
      candidate.erase(first, first + static_cast<std::ptrdiff_t>(chunk));
      outcome const o = run(how, make, candidate);
      if (o.what.empty()) {
        begin += chunk;
        continue;
      }
      if (o.at < candidate.size()) candidate.resize(o.at + 1);
      failing = std::move(candidate);
      smaller = true;
    }
    if (!smaller) chunk /= 2;
  }
  return failing;
}

inline std::string text_of(std::span<step const> steps) {
  std::string text;
  for (step const& s : steps) {
    text += (text.empty() ? "" : ", ");
    char const* between = "{";
    for (std::uint32_t const part : {s.what, s.x, s.y, s.z}) {
      text += between + std::to_string(part);
      between = ", ";
    }
    text += "}";
  }
  return text;
}

}  // namespace random_program
