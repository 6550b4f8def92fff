#pragma once
// Before a request is refused, waits a while for another thread to free something.

#include <weir/adaptors/detail/memory_queue.hpp>
#include <weir/adaptors/detail/passing_adaptor.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/error.hpp>
#include <weir/core/options.hpp>
#include <weir/core/printable.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/support/atomic.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

namespace weir {

template <resource Upstream>
class wait_for_memory_resource;

/// Where the upstream is out of memory, waits up to a time for another thread to free something through this layer, and
/// asks again. For several threads or services that share a budget, and hold what they have for a short time only.
///
///     auto device = weir::make(weir::async{} | weir::pool{.max_bytes = 8_GiB} | weir::wait_for_memory{500});
///
/// When not to use it: where one thread does all: nobody could free anything while it waits, so that each refusal only
/// takes longer; where threads wait for each other while they hold memory.
struct wait_for_memory {
  unsigned for_milliseconds = 1000;  ///< the longest that one request waits
  std::string name = {};             ///< whose it is, for reports: `search` makes it `search: wait_for_memory`

  template <resource Upstream>
  using on = wait_for_memory_resource<Upstream>;

  static constexpr char const* layer_name = "wait_for_memory";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(option::count("for_milliseconds", "for_milliseconds", &wait_for_memory::for_milliseconds).first().at_least(1));
    f(option::text("name", "name", &wait_for_memory::name));
  }

  std::string problem() const { return option::first_problem(*this); }
  bool valid() const { return problem().empty(); }
};

/// What a `wait_for_memory` layer did so far.
struct wait_numbers {
  std::size_t waiting = 0;      ///< requests that wait now
  std::uint64_t rescued = 0;    ///< that were served after they had waited
  std::uint64_t timed_out = 0;  ///< that were refused after they had waited
};

/// What `wait_for_memory` stands as on an upstream. All functions may be called from any thread.
///
/// Whoever has waited longest asks first after each free, and after a request that failed, then the next. In the first
/// half of its time it lets those behind it, and new requests, have what it cannot use; in the second half they wait
/// for it, so that what is freed adds up for a large request, too. Whose own time is over asks once more in any case. A
/// request on a stream that is being captured is refused at once, and so is what a pool above takes for one, what is
/// asked for inside of a request that waits, as by a reclaimer below (`on_failure`), and what a pool asks for that is
/// more than it needs: it asks for less next. While nobody waits, a request and a free cost a load more than without
/// this layer.
template <resource Upstream>
class wait_for_memory_resource : public detail::passing_adaptor<wait_for_memory_resource<Upstream>, Upstream> {
  using base = detail::passing_adaptor<wait_for_memory_resource, Upstream>;

 public:
  static constexpr char const* layer_name = wait_for_memory::layer_name;

  template <recipe F>
  wait_for_memory_resource(F const& upstream, wait_for_memory const& options)
      : base(upstream),
        time_(std::chrono::milliseconds(detail::require_valid(options).for_milliseconds)),
        name_(options.name),
        label_(options.name.empty() ? "wait_for_memory" : printable(options.name) + ": wait_for_memory") {}

  /// Throws the last `out_of_memory` of the upstream when the time is over, and whatever else the upstream throws. A
  /// plain `std::bad_alloc`, of a resource of the program's own or of the host's memory, is a refusal, too.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    if (queue_.is_closed() && reason_not_to_wait(stream, bytes, alignment) == nullptr) [[unlikely]] {
      if (detail::can_do_with_less::is_set()) refuse_step({bytes, this->taken(bytes, alignment), stream});
      return wait(stream, bytes, alignment);
    }
    try {
      return this->ask(stream, bytes, alignment);
    } catch (out_of_memory& failure) {
      took_nothing();
      char const* const why_not =
          detail::can_do_with_less::is_set() ? is_step : reason_not_to_wait(stream, bytes, alignment);
      if (why_not != nullptr) {
        failure.passed_through(line{*this, why_not});
        throw;
      }
    } catch (std::bad_alloc const&) {  // of a resource of the program's own, or of the host's memory
      took_nothing();
      if (detail::can_do_with_less::is_set() || reason_not_to_wait(stream, bytes, alignment) != nullptr) throw;
    } catch (...) {
      took_nothing();
      throw;
    }
    return wait(stream, bytes, alignment);
  }

  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr) return;
    share(upstream_).deallocate(stream, p, bytes, alignment);
    queue_.on_free();
  }
  /// See `weir::deallocate_after`. Who waits is called at once, and may then wait for the work of all.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr) return;
    weir::deallocate_after(upstream_, stream, p, bytes, others, alignment);
    queue_.on_free();
  }

  wait_numbers numbers() const noexcept { return {queue_.size(), rescued_.load(), timed_out_.load()}; }
  /// Whose it is; empty: nobody said.
  std::string const& name() const noexcept { return name_; }

  void describe_layer(report& out) const { line{*this, ""}.describe_layer(out); }

 private:
  using base::upstream_;
  friend base;

  // ---- a growable upstream: who maps waits for others to unmap

  template <class Map>
  bool map_by(void*, std::size_t, Map map) {
    if (reason_not_to_wait(host_order) != nullptr) return map();
    if (!queue_.is_closed() && map()) return true;
    if (detail::can_do_with_less::is_set()) return false;
    bool const mapped = map_in_turn(map);
    (mapped ? rescued_ : timed_out_).add(1);
    return mapped;
  }
  template <class Map>
  bool map_in_turn(Map map) {
    for (detail::memory_queue::place own(queue_, time_ / 2, time_);;) {
      bool const in_time = own.wait_for_turn();
      if (bool const mapped = map(); mapped || !in_time) return mapped;
    }
  }
  template <class Unmap>
  bool unmap_by(void*, std::size_t, Unmap unmap) noexcept {
    bool const unmapped = unmap();
    queue_.on_free();
    return unmapped;
  }

  /// This layer's line, with what is to be said of one request.
  struct line {
    wait_for_memory_resource const& layer;
    char const* of_request;
    void describe_layer(report& out) const {
      wait_numbers const n = layer.numbers();
      out.below(layer.label_, "up to " + std::to_string(layer.time_.count() / 1000) + " ms; " +
                                  std::to_string(n.waiting) + " requests wait, " + std::to_string(n.rescued) +
                                  " were served after a wait, " + std::to_string(n.timed_out) + " refused" +
                                  of_request);
    }
  };

  static constexpr char const* is_step = "; this one did not wait: who asked can do with less";

  /// Null if a request may wait.
  char const* reason_not_to_wait(stream_ref stream, std::size_t bytes, std::size_t alignment) noexcept {
    if (this->taken(bytes, alignment) == 0) return "; no free could serve this one";
    return reason_not_to_wait(stream);
  }
  char const* reason_not_to_wait(stream_ref stream) noexcept {
    if (queue_.has_one_of_this_thread()) return "; this one did not wait: it was made inside of one that waits";
    return detail::is_for_capture(stream) ? "; this one did not wait: its stream is being captured" : nullptr;
  }
  /// A step of a pool's while the queue is closed: what is freed is for those who wait.
  [[noreturn, gnu::noinline, gnu::cold]] void refuse_step(memory_request const& request) const {
    report own;
    line{*this, is_step}.describe_layer(own);
    this->refuse(request, label_, own, "others have waited for long, and come first: ask for less, or later");
  }

  /// While a request was asked for that failed, a budget below was charged with it, which may have kept another one
  /// waiting. Not for a request that is made inside of one that waits: two of these would wake each other for ever.
  void took_nothing() noexcept {
    if (!queue_.has_one_of_this_thread()) queue_.on_free();
  }

  [[gnu::noinline, gnu::cold]] void* wait(stream_ref stream, std::size_t bytes, std::size_t alignment) try {
    void* const p = ask_in_turn(stream, bytes, alignment);
    rescued_.add(1);  // once it waits no more, so that nobody sees it as both
    return p;
  } catch (...) {
    took_nothing();
    throw;
  }
  void* ask_in_turn(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    for (detail::memory_queue::place own(queue_, time_ / 2, time_);;) {
      bool const in_time = own.wait_for_turn();
      try {
        return this->ask(stream, bytes, alignment);
      } catch (out_of_memory& failure) {
        if (in_time) continue;
        timed_out_.add(1);
        failure.passed_through(line{*this, "; this one waited to the end"});
        throw;
      } catch (std::bad_alloc const&) {
        if (in_time) continue;
        timed_out_.add(1);
        throw;
      }
    }
  }

  std::chrono::microseconds time_;
  std::string name_;
  std::string label_;
  detail::memory_queue queue_;
  detail::atomic<std::uint64_t> rescued_, timed_out_;
};

}  // namespace weir
