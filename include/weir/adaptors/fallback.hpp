#pragma once
// A second stack that serves what the first one refuses.

#include <weir/adaptors/detail/adaptor_base.hpp>
#include <weir/adaptors/detail/live_sizes.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/error.hpp>
#include <weir/core/layer_ref.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/options.hpp>
#include <weir/core/printable.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/cuda/device.hpp>
#include <weir/support/atomic.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>

namespace weir {

template <resource Upstream, resource Second>
class fallback_resource;

/// What the upstream refuses is served by a second stack: device memory first, then managed or pinned.
///
///     auto memory = weir::make(weir::device{} | weir::pool{} | weir::fallback{weir::managed{} | weir::pool{}});
///
/// The second is a recipe, which may be a handle to a stack that others use too (`weir::share(other)`). The memory can
/// be reached by whom both can be reached by; where that is nobody, it does not compile.
/// It is never growable, since chunks of one stack cannot be mapped where the other's are: a pool on it takes segments.
/// Put it on the pool that is to grow in place.
/// When not to use it: where slow memory is worse than a refusal; kernels that read it cross the bus.
template <recipe Second>
struct fallback {
  Second second;          ///< how to make what serves then
  std::string name = {};  ///< whose it is, for reports: `search` makes it `search: fallback`

  template <resource Upstream>
  using on = fallback_resource<Upstream, made_by<Second>>;

  static constexpr char const* layer_name = "fallback";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(option::text("name", "name", &fallback::name));
  }

  /// Empty if these options are valid, and those of the second stack, else what is wrong with them.
  std::string problem() const {
    std::string wrong;
    if constexpr (requires { second.problem(); }) wrong = second.problem();
    return wrong.empty() ? option::first_problem(*this) : "fallback: the second: " + wrong;
  }
  bool valid() const { return problem().empty(); }
};
template <recipe Second>
fallback(Second) -> fallback<Second>;
template <recipe Second>
fallback(Second, std::string) -> fallback<Second>;

/// What went where. Bytes as they were asked for.
struct fallback_numbers {
  std::uint64_t first_requests = 0, first_bytes = 0;    ///< that the upstream served, ever
  std::uint64_t second_requests = 0, second_bytes = 0;  ///< that the second stack served, ever
  std::size_t second_live = 0, second_live_bytes = 0;   ///< of those, what is live
  std::uint64_t refused = 0;                            ///< requests that both refused
};

/// What `fallback` stands as on an upstream. All functions may be called from any thread.
///
/// It remembers the blocks of the second stack alone, by their addresses. While that has none, a free costs a load more
/// than without this layer; else a lookup in constant time.
template <resource Upstream, resource Second>
class fallback_resource : public detail::adaptor_base<fallback_resource<Upstream, Second>, Upstream> {
  using base = detail::adaptor_base<fallback_resource, Upstream>;

  template <class R>
  static constexpr bool says_its_kind = weir::device_accessible<R> || weir::host_accessible<R>;

 public:
  static constexpr char const* layer_name = "fallback";
  static constexpr bool device_accessible = weir::device_accessible<Upstream> && weir::device_accessible<Second>;
  static constexpr bool host_accessible = weir::host_accessible<Upstream> && weir::host_accessible<Second>;
  static constexpr bool host_ordered = true;
  static constexpr bool passes_requests_on = true;  // `trim_layer` is the second stack's
  static constexpr bool knows_blocks = weir::knows_blocks<Upstream> && weir::knows_blocks<Second>;

  static_assert(
      device_accessible || host_accessible || !says_its_kind<Upstream> || !says_its_kind<Second>,
      "weir: fallback: one stack's memory is for the device only, the other's for the host only: nobody could "
      "use what this gives. Use managed or pinned memory for the second.");

  /// Makes the second stack, and throws what that throws; `std::invalid_argument` if the two are for different devices.
  template <recipe F, recipe S>
  fallback_resource(F const& upstream, fallback<S> const& options)
      : base(upstream),
        second_(make_for(device_of(upstream_), options)),
        name_(options.name),
        label_(options.name.empty() ? "fallback" : printable(options.name) + ": fallback") {
    int const device = device_of(upstream_), other = device_of(second_);
    if (device >= 0 && other >= 0 && device != other)
      throw std::invalid_argument("weir: fallback: the first stack is for device " + std::to_string(device) +
                                  ", the second for device " + std::to_string(other) +
                                  "; make both for one device, by the option `device` of their sources");
  }

  /// Throws the `out_of_memory` of the upstream if the second stack refuses too, with the lines of both; and whatever
  /// else one of them throws. A plain `std::bad_alloc`, of a resource of the program's own or of the host's memory, is
  /// a refusal, too.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    try {
      void* const p = this->ask(stream, bytes, alignment);
      first_requests_.add(1);
      first_bytes_.add(bytes);
      return p;
    } catch (out_of_memory& failure) {
      refusal by_both{*this, {}};
      if (void* const p = ask_second(stream, bytes, alignment, by_both)) return p;
      refused_.add(1);
      failure.passed_through(by_both);
      throw;
    } catch (std::bad_alloc const&) {  // of a resource of the program's own, or of the host's memory
      refusal not_told{*this, {}};
      if (void* const p = ask_second(stream, bytes, alignment, not_told)) return p;
      refused_.add(1);
      throw;
    }
  }

  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr) return;
    if (std::size_t const had = seconds_.size() == 0 ? 0 : take_second(p); had != 0) [[unlikely]]
      return take_back_second(p, had, [&] { share(second_).deallocate(stream, p, bytes, alignment); });
    share(upstream_).deallocate(stream, p, bytes, alignment);
  }
  /// See `weir::deallocate_after`.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr) return;
    if (std::size_t const had = seconds_.size() == 0 ? 0 : take_second(p); had != 0) [[unlikely]]
      return take_back_second(p, had, [&] { weir::deallocate_after(second_, stream, p, bytes, others, alignment); });
    weir::deallocate_after(upstream_, stream, p, bytes, others, alignment);
  }

  /// See `weir::find_block`. What the second stack does not know is the upstream's.
  live_block find_block(void const* p) noexcept { return detail::find_block(second_, p, layer_visitor::extent::all); }

  /// The second stack.
  Second& second() noexcept { return second_; }
  Second const& second() const noexcept { return second_; }
  /// Seven loads.
  fallback_numbers numbers() const noexcept {
    return {first_requests_.load(), first_bytes_.load(),       second_requests_.load(), second_bytes_.load(),
            seconds_.size(),        second_live_bytes_.load(), refused_.load()};
  }
  /// Whose it is; empty: nobody said.
  std::string const& name() const noexcept { return name_; }

  // ---- what a stack is asked: the upstream is asked by itself, the second stack here

  /// The larger of what the two take: the same for each block, whosever it is.
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept {
    std::size_t const first = weir::taken(upstream_, bytes, alignment), other = weir::taken(second_, bytes, alignment);
    return first > other ? first : other;
  }
  bool holds_captured(std::uint64_t capture) const noexcept {
    return weir::holds_captured(upstream_, capture) || weir::holds_captured(second_, capture);
  }
  /// Lets the second stack give back what is idle, as `weir::trim`.
  std::size_t trim_layer(std::size_t keep = 0) noexcept { return weir::trim(second_, keep); }
  void synchronize() noexcept { weir::synchronize(second_); }
  std::size_t release_captured(std::uint64_t capture = 0) noexcept { return weir::release_captured(second_, capture); }
  /// Shows the layers of the second stack, outermost first.
  void visit_parts(layer_visitor& visitor) const {
    visitor.begin_part();
    auto const show_one = [&](auto& layer) {
      layer_ref shown = detail::ref_to(layer);
      visitor.see(shown);
    };
    detail::for_each_layer(second_, show_one);
  }

  /// Its own line, then those of the second stack.
  void describe_layer(report& out) const {
    report const other = report_of(second_);
    fallback_numbers const n = numbers();
    out.below(label_ + "(" + other.chain() + ")",
              "the first served " + std::to_string(n.first_requests) + " requests of " + format_bytes(n.first_bytes) +
                  ", the second " + std::to_string(n.second_requests) + " of " + format_bytes(n.second_bytes) + ", " +
                  std::to_string(n.second_live) + " of them live with " + format_bytes(n.second_live_bytes) + "; " +
                  std::to_string(n.refused) + " refused by both; the second:");
    out.beside(other);
  }

 private:
  using base::upstream_;

  /// This layer's lines for a request that both refused.
  struct refusal {
    fallback_resource const& layer;
    std::string by;
    void describe_layer(report& out) const {
      layer.describe_layer(out);
      out.note("the second", "refused too: " + by + "; the first:");
    }
  };

  /// With the first stack's device current: a pool on memory that is of no device works with that one's default
  /// streams.
  template <class Options>
  static Second make_for(int device, Options const& options) {
    detail::device_switch const on_device(device);
    return options.second();
  }

  /// Null if the second stack is out of memory, too; `why` then knows by which layer.
  [[gnu::noinline, gnu::cold]] void* ask_second(stream_ref stream, std::size_t bytes, std::size_t alignment,
                                                refusal& why) {
    seconds_.take_place();
    void* p = nullptr;
    try {
      p = share(second_).allocate(stream, bytes, alignment);
      why.by = "it returned null";
    } catch (out_of_memory const& failure) {
      why.by = failure.refused_by();
    } catch (std::bad_alloc const&) {
      why.by = "std::bad_alloc";
    } catch (...) {
      seconds_.leave_place();
      throw;
    }
    if (p == nullptr) {
      seconds_.leave_place();
      return nullptr;
    }
    seconds_.insert(reinterpret_cast<std::uintptr_t>(p), bytes);
    second_requests_.add(1);
    second_bytes_.add(bytes);
    second_live_bytes_.add(bytes);
    return p;
  }

  /// How many bytes a block of the second stack was asked for with; 0 if it is none.
  std::size_t take_second(void* p) noexcept { return seconds_.remove(reinterpret_cast<std::uintptr_t>(p)); }
  /// The block is out of the table before the memory is back, since the address may be another block's at once; and in
  /// it again if that was misuse and the memory was kept.
  template <class Give>
  [[gnu::noinline]] void take_back_second(void* p, std::size_t had, Give give) noexcept {
    std::uintptr_t const volatile address = reinterpret_cast<std::uintptr_t>(p);  // volatile: taken before p is gone
    detail::last_call.clear();
    give();
    if (detail::last_call.what == detail::call_note::misuse) return seconds_.insert(address, had);
    seconds_.leave_place();
    second_live_bytes_.subtract(had);
  }

  Second second_;
  std::string name_;
  std::string label_;
  detail::live_sizes seconds_;
  detail::atomic<std::uint64_t> first_requests_, first_bytes_, second_requests_, second_bytes_, refused_;
  detail::atomic<std::size_t> second_live_bytes_;
};

}  // namespace weir
