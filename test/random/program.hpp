#pragma once
// A program in correct stream order, made of random numbers, on any resource: what it does is always allowed, so
// whatever the check of order or the contents of its memory complain about is the resource's fault.

#include <conformance/leaks_allowed.hpp>
#include <random/accounts.hpp>
#include <random/contents.hpp>
#include <random/graphs.hpp>
#include <random/kinds.hpp>
#include <random/open_stack.hpp>
#include <random/second_thread.hpp>
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
  bool starving = false;     ///< random mode, with one stream that gets nowhere from the start
  bool few_sizes = false;    ///< so that blocks of one size are many
  int device = 0;            ///< the stack's, if it is not for any
  int current = 0;           ///< the device that is current when the stack is made
  bool two_threads = false;  ///< which take turns; then no stream is the threads' own
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
    streams_.open(home(), !how_.two_threads);
    if (how.starving) sim::starve(streams_[3 + how.schedule % 5].id);
  }
  ~world() {
    sim::clear_failure();
    for (auto& c : captures_)
      if (c) abandon(*c);
    if (how_.mode == sim::mode::threads) sim::run_all();  // after a failure blocks may still be in use
    for (graph const& g : graphs_)
      if (g.handle != nullptr) cudaGraphExecDestroy(g.handle);
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
        step const& s = steps[result.at];
        in_thread(is_elsewhere(s), [&] { do_step(s, result); });
        result.what = trouble();
        if (result.at % 8 == 7 && result.what.empty() && !is_over_) result.what = miscount();
      } catch (std::exception const& failure) {
        result.what = failure.what();
      }
      if (!result.what.empty()) return result;
      if (is_over_) return ++result.at, result;
    }
    for (auto& c : captures_)
      if (c) in_thread(c->is_elsewhere, [&] { finish(c, true); });
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
    if (!wrong_.empty()) return wrong_;  // what is reported may come of it
    if (sim::report_count() != 0) return sim::reports().front().text;
    if (!misuse().empty()) return misuse();
    if (contents_.overwritten()) return "a block's contents were overwritten";
    return sim::captures_invalidated() != broken_ ? "a capture was broken" : "";
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

  bool is_elsewhere(step const& s) {
    if (!how_.two_threads || s.what == sticky_error) return false;
    bool const ends = s.what == end_capture || s.what == break_capture;  // where it began
    return ends ? chosen(s.y) && chosen(s.y)->is_elsewhere : (s.x >> 20) % 4 == 0;
  }
  template <class Action>
  void in_thread(bool second, Action action) {
    if (!second) return action();
    other_.run([&] {
      leaks_allowed const kept_for_good(has_captured_);
      require(cudaSetDevice(home()));
      is_in_second_ = true;
      action();
    });
    is_in_second_ = false;
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
        if (capturing()) return;
        streams_.wait_for_devices();
        // A graph may use memory that is mapped anew; the simulated runtime takes that for a use after the free.
        if (stack_.sleep && !has_captured_) with_device(true, s.x, [&] { stack_.sleep(); });
        return;
      case describe_stack:
        if (stack_.describe && stack_.describe().empty()) wrong_ = "the stack has nothing to say about itself";
        return;
      case end_stream:
        if (may_end(stream)) replace(stream, s);
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
        if (blocks_.size() >= most_blocks || capturing()) return;
        failing(1 + s.z / 32 % 4, [&] { allocate(s, streams_[stream].ref(), stream, result); });
        return;
      case fail_twice:
        return two_fail(s, stream, result);
      case sticky_error:
        return all_fail(s);
      case begin_capture:
        return begin_capture_on(stream, s);
      case fork_capture:
        return fork_capture_to(stream, s);
      case use_in_capture:
        return use_from_outside(s, result);
      case end_capture:
        return chosen(s.y) ? finish(chosen(s.y), true) : void();
      case launch_graph:
        return graphs_.empty() ? void() : launch(graphs_[s.y % graphs_.size()], stream);
      case drop_graph:
        return graphs_.empty() ? void() : drop(s.y % graphs_.size(), s.z);
      case mark_capture:
        return mark(stream);
      case leave_capture:
        return leave(stream, s, result);
      case break_capture:
        return chosen(s.y) ? break_one(chosen(s.y), s.z) : void();
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
    if (capturing() || stream <= per_thread) return;
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
    if (capturing() || s.z % 4 != 0) return;
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
      if (s.what == free_where_it_is && is_pooled()) free_unused(which, s.z);
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
        return capturing() ? void() : failing(1 + s.z % 4, [&] { free_block(which, b.on, 0); });
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
    if (captured(stream)) blocks_.back().owner = capture_of(stream)->made.id;
    // In a capture all are used: to a pool a free there is where its stream's last node is, to the check a point of its
    // own.
    if ((s.x % 8 != 0 || captured(stream)) && works(stream))
      write(blocks_.back(), static_cast<unsigned char>(s.z >> 3));
  }

  /// The block is to be freed. A graph that uses a block from outside cannot be launched any more; memory of its own is
  /// the graph's all the same.
  void forget(std::size_t which, std::size_t on) { forget_behind(which, on == no_stream ? 0 : 1u << on); }
  void forget_behind(std::size_t which, unsigned behind) {
    block const& b = blocks_[which];
    for (graph& g : graphs_) g.block_ends(b.number, behind);
    for (auto& c : captures_)
      if (c && b.owner != c->made.id) c->made.block_ends(b.number, behind);
    if (capturing() && !is_pooled()) may_be_lost_ = true;  // sources keep what they are given in a capture
    blocks_[which] = blocks_.back();
    blocks_.pop_back();
  }

  /// `no_stream`: by the host, who knows that all is done.
  void free_block(std::size_t which, std::size_t on, std::uint32_t chance) {
    block const b = blocks_[which];
    if (weir::live_block const known = stack_.find_block(b.p))
      if (known.bytes != b.bytes || known.alignment < b.alignment) wrong_ = "the stack knows another size of a block";
    if (on != no_stream) expect(b, on);
    give_back(which, on, chance);
  }
  void give_back(std::size_t which, std::size_t on, std::uint32_t chance) {
    block const b = blocks_[which];
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
    capture* common = capture_of(b.on);  // that some of them are in
    expect(b, b.on);
    std::uint32_t chance = s.z;
    for (std::uint32_t i = 0; i < s.x % 4; ++i, chance /= 8) {
      std::size_t const other = chance % streams_.size();
      bool const uses = may_pass(b, other);
      capture* const c = capture_of(other);
      // Streams in two captures are misuse, as are two kinds of streams with a source.
      if (!uses && (!is_pooled() || (c != nullptr && common != nullptr && c != common))) continue;
      if (uses) {
        streams_.order(b.on, other);
        expect(b, other);
        behind |= 1u << other;
      }
      others.push_back(streams_[other].ref());
      if (c != nullptr) common = c;
      any_device = any_device && other > per_thread;
    }
    if (s.y % 16 == 0) others.push_back(weir::host_order);
    std::size_t on = b.on;
    if (common != nullptr && is_pooled() && s.y % 4 == 2) {  // in the order of the capture, whoever used it
      on = common->origin;
      any_device = any_device && on > per_thread;
      others.push_back(streams_[b.on].ref());
    }
    // What is from outside is that capture's from now on; another one's it has borrowed.
    if (common != nullptr && b.owner == 0) common->made.after |= behind;
    if (common != nullptr && b.owner != 0 && b.owner != common->made.id) common->made.borrows.push_back(b.owner);
    forget_behind(which, behind);
    auto const give = [&] {
      with_device(any_device, s.x, [&] {
        plan_failures(cudaErrorUnknown, cudaErrorLaunchFailure);
        stack_.deallocate_after(streams_[on].ref(), b.p, b.bytes, others, b.alignment);
        sim::clear_failure();
      });
      count_free(b);
    };
    // What nobody could wait for stays live for the pool, which copies it when it is parked.
    bool const may_fail = !capturing() && !stack_.sleep;
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
    if (which == next || captured(which) || !may_wait_for(next)) return;
    for (block& b : blocks_)
      if (b.on == which) pass(b, next);
    hand_over_graphs(which, next);
    streams_.renew(which, s.z);
  }

  // ---- captures. The program is in order as a graph sees it: a launch comes after all work on what the graph uses
  // from outside, and all later work on that after the launch.

  bool capturing() const {
    return std::any_of(std::begin(captures_), std::end(captures_), [](auto const& c) { return c.has_value(); });
  }
  capture const* capture_of(std::size_t stream) const {
    for (auto const& c : captures_)
      if (c && c->has(stream)) return &*c;
    return nullptr;
  }
  capture* capture_of(std::size_t stream) { return const_cast<capture*>(std::as_const(*this).capture_of(stream)); }
  bool captured(std::size_t stream) const { return capture_of(stream) != nullptr; }
  /// The id of the capture under way that the stream takes part in, or 0.
  std::uint64_t capture_id_of(std::size_t stream) const {
    capture const* const c = capture_of(stream);
    return c == nullptr ? 0 : c->made.id;
  }
  bool is_under_way(std::uint64_t id) const {
    return std::any_of(std::begin(captures_), std::end(captures_),
                       [id](auto const& c) { return c && c->made.id == id; });
  }
  /// One of those under way; empty if there is none.
  std::optional<capture>& chosen(std::uint32_t number) {
    std::optional<capture>& first = captures_[number % std::size(captures_)];
    return first ? first : captures_[(number + 1) % std::size(captures_)];
  }
  /// One of a capture's streams.
  std::size_t stream_of(capture const& c, std::uint32_t number) const {
    std::size_t const on = number % streams_.size();
    return c.has(on) ? on : c.origin;
  }
  /// False while work for the stream would break the capture: for the legacy one, which waits for blocking streams.
  bool reachable(std::size_t stream) const {
    return stream != legacy ||
           std::none_of(std::begin(captures_), std::end(captures_), [](auto const& c) { return c && c->had_blocking; });
  }
  /// True if work for the stream is done, or becomes part of a graph.
  bool works(std::size_t stream) const {
    capture const* const c = capture_of(stream);
    return c == nullptr ? reachable(stream) : !c->is_broken;
  }
  bool may_wait_for(std::size_t stream) const { return !captured(stream) && reachable(stream); }
  bool may_end(std::size_t stream) const {
    return streams_[stream].lasting || (streams_[stream].destroyable() && how_.streams_end);
  }
  /// True if the block's own stream may work on it as on any: outside of captures, or on memory of its capture.
  bool may_use(block const& b) const {
    return works(b.on) && capture_id_of(b.on) == (is_under_way(b.owner) ? b.owner : 0);
  }
  bool may_pass(block const& b, std::size_t to) const {
    return may_use(b) && works(to) && capture_of(to) == capture_of(b.on);
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
    if (captured(stream) || stream == legacy || graphs_.size() >= most_graphs) return;
    std::size_t const at = captures_[0] ? 1 : 0;
    std::optional<capture>& c = captures_[at];
    if (c) return;
    has_captured_ = counts_.has_captured = true;
    if (s.z % 4 < 2) clear(stream, s.z >> 2);
    c.emplace();
    c->origin = stream;
    c->is_elsewhere = is_in_second_;
    if (has_to_be_declared(stream) || s.z % 2 == 0) c->declared.emplace();
    require(cudaStreamBeginCapture(streams_[stream].handle, modes[s.y % std::size(modes)]));
    add(*c, stream);
    c->made.id = weir::capture_id(streams_[stream].ref());
    streams_.mark(at, stream);
  }
  void add(capture& c, std::size_t stream) const {
    c.add(stream);
    c.had_blocking |= streams_[stream].blocking;
  }
  /// What the stream did outside of captures is behind another one from now on, where there is one for it.
  void clear(std::size_t stream, std::uint32_t number) {
    std::size_t next = number % streams_.size();
    for (std::size_t tries = 0; next == stream || !may_wait_for(next); next = (next + 1) % streams_.size())
      if (++tries == streams_.size()) return;
    for (block& b : blocks_)
      if (b.on == stream) pass(b, next);
    hand_over_graphs(stream, next);
  }
  /// True if the program still has to order something after what the stream did outside of the capture it is in.
  bool is_needed_outside(std::size_t stream) const {
    auto const waits = [stream](graph const& g) { return ((g.after | g.runs_on) >> stream & 1) != 0; };
    return std::any_of(blocks_.begin(), blocks_.end(),
                       [&](block const& b) { return b.on == stream && b.owner != capture_id_of(stream); }) ||
           std::any_of(graphs_.begin(), graphs_.end(), waits) ||
           std::any_of(std::begin(captures_), std::end(captures_), [&](auto const& c) { return c && waits(c->made); });
  }
  /// By a stream of the capture as it is now, or where it had its mark.
  void fork_capture_to(std::size_t stream, step const& s) {
    std::optional<capture>& c = chosen(s.y);
    if (!c || c->is_broken || captured(stream) || stream == legacy) return;
    if (has_to_be_declared(stream) && !c->declared) return;
    if (s.z % 4 != 0) clear(stream, s.z >> 2);
    fork(*c, stream, s);
  }
  void fork(capture& c, std::size_t stream, step const& s) {
    if (s.z / 4 % 2 == 0)
      streams_.order_after_mark(number_of(c), stream);
    else
      streams_.order(stream_of(c, s.y >> 1), stream);
    add(c, stream);
  }
  std::size_t number_of(capture const& c) const { return captures_[0] && &*captures_[0] == &c ? 0 : 1; }
  void mark(std::size_t stream) {
    capture const* const c = capture_of(stream);
    if (c != nullptr && !c->is_broken) streams_.mark(number_of(*c), stream);
  }
  /// A stream that joined is destroyed, and the one in its place mostly forks and allocates at once: the next from
  /// `stream` on that may end. What it has left is freed, or goes on elsewhere.
  void leave(std::size_t stream, step const& s, outcome& result) {
    auto const may_leave = [&] {
      return captured(stream) && stream != capture_of(stream)->origin && may_end(stream) && !is_needed_outside(stream);
    };
    for (std::size_t tries = 0; !may_leave(); stream = (stream + 1) % streams_.size())
      if (++tries == streams_.size()) return;
    capture& c = *capture_of(stream);
    if (c.is_broken || s.z / 8 % 2 == 0) free_all_on(stream, s.z);
    if (!c.is_broken) join(c, stream, s.y >> 1);
    c.remove(stream);
    streams_.renew(stream, s.z >> 8);
    if (c.is_broken || s.z % 4 == 0 || (has_to_be_declared(stream) && !c.declared)) return;
    fork(c, stream, s);
    if (s.z / 16 % 4 != 0) allocate(s, streams_[stream].ref(), stream, result);
  }
  /// One of the capture's streams joins another, which goes on with its memory.
  void join(capture& c, std::size_t stream, std::uint32_t number) {
    std::size_t const any = stream_of(c, number), to = any == stream ? c.origin : any;
    streams_.order(stream, to);
    for (block& b : blocks_)
      if (b.on == stream) b.on = to;
    for (graph::use& use : c.made.uses)
      if (use.on == stream) use.on = to;
  }
  void free_all_on(std::size_t stream, std::uint32_t chance) {
    for (std::size_t i = blocks_.size(); i-- > 0;)
      if (blocks_[i].on == stream) works(stream) ? free_block(i, stream, chance) : give_back(i, stream, chance);
  }

  /// A block from outside, or a new one.
  void use_from_outside(step const& s, outcome& result) {
    if (!chosen(s.x)) return;
    capture& c = *chosen(s.x);
    std::size_t const on = stream_of(c, s.x >> 1);
    if (s.z % 4 == 0 || blocks_.empty()) return allocate(s, streams_[on].ref(), on, result);
    std::size_t const which = s.y % blocks_.size();
    block const& b = blocks_[which];
    graph& made = c.made;
    if (is_under_way(b.owner) || c.is_broken) return;
    auto const content = static_cast<unsigned char>(s.z >> 8);
    graph::use const* const use = made.find(b.number);
    int const now = use == nullptr ? -1 : use->content;
    if (use != nullptr && use->on != on) streams_.order(use->on, on);
    switch (s.z / 4 % 3) {
      case 0:
        contents_.put(b, on, content);
        made.use_of(b.number).content = content;
        break;
      case 1:
        if (now < 0 && !b.written) return;
        if (now >= 0)
          expect(b, on, static_cast<unsigned char>(now));
        else
          contents_.read(b, on);
        break;
      default:
        if (now >= 0) expect(b, on, static_cast<unsigned char>(now));
        return free_in_capture(which, on);
    }
    made.use_of(b.number).on = on;
  }
  /// A block from outside, which may be that of an earlier capture: then it stays that one's, whose memory this graph
  /// uses.
  void free_in_capture(std::size_t which, std::size_t on) {
    block const b = blocks_[which];
    capture& c = *capture_of(on);
    if (graph::use const* const use = c.made.find(b.number); use != nullptr && use->on != on) {
      if (c.is_broken) return;
      streams_.order(use->on, on);
    }
    c.made.after |= 1u << b.on;
    c.made.block_is_freed(b.number);
    if (b.owner != 0) c.made.borrows.push_back(b.owner);
    forget(which, b.owner == 0 ? no_stream : b.on);
    stack_.deallocate(streams_[on].ref(), b.p, b.bytes, b.alignment);
    count_free(b);
  }
  /// A block that its stream cannot work on now, or does not in its capture: it is freed without a last use.
  void free_unused(std::size_t which, std::uint32_t chance) {
    block const& b = blocks_[which];
    // Pools ask before they touch the legacy stream.
    if (is_under_way(b.owner) || (b.on == legacy && !b.written)) return give_back(which, b.on, chance);
    if (captured(b.on)) free_in_capture(which, b.on);
  }

  /// `joined`: all of its streams are.
  void finish(std::optional<capture>& ended, bool joined) {
    capture& c = *ended;
    for (std::size_t i = 0; i < streams_.size() && joined && !c.is_broken; ++i)
      if (c.has(i) && i != c.origin) streams_.order(i, c.origin);
    for (std::size_t i = blocks_.size(); i-- > 0;)
      if (!is_pooled() && blocks_[i].owner == c.made.id) free_block(i, c.origin, 0);
    cudaGraph_t made = nullptr;
    cudaError_t const code = cudaStreamEndCapture(streams_[c.origin].handle, &made);
    if (joined && !c.is_broken) require(code);
    if (code == cudaSuccess) {
      cudaError_t const is_made = cudaGraphInstantiate(&c.made.handle, made, 0);
      require(cudaGraphDestroy(made));
      require(is_made);
    } else if (static_cast<void>(cudaGetLastError()); !c.is_broken) {
      ++broken_;
    }
    keep(ended);
  }
  /// What it made is a graph from now on, if only one to launch if it was not broken.
  void keep(std::optional<capture>& ended) {
    graph& made = ended->made;
    for (block& b : blocks_) {
      if (b.owner != made.id) continue;
      graph::use& use = made.use_of(b.number);
      use.is_own = true;
      if (b.written) use.content = b.content;
      b.written = false;  // before a launch
      b.on = ended->origin;
    }
    graphs_.push_back(std::move(made));
    ended.reset();
  }
  /// By a wait for one of its streams, or a question to it; by an end before all have joined, or that of its stream.
  void break_one(std::optional<capture>& c, std::uint32_t chance) {
    if (!is_pooled()) return;
    std::size_t const on = stream_of(*c, chance >> 4);
    switch (chance % 4) {
      case 0:
      case 1:
        if (!c->is_broken) ++broken_;
        c->is_broken = true;
        static_cast<void>(chance % 2 == 0 ? cudaStreamSynchronize(streams_[on].handle)
                                          : cudaStreamQuery(streams_[on].handle));
        return static_cast<void>(cudaGetLastError());
      case 2:
        return finish(c, false);
      default:
        if (streams_[c->origin].lasting || !may_end(c->origin) || is_needed_outside(c->origin)) return;
        if (!c->is_broken) ++broken_;
        streams_.renew(c->origin, chance >> 4);
        keep(c);
    }
  }
  void abandon(capture const& c) const {
    cudaGraph_t made = nullptr;
    if (cudaStreamEndCapture(streams_[c.origin].handle, &made) == cudaSuccess) cudaGraphDestroy(made);
  }

  void launch(graph& g, std::size_t on) {
    if (g.handle == nullptr || g.is_stale || captured(on) || !reachable(on)) return;
    unsigned before = g.after;
    for (block const& b : blocks_)
      if (g.find(b.number) != nullptr) before |= 1u << b.on;
    for (graph const& other : graphs_)
      if (g.shares_memory_with(other)) before |= other.runs_on;
    for (std::size_t i = 0; i < streams_.size(); ++i)
      if ((before >> i & 1) != 0 && !may_wait_for(i)) return;
    for (std::size_t i = 0; i < streams_.size(); ++i)
      if ((before >> i & 1) != 0 && i != on) streams_.order(i, on);
    require(cudaGraphLaunch(g.handle, streams_[on].handle));
    g.runs_on |= 1u << on;
    for (block& b : blocks_) {
      graph::use const* const use = g.find(b.number);
      if (use == nullptr) continue;
      b.on = on;
      // The capture may have used the place of a block of its own for an earlier one, which each launch writes again.
      if (use->content >= 0) b.content = static_cast<unsigned char>(use->content);
      b.written = use->content >= 0 || (b.written && !use->is_own);
    }
  }
  void hand_over_graphs(std::size_t from, std::size_t to) {
    for (graph& g : graphs_) hand_over(g, from, to);
    for (auto& c : captures_)
      if (c) hand_over(c->made, from, to);
  }
  void hand_over(graph& g, std::size_t from, std::size_t to) {
    if (((g.after | g.runs_on) >> from & 1) == 0) return;
    streams_.order(from, to);
    for (unsigned* const streams : {&g.after, &g.runs_on})
      if ((*streams >> from & 1) != 0) *streams = (*streams & ~(1u << from)) | 1u << to;
  }
  /// The graph is gone, and mostly the pools are told so.
  void drop(std::size_t which, std::uint32_t chance) {
    std::uint64_t const id = graphs_[which].id;
    bool const tells = stack_.release_captured && chance % 4 != 0;
    bool const all = graphs_.size() == 1 && chance % 4 == 1 && !capturing();
    if (tells && !finish_work_on_memory_of(graphs_[which])) return;
    if (graphs_[which].handle != nullptr) require(cudaGraphExecDestroy(graphs_[which].handle));
    std::swap(graphs_[which], graphs_.back());
    unsigned const left = graphs_.back().after | graphs_.back().runs_on;
    graphs_.pop_back();
    for (graph& g : graphs_)
      if (g.has_borrowed(id)) g.after |= left;
    for (auto& c : captures_)
      if (c && c->made.has_borrowed(id)) c->made.after |= left;
    if (!tells) return;
    for (graph& g : graphs_) g.is_stale |= g.has_borrowed(id);
    stack_.release_captured(all ? 0 : id);
    for (block& b : blocks_)
      if (is_pooled() && (all || b.owner == id)) b.owner = 0;
  }
  bool finish_work_on_memory_of(graph const& gone) const {
    auto const borrows = [&](auto const& c) { return c && c->made.has_borrowed(gone.id); };
    return std::none_of(std::begin(captures_), std::end(captures_), borrows) && finish_work_of(gone) &&
           std::all_of(graphs_.begin(), graphs_.end(),
                       [&](graph const& g) { return !g.shares_memory_with(gone) || finish_work_of(g); });
  }
  /// Waits for the streams that have some of it, while others capture; false if one of them does.
  bool finish_work_of(graph const& g) const {
    if (!capturing()) return streams_.wait_for_devices(), true;
    unsigned const all = g.after | g.runs_on;
    for (std::size_t i = 0; i < streams_.size(); ++i)
      if ((all >> i & 1) != 0 && !may_wait_for(i)) return false;
    for (std::size_t i = 0; i < streams_.size(); ++i)
      if ((all >> i & 1) != 0) require(cudaStreamSynchronize(streams_[i].handle));
    return true;
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
  std::optional<capture> captures_[program_streams::marks];
  std::uint64_t broken_ = 0;  // captures, by the program itself
  std::vector<graph> graphs_;
  bool has_captured_ = false;
  weir::misuse_handler before_ = nullptr;
  bool is_in_second_ = false;
  second_thread other_;
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
