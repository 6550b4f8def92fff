#pragma once
// Memory that is made room in: what nobody uses just now goes to the host before a request is refused.

#include <weir/adaptors/detail/adaptor_base.hpp>
#include <weir/adaptors/detail/spiller.hpp>
#include <weir/core/any_ref.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/error.hpp>
#include <weir/core/numbers.hpp>
#include <weir/core/options.hpp>
#include <weir/core/printable.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>

#include <cstddef>
#include <new>
#include <string>
#include <type_traits>

namespace weir {

template <resource Upstream>
class spill_resource;

/// Before a request is refused, moves the contents of `spillable` handles that are not pinned to the host, oldest use
/// first, until the request fits. Plain allocations never move.
///
///     auto memory = weir::make(weir::device{} | weir::pool{.max_bytes = 8_GiB} | weir::spill{.to =
///     weir::share(pinned)});
///
/// When not to use it: where the handles that are in use at one time exceed the memory, since each pin then waits for
/// copies over the bus; or for data that is quicker to compute again than to copy.
struct spill {
  /// Where the contents go: a stack whose memory the host can reach, or a handle to one; it must outlive this one. A
  /// pool of pinned memory; others work, but let the host wait for copies.
  any_host_ref to;
  std::string name = {};  ///< whose handles they are, for reports: `search` makes it `search: spill`

  template <resource Upstream>
  using on = spill_resource<Upstream>;

  static constexpr char const* layer_name = "spill";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(option::text("name", "name", &spill::name));
  }

  std::string problem() const { return option::first_problem(*this); }
  bool valid() const { return problem().empty(); }
};

/// What `spill` stands as on an upstream. All functions may be called from any thread.
///
/// A request passes to the upstream. If that is out of memory, idle handles are spilled until they make the bytes of
/// the request together, and the upstream is asked again; so on until it serves, or no idle handle is left. The host
/// does not wait for the copies: a stream of this layer's own waits for the last use of each handle, copies it, and
/// gives the memory back in its order; an upstream in stream order, such as `pool`, lets the requester's stream wait.
/// A request of a stream that is being captured spills nothing, nor does what a pool above takes for one: a graph
/// cannot wait for the copies.
template <resource Upstream>
class spill_resource : public detail::adaptor_base<spill_resource<Upstream>, Upstream> {
  using base = detail::adaptor_base<spill_resource, Upstream>;

 public:
  static constexpr char const* layer_name = spill::layer_name;

  template <recipe F>
  spill_resource(F const& upstream, spill const& options)
      : base(upstream),
        name_(detail::require_valid(options).name),
        label_(options.name.empty() ? "spill" : printable(options.name) + ": spill"),
        spiller_(*this, options.to, detail::device_for(upstream_)) {}

  /// Throws the `out_of_memory` of the upstream once no idle handle is left that the host takes, and whatever
  /// else the upstream throws. A plain `std::bad_alloc`, of a resource of the program's own or of the host's memory, is
  /// a refusal, too. What CUDA refuses to copy is not spilled, and nothing for a step by which a pool above would grow
  /// and which it can do without.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    for (detail::spiller::progress seen;;) try {
        return this->ask(stream, bytes, alignment);
      } catch (out_of_memory& failure) {
        if (make_room(stream, bytes, alignment, seen)) continue;
        failure.passed_through(*this);
        throw;
      } catch (std::bad_alloc const&) {  // of a resource of the program's own, or of the host's memory
        if (!make_room(stream, bytes, alignment, seen)) throw;
      }
  }

  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    if (p != nullptr) share(upstream_).deallocate(stream, p, bytes, alignment);
  }
  /// See `weir::deallocate_after`.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) noexcept {
    weir::deallocate_after(upstream_, stream, p, bytes, others, alignment);
  }

  /// All numbers at one moment. Cheap: a lock and a copy.
  spill_numbers numbers() const noexcept { return spiller_.numbers(); }
  /// Whose handles they are; empty: nobody said.
  std::string const& name() const noexcept { return name_; }

  void describe_layer(report& out) const {
    spill_numbers const n = numbers();
    out.below(label_, std::to_string(n.handles) + " handles: " + format_bytes(n.device_bytes) + " on the device, " +
                          format_bytes(n.pinned_bytes) + " of it pinned by " + std::to_string(n.pinned) + " handles; " +
                          format_bytes(n.host_bytes) + " spilled; " + std::to_string(n.spills) + " spills, " +
                          std::to_string(n.not_spilled) + " that the host or CUDA refused, " +
                          std::to_string(n.returns) + " returns, " + format_bytes(n.moved_bytes) + " moved");
  }

 private:
  using base::upstream_;
  template <class T>
  friend class spillable;

  /// Spills what makes room for a request; false where nothing more can.
  bool make_room(stream_ref stream, std::size_t bytes, std::size_t alignment, detail::spiller::progress& seen) {
    bool const is_needed = !detail::can_do_with_less::is_set();
    bool const may_fit = is_needed && this->taken(bytes, alignment) != 0 && !is_parked_below();
    return may_fit && spiller_.make_room(stream, bytes, seen);
  }

  /// Whether a pool below has no memory behind its addresses just now (`park`): from there nothing can be copied.
  bool is_parked_below() const {
    bool parked = false;
    detail::for_each_layer_and_part(upstream_, [&](auto& layer, unsigned) {
      parked = parked || detail::numbers_of_layer(layer).parked.has_value();
    });
    return parked;
  }

  std::string name_;
  std::string label_;
  detail::spiller spiller_;
};

}  // namespace weir
