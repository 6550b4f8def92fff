#pragma once
// A program in correct stream order, made of random numbers, on any resource: what it does is always allowed, so
// whatever the check of order or the contents of its memory complain about is the resource's fault.

#include <conformance/leaks_allowed.hpp>
#include <random/accounts.hpp>
#include <random/contents.hpp>
#include <random/graphs.hpp>
#include <random/kinds.hpp>
#include <random/open_stack.hpp>
#include <random/streams.hpp>

#include <weir/core/error.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace random_program {

namespace sim = weir::sim;
using namespace open_stack;

struct setting {
  sim::mode mode = sim::mode::immediate;
  std::uint64_t schedule = 0;
  std::size_t capacity = std::size_t{32} << 20;
  bool streams_end = true;  ///< false: the stack was promised that they do not
  std::size_t most_bytes = std::size_t{3} << 20;
  bool starving = false;   ///< random mode, with one stream that gets nowhere from the start
  bool few_sizes = false;  ///< so that blocks of one size are many
  int device = 0;          ///< the stack's, if it is not for any
  int current = 0;         ///< the device that is current when the stack is made
};

/// What went wrong, and at which step; empty if nothing did.
struct outcome {
  std::string what;
  std::size_t at = 0;
  std::size_t refused = 0, served = 0;
};

class world {
 public:
  world(setting const& how, std::function<stack()> const& make) : how_(how), make_(make) {
    sim::reset();
    for (int device : {0, 1}) sim::set_capacity(device, how.capacity);
    sim::set_host_capacity(how.capacity);
    sim::set_mode(how.mode);
    sim::set_depth(3, 2000);
    sim::set_seed(how.schedule);
    sim::check_order(true, {.uninitialised = how.schedule % 4 == 0});
    misuse().clear();
    before_ = weir::set_misuse_handler([](char const* what) noexcept { misuse() = what; });
    make_stack();
    if (stack_.sleep) sim::check_order(true);  // contents are copied, whether anybody wrote them or not
    streams_.open(home());
    if (how.starving) sim::starve(streams_[3 + how.schedule % 5].id);
  }
  ~world() {
    sim::clear_failure();
    abandon_capture();
    if (how_.mode == sim::mode::threads) sim::run_all();  // after a failure blocks may still be in use
    for (graph const& g : graphs_) cudaGraphExecDestroy(g.handle);
    end_stack();
    streams_.close();
    cudaSetDevice(0);
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
        if (result.at % 8 == 7 && result.what.empty() && !is_over_) result.what = miscount();
      } catch (std::exception const& failure) {
        result.what = failure.what();
      }
      if (!result.what.empty()) return result;
      if (is_over_) return ++result.at, result;
    }
    if (capture_) finish_capture();
    while (!blocks_.empty()) free_block(blocks_.size() - 1, blocks_.back().on, 0);
    if (result.what = trouble(); !result.what.empty()) return result;
    if (result.what = miscount(); !result.what.empty()) return result;
    // Else the stack ends with work to come. No pool may that still keeps memory for a graph, and some cannot be told.
    if (how_.schedule % 2 == 0 || has_captured_) streams_.wait_for_devices();
    end_stack();
    sim::run_all();
    result.what = trouble();
    // Memory whose free failed is lost, and CUDA's to blame.
    if (result.what.empty() && sim::live_allocations() != 0 && !may_be_lost_) result.what = "memory is lost";
    return result;
  }

 private:
  static std::string& misuse() {
    static std::string what;
    return what;
  }

  /// The stack's device, which is current but for some of the stack's calls: its default streams are the program's.
  int home() const { return stack_.device < 0 ? how_.current : how_.device; }

  void make_stack() {
    require(cudaSetDevice(how_.current));
    stack_ = make_();
    require(cudaSetDevice(home()));
    if (stack_.device >= 0 && stack_.device != how_.device) wrong_ = "the stack is for another device";
  }
  void end_stack() {
    int const device = stack_.device;
    cudaSetDevice(how_.current);
    stack_ = {};
    stack_.device = device;
    cudaSetDevice(home());
  }

  /// Calls the stack while some device is current: which one matters for default streams only, and it stays so.
  template <class Call>
  void with_device(bool any, std::uint32_t chance, Call call) {
    int const device = any ? static_cast<int>(chance >> 4 & 1) : home();
    struct back {
      world& of;
      int device;
      ~back() {
        sim::clear_failure();  // is for the stack's calls only
        int now = -1;
        cudaGetDevice(&now);
        if (now != device && !of.failing_) of.wrong_ = "the stack changed the current device";
        cudaSetDevice(of.home());
      }
    } const to_home{*this, device};
    require(cudaSetDevice(device));
    call();
  }

  std::string trouble() {
    if (sim::report_count() != 0) return sim::reports().front().text;
    if (!misuse().empty()) return misuse();
    if (contents_.overwritten()) return "a block's contents were overwritten";
    if (capture_ && sim::captures_invalidated() != 0) return "a capture was broken";
    return wrong_;
  }

  /// What a layer of the stack counts otherwise than the program.
  std::string miscount() const {
    expected_account now = counts_;
    for (block const& b : blocks_) {
      now.requested += b.bytes;
      now.rounded += (b.bytes + 255) / 256 * 256;
      std::size_t const taken = stack_.taken ? stack_.taken(b.bytes, b.alignment) : b.bytes;
      now.charged += (taken + 255) / 256 * 256;
    }
    now.live = blocks_.size();
    return difference(stack_, now, has_failed_);
  }
  /// The same after a request that failed, which must have changed nothing.
  void count_failure() {
    ++counts_.failed;
    if (wrong_.empty()) wrong_ = miscount();
  }
  /// A pool keeps a block for good if CUDA fails while it is freed and nobody can tell when its work is done, or if a
  /// capture is about and there is no room to remember whose the block is: no free may ask for host memory.
  void count_free(block const& b) {
    if (!(failing_ || has_captured_) || miscount().empty()) return;
    counts_.lost += b.bytes;
    ++counts_.lost_count;
    if (wrong_.empty()) wrong_ = miscount();
  }

  void do_step(step const& s, outcome& result) {
    std::size_t const stream = s.x % streams_.size();
    switch (s.what) {
      case allocate_block:
        return allocate(s, streams_[stream].ref(), stream, result);
      case allocate_in_host_order:
        return captured(stream) ? void() : allocate(s, weir::host_order, stream, result);
      case wait_for_stream:
        return may_wait_for(stream) ? require(cudaStreamSynchronize(streams_[stream].handle)) : void();
      case query_stream:
        if (!may_wait_for(stream)) return;
        static_cast<void>(cudaStreamQuery(streams_[stream].handle));
        static_cast<void>(cudaGetLastError());  // not ready
        return;
      case wait_for_device:
        if (capture_) return;
        streams_.wait_for_devices();
        // A graph may use memory that is mapped anew; the simulated runtime takes that for a use after the free.
        if (stack_.sleep && !has_captured_) with_device(true, s.x, [&] { stack_.sleep(); });
        return;
      case describe_stack:
        if (stack_.describe && stack_.describe().empty()) wrong_ = "the stack has nothing to say about itself";
        return;
      case end_stream:
        if (streams_[stream].destroyable() && how_.streams_end) replace(stream, s);
        return;
      case starve_stream:
        if (how_.mode == sim::mode::random) sim::starve(streams_[stream].id);
        return;
      case trim_stack:
        if (stack_.trim) with_device(true, s.x, [&] { stack_.trim(s.y % 3 == 0 ? s.z % (8 << 20) : 0); });
        return;
      case synchronize_stack:
        if (stack_.synchronize) with_device(true, s.x, [&] { stack_.synchronize(); });
        return;
      case fail_in_allocate:
        if (blocks_.size() >= most_blocks || capture_) return;
        failing(1 + s.z / 32 % 4, [&] { allocate(s, streams_[stream].ref(), stream, result); });
        return;
      case fail_twice:
        return two_fail(s, stream, result);
      case sticky_error:
        return all_fail(s);
      case begin_capture:
        return begin_capture_on(stream, s);
      case fork_capture:
        return fork_capture_to(stream);
      case use_in_capture:
        return capture_ ? use_from_outside(s, result) : void();
      case end_capture:
        return capture_ ? finish_capture() : void();
      case launch_graph:
        return graphs_.empty() ? void() : launch(graphs_[s.y % graphs_.size()], stream);
      case drop_graph:
        return graphs_.empty() || capture_ ? void() : drop(s.y % graphs_.size(), s.z);
      default:
        if (!blocks_.empty()) do_with_block(s, s.y % blocks_.size(), stream);
    }
  }

  /// One of the calls that the stack makes meanwhile fails.
  template <class Action>
  void failing(std::uint64_t call, Action action) {
    std::uint64_t const before = calls_that_give_back();
    failing_ = has_failed_ = true;
    fails_in_ = call;
    action();
    failing_ = false;
    may_be_lost_ |= calls_that_give_back() != before;
    static_cast<void>(cudaGetLastError());
  }

  /// The next call fails, and then a certain one, which may be what the stack does about the first failure.
  void two_fail(step const& s, std::size_t stream, outcome& result) {
    constexpr char const* second[] = {"cudaStreamSynchronize",
                                      "cudaDeviceSynchronize",
                                      "cudaEventSynchronize",
                                      "cudaEventQuery",
                                      "cudaEventRecord",
                                      "cudaStreamWaitEvent",
                                      "cudaGetDevice",
                                      "cudaSetDevice",
                                      "cudaStreamGetId",
                                      "cudaStreamGetDevice",
                                      "cudaEventCreateWithFlags",
                                      "cudaMalloc",
                                      "cudaFree",
                                      "cudaMallocFromPoolAsync",
                                      "cudaFreeAsync",
                                      "cudaStreamQuery"};
    // If CUDA refuses to make the first device current again, default streams are others.
    if (capture_ || stream <= per_thread) return;
    second_ = second[s.z / 16 % std::size(second)];
    second_in_ = 1 + s.z / 256 % 2;
    may_be_lost_ = true;  // what cannot be waited for is kept
    if (s.z % 2 == 0 && !blocks_.empty()) {
      std::size_t const which = s.y % blocks_.size();
      if (blocks_[which].on <= per_thread) pass(blocks_[which], stream);
      failing(1 + s.z / 512 % 6, [&] { free_block(which, blocks_[which].on, s.x); });
    } else if (blocks_.size() < most_blocks) {
      failing(1 + s.z / 512 % 6, [&] { allocate(s, streams_[stream].ref(), stream, result); });
    }
    second_ = nullptr;
  }

  /// What fails of the calls that the stack makes now.
  void plan_failures(cudaError_t first, cudaError_t then) {
    if (!failing_) return;
    sim::fail_call(fails_in_, first);
    if (second_ != nullptr) sim::fail_call(second_, second_in_, then);
  }

  /// As after a kernel that crashed, until the stack is gone. It must neither crash nor hang meanwhile, nor hand out
  /// what is in use; and the next stack works.
  void all_fail(step const& s) {
    constexpr cudaError_t codes[] = {cudaErrorIllegalAddress, cudaErrorLaunchFailure, cudaErrorUnknown};
    if (capture_ || s.z % 4 != 0) return;
    is_over_ = true;
    auto const tried = [](auto f) {
      try {
        f();
      } catch (weir::cuda_error const&) {
      } catch (std::bad_alloc const&) {
      }
    };
    if (has_captured_) streams_.wait_for_devices();
    // The current device may change and not come back: default streams would then be others.
    for (block& b : blocks_)
      if (b.on <= per_thread) pass(b, lasting);
    cudaError_t const code = codes[s.y % std::size(codes)];
    sim::fail_from(1 + s.x / 8 % 16, code);
    for (std::size_t on = lasting; on < streams_.size(); ++on) {
      tried([&] {
        if (void* const p = stack_.allocate(streams_[on].ref(), 300, 256))
          blocks_.push_back({.p = p, .bytes = 300, .alignment = 256, .on = on});
      });
    }
    tried([&] { stack_.trim ? stack_.trim(0) : void(); });
    tried([&] { stack_.synchronize ? stack_.synchronize() : void(); });
    tried([&] { stack_.describe ? void(stack_.describe()) : void(); });
    for (block const& b : blocks_) stack_.deallocate(streams_[b.on].ref(), b.p, b.bytes, b.alignment);
    blocks_.clear();
    sim::fail_from(1, code);
    if (wrong_.empty()) wrong_ = trouble();
    sim::run_all();  // what threads were at
    end_stack();
    sim::clear_reports();  // what it gives back now, CUDA does not take
    sim::clear_failure();
    static_cast<void>(cudaGetLastError());
    require(cudaSetDevice(home()));
    sim::run_all();
    tried([&] {  // there may be little memory left
      make_stack();
      block b{.p = stack_.allocate(streams_.back().ref(), 300, 256),
              .bytes = 300,
              .alignment = 256,
              .on = streams_.size() - 1};
      write(b, 77);
      expect(b, b.on);
      stack_.deallocate(streams_[b.on].ref(), b.p, b.bytes, b.alignment);
      end_stack();
    });
    sim::run_all();
  }

  void do_with_block(step const& s, std::size_t which, std::size_t stream) {
    block& b = blocks_[which];
    if (!may_use(b)) {
      // Pools ask before they touch the legacy stream.
      if (s.what == free_where_it_is && b.on == legacy && !b.written && is_pooled()) free_block(which, b.on, s.z);
      return;
    }
    switch (s.what) {
      case free_where_it_is:
        return free_block(which, b.on, s.z);
      case free_elsewhere:
        if (!may_pass(b, stream)) return;
        if (stream == legacy && streams_[b.on].blocking && s.z % 2 == 0) {
          expect(b, b.on);  // the legacy stream comes after it by itself
          b.written = false;
        } else {
          pass(b, stream);
        }
        return free_block(which, stream, s.z);
      case free_in_host_order:
        if (captured(b.on)) return;
        require(cudaStreamSynchronize(streams_[b.on].handle));
        return free_block(which, no_stream, s.z);
      case fail_in_free:
        return capture_ ? void() : failing(1 + s.z % 4, [&] { free_block(which, b.on, 0); });
      case free_after_others:
        return free_after(which, s);
      case pass_to_other_stream:
        return may_pass(b, stream) ? pass(b, stream) : void();
      case write_block:
        return write(b, static_cast<unsigned char>(s.z));
      case read_block:
        return expect(b, b.on);
      case write_by_host:
        return captured(b.on) ? void() : contents_.host_write(b, static_cast<unsigned char>(s.z));
      default:
        return may_pass(b, stream) ? read_elsewhere(b, stream) : void();
    }
  }

  std::size_t bytes_of(step const& s) const {
    constexpr std::size_t few[] = {1024, 1024, 1024, 1000, 40'000, 300'000};
    if (how_.few_sizes) return few[s.z % std::size(few)];
    // Small ones are many, large ones fill the device.
    std::size_t const scale[] = {256, 4096, 4096, 65536, 65536, 1 << 20, how_.most_bytes};
    return 1 + s.y % std::min(scale[s.z % std::size(scale)], how_.most_bytes);
  }
  void allocate(step const& s, weir::stream_ref order, std::size_t stream, outcome& result) {
    if (blocks_.size() >= most_blocks) {
      std::size_t const which = s.y % blocks_.size();
      return may_use(blocks_[which]) ? free_block(which, blocks_[which].on, s.z) : void();
    }
    if (!reachable(stream) && !is_pooled()) return;
    std::size_t const bytes = std::min(bytes_of(s), how_.most_bytes);
    std::size_t const alignment = s.z % 16 == 0 ? std::size_t{1} << (s.z >> 8) % 17 : 256;
    void* p = nullptr;
    try {
      with_device(stream > per_thread, s.x, [&] {
        bool const by_memory = s.y % 2 == 0;
        plan_failures(by_memory ? cudaErrorMemoryAllocation : cudaErrorUnknown,
                      by_memory ? cudaErrorUnknown : cudaErrorMemoryAllocation);
        p = stack_.allocate(order, bytes, alignment);
        sim::clear_failure();
      });
    } catch (weir::out_of_memory const&) {
      ++result.refused;
      if (cudaPeekAtLastError() != cudaSuccess) wrong_ = "a refusal left an error behind";
      return count_failure();
    } catch (weir::cuda_error const&) {
      if (!failing_) throw;
      return count_failure();
    }
    ++result.served;
    ++counts_.served;
    if (p == nullptr || reinterpret_cast<std::uintptr_t>(p) % alignment != 0) wrong_ = "not aligned as asked";
    blocks_.push_back({.p = p, .bytes = bytes, .alignment = alignment, .on = stream, .number = ++block_number_});
    if (captured(stream)) blocks_.back().owner = capture_->made.id;
    if (s.x % 8 != 0 && reachable(stream)) write(blocks_.back(), static_cast<unsigned char>(s.z >> 3));
  }

  /// The block is to be freed. A graph that uses a block from outside cannot be launched any more; memory of its own is
  /// the graph's all the same.
  void forget(std::size_t which, std::size_t on) { forget_behind(which, on == no_stream ? 0 : 1u << on); }
  void forget_behind(std::size_t which, unsigned behind) {
    block const& b = blocks_[which];
    for (graph& g : graphs_) g.block_ends(b.number, behind);
    if (capture_ && b.owner != capture_->made.id) capture_->made.block_ends(b.number, behind);
    if (capture_ && !is_pooled()) may_be_lost_ = true;  // sources keep what they are given in a capture
    blocks_[which] = blocks_.back();
    blocks_.pop_back();
  }

  /// `no_stream`: by the host, who knows that all is done.
  void free_block(std::size_t which, std::size_t on, std::uint32_t chance) {
    block const b = blocks_[which];
    if (weir::live_block const known = stack_.find_block(b.p))
      if (known.bytes != b.bytes || known.alignment < b.alignment) wrong_ = "the stack knows another size of a block";
    if (on != no_stream) expect(b, on);
    forget(which, on);
    with_device(on > per_thread, chance, [&] {
      plan_failures(cudaErrorUnknown, cudaErrorLaunchFailure);
      stack_.deallocate(on == no_stream ? weir::stream_ref(weir::host_order) : streams_[on].ref(), b.p, b.bytes,
                        b.alignment);
      sim::clear_failure();
    });
    count_free(b);
  }

  /// Up to three streams read it besides its own, which does not wait for them; the same one may be named twice.
  void free_after(std::size_t which, step const& s) {
    block const b = blocks_[which];
    std::vector<weir::stream_ref> others;
    unsigned behind = 1u << b.on;
    bool any_device = b.on > per_thread;
    expect(b, b.on);
    std::uint32_t chance = s.z;
    for (std::uint32_t i = 0; i < s.x % 4; ++i, chance /= 8) {
      std::size_t const other = chance % streams_.size();
      if (!may_pass(b, other)) continue;
      streams_.order(b.on, other);
      expect(b, other);
      others.push_back(streams_[other].ref());
      behind |= 1u << other;
      any_device = any_device && other > per_thread;
    }
    if (s.y % 16 == 0) others.push_back(weir::host_order);
    forget_behind(which, behind);
    auto const give = [&] {
      with_device(any_device, s.x, [&] {
        plan_failures(cudaErrorUnknown, cudaErrorLaunchFailure);
        stack_.deallocate_after(streams_[b.on].ref(), b.p, b.bytes, others, b.alignment);
        sim::clear_failure();
      });
      count_free(b);
    };
    // What nobody could wait for stays live for the pool, which copies it when it is parked.
    bool const may_fail = !capture_ && !stack_.sleep;
    s.y % 32 == 1 && may_fail ? failing(1 + s.z % 8, give) : give();
  }

  void pass(block& b, std::size_t to) {
    if (b.on != to) streams_.order(b.on, to);
    b.on = to;
  }

  void write(block& b, unsigned char content) {
    b.content = content;
    b.written = true;
    contents_.put(b, b.on, content);
  }
  void expect(block const& b, std::size_t on) {
    if (b.written) expect(b, on, b.content);
  }
  void expect(block const& b, std::size_t on, unsigned char content) { contents_.expect(b, on, content); }

  void read_elsewhere(block& b, std::size_t on) {
    if (b.on == on) return;
    streams_.order(b.on, on);
    expect(b, on);
    streams_.order(on, b.on);
  }

  /// Ends a stream whose blocks go on elsewhere; the next one may get its handle.
  void replace(std::size_t which, step const& s) {
    std::size_t const next = s.y % 3;
    if (captured(which) || captured(next) || !reachable(next)) return;
    for (block& b : blocks_)
      if (b.on == which) pass(b, next);
    for (graph& g : graphs_) hand_over(g, which, next);
    if (capture_) hand_over(capture_->made, which, next);
    require(cudaStreamDestroy(streams_[which].handle));
    if (s.z % 2 == 0) require(cudaGetLastError());
    streams_.renew(which, s.z);
  }

  // ---- captures. The program is in order as a graph sees it: a launch comes after all work on what the graph uses
  // from outside, and all later work on that after the launch.

  bool captured(std::size_t stream) const { return capture_ && capture_->has(stream); }
  /// False while work for the stream would break the capture: for the legacy one, which waits for blocking streams.
  bool reachable(std::size_t stream) const {
    if (stream != legacy || !capture_) return true;
    for (std::size_t i = 0; i < streams_.size(); ++i)
      if (streams_[i].blocking && captured(i)) return false;
    return true;
  }
  bool may_wait_for(std::size_t stream) const { return !captured(stream) && reachable(stream); }
  /// True if the block's own stream may work on it as on any: outside of a capture, or on memory of the capture.
  bool may_use(block const& b) const {
    return reachable(b.on) && captured(b.on) == (capture_ && b.owner == capture_->made.id);
  }
  bool may_pass(block const& b, std::size_t to) const {
    return may_use(b) && reachable(to) && captured(to) == captured(b.on);
  }
  /// All requests are served by pools. Else what a capture allocates is freed in it, since a source makes it a node of
  /// the graph.
  bool is_pooled() const { return stack_.pooled; }
  /// Pools recognise the stream without a call, so that only a `capture_scope` makes them ask. Or a free may have left
  /// no event behind, so that a pool waits for the device.
  bool has_to_be_declared(std::size_t stream) const {
    return !streams_[stream].destroyable() || !how_.streams_end || has_failed_;
  }

  void begin_capture_on(std::size_t stream, step const& s) {
    constexpr cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                                               cudaStreamCaptureModeRelaxed};
    if (capture_ || stream == legacy || graphs_.size() >= most_graphs) return;
    has_captured_ = true;
    capture_.emplace();
    capture_->origin = stream;
    if (has_to_be_declared(stream) || s.z % 2 == 0) capture_->declared.emplace();
    require(cudaStreamBeginCapture(streams_[stream].handle, modes[s.y % std::size(modes)]));
    capture_->add(stream);
    capture_->made.id = weir::capture_id(streams_[stream].ref());
  }
  void fork_capture_to(std::size_t stream) {
    if (!capture_ || captured(stream) || stream == legacy) return;
    if (has_to_be_declared(stream) && !capture_->declared) return;
    streams_.order(capture_->origin, stream);
    capture_->add(stream);
  }

  /// On the capture's first stream, a block from outside; or a new one.
  void use_from_outside(step const& s, outcome& result) {
    std::size_t const on = capture_->origin;
    if (s.z % 4 == 0 || blocks_.empty()) return allocate(s, streams_[on].ref(), on, result);
    std::size_t const which = s.y % blocks_.size();
    block const& b = blocks_[which];
    graph& made = capture_->made;
    if (b.owner != 0) return;
    auto const content = static_cast<unsigned char>(s.z >> 8);
    graph::use const* const use = made.find(b.number);
    int const now = use == nullptr ? -1 : use->content;
    switch (s.z / 4 % 3) {
      case 0:
        contents_.put(b, on, content);
        made.use_of(b.number).content = content;
        return;
      case 1:
        if (now < 0 && !b.written) return;
        static_cast<void>(made.use_of(b.number));
        return now >= 0 ? expect(b, on, static_cast<unsigned char>(now)) : contents_.read(b, on);
      default:
        if (now >= 0) expect(b, on, static_cast<unsigned char>(now));
        made.after |= 1u << b.on;
        made.block_is_freed(b.number);
        return free_captured(which);
    }
  }
  void free_captured(std::size_t which) {
    block const b = blocks_[which];
    forget(which, no_stream);
    stack_.deallocate(streams_[capture_->origin].ref(), b.p, b.bytes, b.alignment);
    count_free(b);
  }

  void finish_capture() {
    graph& made = capture_->made;
    for (std::size_t i = 0; i < streams_.size(); ++i)
      if (captured(i) && i != capture_->origin) streams_.order(i, capture_->origin);
    for (std::size_t i = blocks_.size(); i-- > 0;) {
      block& b = blocks_[i];
      if (b.owner != made.id) continue;
      if (!is_pooled()) {
        free_block(i, capture_->origin, 0);
        continue;
      }
      graph::use& use = made.use_of(b.number);
      use.is_own = true;
      if (b.written) use.content = b.content;
      b.written = false;  // before a launch
      b.on = capture_->origin;
    }
    cudaGraph_t ended = nullptr;
    require(cudaStreamEndCapture(streams_[capture_->origin].handle, &ended));
    cudaError_t const code = cudaGraphInstantiate(&made.handle, ended, 0);
    require(cudaGraphDestroy(ended));
    require(code);
    graphs_.push_back(std::move(made));
    capture_.reset();
  }
  void abandon_capture() {
    if (!capture_) return;
    cudaGraph_t broken = nullptr;
    if (cudaStreamEndCapture(streams_[capture_->origin].handle, &broken) == cudaSuccess) cudaGraphDestroy(broken);
    capture_.reset();
  }

  void launch(graph const& g, std::size_t on) {
    if (g.is_stale || captured(on) || !reachable(on)) return;
    unsigned before = g.after;
    for (block const& b : blocks_)
      if (g.find(b.number) != nullptr) before |= 1u << b.on;
    for (std::size_t i = 0; i < streams_.size(); ++i)
      if ((before >> i & 1) != 0 && (captured(i) || !reachable(i))) return;
    for (std::size_t i = 0; i < streams_.size(); ++i)
      if ((before >> i & 1) != 0 && i != on) streams_.order(i, on);
    require(cudaGraphLaunch(g.handle, streams_[on].handle));
    for (block& b : blocks_) {
      graph::use const* const use = g.find(b.number);
      if (use == nullptr) continue;
      b.on = on;
      // The capture may have used the place of a block of its own for an earlier one, which each launch writes again.
      if (use->content >= 0) b.content = static_cast<unsigned char>(use->content);
      b.written = use->content >= 0 || (b.written && !use->is_own);
    }
  }
  void hand_over(graph& g, std::size_t from, std::size_t to) {
    if ((g.after >> from & 1) == 0) return;
    streams_.order(from, to);
    g.after = (g.after & ~(1u << from)) | 1u << to;
  }
  /// The graph is gone, and mostly the pools are told so.
  void drop(std::size_t which, std::uint32_t chance) {
    std::uint64_t const id = graphs_[which].id;
    require(cudaGraphExecDestroy(graphs_[which].handle));
    std::swap(graphs_[which], graphs_.back());
    graphs_.pop_back();
    if (!stack_.release_captured || chance % 4 == 0) return;
    streams_.wait_for_devices();
    bool const all = graphs_.empty() && chance % 4 == 1;
    stack_.release_captured(all ? 0 : id);
    for (block& b : blocks_)
      if (is_pooled() && (all || b.owner == id)) b.owner = 0;
  }

  static constexpr std::size_t legacy = program_streams::legacy, per_thread = program_streams::per_thread,
                               lasting = program_streams::lasting;
  static constexpr std::size_t most_blocks = 60, most_graphs = 5, no_stream = ~std::size_t{0};

  setting how_;
  std::function<stack()> make_;
  stack stack_;
  program_streams streams_;
  block_contents contents_{streams_};
  std::vector<block> blocks_;
  expected_account counts_;  // what of it `blocks_` do not say
  std::string wrong_;
  bool failing_ = false, has_failed_ = false, may_be_lost_ = false;
  std::uint64_t fails_in_ = 0, second_in_ = 0;
  char const* second_ = nullptr;  // the call that fails besides
  bool is_over_ = false;
  std::uint64_t block_number_ = 0;
  std::optional<capture> capture_;
  std::vector<graph> graphs_;
  bool has_captured_ = false;
  weir::misuse_handler before_ = nullptr;
};

inline outcome run(setting const& how, std::function<stack()> const& make, std::span<step const> steps) try {
  leaks_allowed const kept_for_good(
      std::any_of(steps.begin(), steps.end(), [](step const& s) { return s.what >= begin_capture; }));
  world w(how, make);
  return w.run(steps);
} catch (std::exception const& failure) {
  return {failure.what()};
}

}  // namespace random_program
