#pragma once
// Records the latest allocations and frees in a ring, for a file or a page that shows them.

#include <weir/adaptors/detail/call_stacks.hpp>
#include <weir/adaptors/detail/latest_reports.hpp>
#include <weir/adaptors/detail/passing_adaptor.hpp>
#include <weir/adaptors/detail/trace_ring.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/error.hpp>
#include <weir/core/options.hpp>
#include <weir/core/printable.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/core/shown_events.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

namespace weir {

template <resource Upstream>
class trace_resource;

/// Records the latest events: time, address, bytes, stream, tag and thread of each allocation, free and refusal that
/// passes, and the reports of the latest refusals. `weir::trace_of(stack)` reads them out. On a pool it sees what the
/// program asks for; between a pool and its source, what the pool takes and gives back. When not to use it: for all
/// that a long program does, `logging` writes files; for what is live now, `tracking` knows it however old it is.
struct trace {
  std::size_t events = 65536;  ///< how many are kept, the latest; 56 bytes of host memory for each
  /// How many calls of its call stack are kept with each allocation, the innermost first; 0: none. Costs microseconds a
  /// request, where the rest costs nanoseconds.
  std::size_t frames = 0;
  std::string name = {};  ///< whose events they are, for reports and files: `search` makes it `search: trace`
  /// False: each event is in its place in the order, and its time is early by less than a tick of the kernel's timer,
  /// mostly 4 ms; the first after a longer pause is exact. True: all times are, to some hundred nanoseconds. For traces
  /// of several stacks that are merged by time, or where events are timed. Costs up to 15 ns an event more.
  bool exact_times = false;

  template <resource Upstream>
  using on = trace_resource<Upstream>;

  static constexpr char const* layer_name = "trace";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(option::count("events", "events", &trace::events).first().at_least(1).at_most(std::size_t{1} << 28));
    f(option::count("frames", "frames", &trace::frames).at_most(detail::call_stacks::most_frames));
    f(option::text("name", "name", &trace::name));
    f(option::flag("exact_times", "exact_times", &trace::exact_times));
  }

  /// Empty if these options are valid, else what is wrong with them.
  std::string problem() const { return option::first_problem(*this); }
  bool valid() const { return problem().empty(); }
};

/// What `trace` stands as on an upstream. All functions may be called from any thread. Events of one pointer are in the
/// order of its life: an allocation is recorded after the upstream gave it, a free before the upstream has it back. A
/// free that is wrong, which the layer below reports and ignores, is recorded as any other: whether it was is not
/// asked, since every right one would pay for that. On a growable upstream it is growable too, so that a pool on it
/// grows in place.
template <resource Upstream>
class trace_resource : public detail::passing_adaptor<trace_resource<Upstream>, Upstream> {
  using base = detail::passing_adaptor<trace_resource, Upstream>;

 public:
  static constexpr char const* layer_name = trace::layer_name;

  /// Throws `std::invalid_argument` for wrong options, `std::bad_alloc` if there is no host memory for the ring.
  template <recipe F>
  trace_resource(F const& upstream, trace const& options)
      : base(upstream),
        name_(detail::require_valid(options).name),
        has_stacks_(options.frames != 0),
        stacks_(options.frames),
        ring_(options.events, options.exact_times) {}

  /// Throws what the upstream throws, and with `frames` `std::bad_alloc`.
  [[gnu::always_inline]] void* allocate(stream_ref stream, std::size_t bytes,
                                        std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    if (has_stacks_) [[unlikely]]
      return allocate_with_stack(stream, bytes, alignment, stacks_.here());
    return ask_and_record(stream, bytes, alignment, 0);
  }
  [[gnu::always_inline]] void deallocate(stream_ref stream, void* p, std::size_t bytes,
                                         std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr) return;
    ring_.add(trace_action::free, p, bytes, stream, 0);
    share(upstream_).deallocate(stream, p, bytes, alignment);
  }
  /// See `weir::deallocate_after`. The event names `stream` alone.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr) return;
    ring_.add(trace_action::free, p, bytes, stream, 0);
    weir::deallocate_after(upstream_, stream, p, bytes, others, alignment);
  }

  /// Forgets all events so far, so that the next reader begins here.
  void clear() noexcept { ring_.clear(); }
  /// How many events there were, those that are forgotten included.
  std::uint64_t count() const noexcept { return ring_.count(); }
  /// Whose events they are; empty: nobody said.
  std::string const& name() const noexcept { return name_; }

  /// Records what a layer above did by itself (`detail::note_event`).
  bool note_event(trace_action action, void const* p, std::size_t bytes, stream_ref stream) noexcept {
    ring_.add(action, p, bytes, stream, 0);
    return true;
  }

  /// For `weir::trace_of`: the events, then the frames of all call stacks and the reports that are kept. Requests go on
  /// meanwhile.
  void show_events(detail::event_visitor& visitor) const {
    ring_.show(visitor);
    for (detail::call_stack_id id = 1; id <= stacks_.count(); ++id)
      for (std::string const& line : stacks_.lines_of(id)) visitor.see_frame(id, line.c_str());
    reports_.show(visitor);
  }

  void describe_layer(report& out) const {
    std::uint64_t const seen = count();
    out.below(
        name_.empty() ? "trace" : printable(name_) + ": trace",
        std::to_string(seen) + " events" +
            (seen <= ring_.capacity() ? std::string()
                                      : ", of which the latest " + std::to_string(ring_.capacity()) + " are kept"));
  }

 private:
  using base::upstream_;
  friend base;

  template <class Map>
  bool map_by(void* p, std::size_t bytes, Map map) {
    bool const mapped = map();
    ring_.add(mapped ? trace_action::map : trace_action::out_of_memory, mapped ? p : nullptr, bytes, host_order, 0);
    return mapped;
  }
  template <class Unmap>
  bool unmap_by(void* p, std::size_t bytes, Unmap unmap) noexcept {
    ring_.add(trace_action::unmap, p, bytes, host_order, 0);
    bool const unmapped = unmap();
    if (!unmapped) ring_.add(trace_action::map, p, bytes, host_order, 0);
    return unmapped;
  }

  // Out of line: so that the others have no number of a call stack to keep over the call.
  [[gnu::noinline]] void* allocate_with_stack(stream_ref stream, std::size_t bytes, std::size_t alignment,
                                              detail::call_stack_id stack) {
    return ask_and_record(stream, bytes, alignment, stack);
  }
  /// Only what is out of memory is called that. Its report is kept with this layer's own line.
  [[gnu::always_inline]] void* ask_and_record(stream_ref stream, std::size_t bytes, std::size_t alignment,
                                              detail::call_stack_id stack) try {
    void* const p = this->ask(stream, bytes, alignment);
    ring_.add(trace_action::allocate, p, bytes, stream, stack);
    return p;
  } catch (out_of_memory& failure) {
    std::uint32_t const number = reports_.begin();
    record_refusal(stream, bytes, stack, number);
    failure.passed_through(*this);
    reports_.keep(number, failure.what());
    throw;
  } catch (std::bad_alloc const&) {
    record_refusal(stream, bytes, stack, 0);
    throw;
  }
  [[gnu::noinline, gnu::cold]] void record_refusal(stream_ref stream, std::size_t bytes, detail::call_stack_id stack,
                                                   std::uint32_t report) noexcept {
    ring_.add(trace_action::out_of_memory, nullptr, bytes, stream, stack, report);
  }

  std::string name_;
  bool has_stacks_;
  detail::call_stacks stacks_;
  detail::trace_ring ring_;
  detail::latest_reports reports_;
};

}  // namespace weir
