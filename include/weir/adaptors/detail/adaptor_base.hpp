#pragma once
// What all adaptors have in common: the upstream, built in place, and what they pass on of it and to it.

#include <weir/core/call_note.hpp>
#include <weir/core/deallocate_after.hpp>
#include <weir/core/error.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/core/resource_ref.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace weir::detail {

/// The base of `Derived`, an adaptor on an `Upstream`. `Derived` has `describe_layer(report&) const`. An adaptor that
/// serves requests from memory of its own states other facts and answers the questions itself.
template <class Derived, resource Upstream>
class adaptor_base {
 public:
  static constexpr bool device_accessible = weir::device_accessible<Upstream>;
  static constexpr bool host_accessible = weir::host_accessible<Upstream>;
  static constexpr bool host_ordered = weir::host_ordered<Upstream>;
  static constexpr bool knows_blocks = weir::knows_blocks<Upstream>;

  adaptor_base(adaptor_base const&) = delete;  // weir: neither copied nor moved; pass weir::share(memory)
  adaptor_base& operator=(adaptor_base const&) = delete;

  Upstream& upstream() noexcept { return upstream_; }
  Upstream const& upstream() const noexcept { return upstream_; }

  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept {
    return weir::taken(upstream_, bytes, alignment);
  }
  bool holds_captured(std::uint64_t capture) const noexcept { return weir::holds_captured(upstream_, capture); }

  void describe(report& out) const {
    static_cast<Derived const&>(*this).describe_layer(out);
    weir::describe(upstream_, out);
  }

 protected:
  template <recipe F>
  explicit adaptor_base(F const& upstream) : upstream_(upstream()) {}
  ~adaptor_base() = default;

  /// Asks the upstream for more than zero bytes. One that returns null is out of memory.
  [[gnu::always_inline]] void* ask(stream_ref stream, std::size_t bytes, std::size_t alignment) {
    void* const p = share(upstream_).allocate(stream, bytes, alignment);
    if (p == nullptr) [[unlikely]]
      refuse_null({bytes, taken(bytes, alignment), stream, weir::device_of(upstream_)});
    return p;
  }

  /// The same. If it throws, `failed()` is called first, and an `out_of_memory` takes this layer's line along.
  template <class Failed>
  [[gnu::always_inline]] void* pass(stream_ref stream, std::size_t bytes, std::size_t alignment, Failed failed) try {
    return ask(stream, bytes, alignment);
  } catch (out_of_memory& failure) {
    failed();
    failure.passed_through(static_cast<Derived const&>(*this));
    throw;
  } catch (...) {
    failed();
    throw;
  }

  /// The upstream returned null for more than zero bytes.
  [[noreturn, gnu::noinline, gnu::cold]] void refuse_null(memory_request const& request) const {
    report own = report_of(upstream_);
    own.hint(hint_for(request.bytes, own,
                      "the resource below says only that it has no more: free something, or ask for less"));
    throw out_of_memory(request, "a resource that returned null", own);
  }

  /// Refuses a request in the name of this layer: `own` has its line, those below add theirs. `hint`: what to do, where
  /// the size of the request leaves that open.
  [[noreturn, gnu::noinline, gnu::cold]] void refuse(memory_request const& request, std::string const& name, report own,
                                                     std::string const& hint) const {
    weir::describe(upstream_, own);
    own.hint(hint_for(request.bytes, own, hint));
    throw out_of_memory({request.bytes, request.rounded, request.stream, weir::device_of(upstream_)}, name, own);
  }

  /// Gives a block back to the upstream, after the work of `others` too if that is not null.
  [[gnu::always_inline]] void give(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment,
                                   stream_list const* others) noexcept {
    if (others == nullptr)
      share(upstream_).deallocate(stream, p, bytes, alignment);
    else
      weir::deallocate_after(upstream_, stream, p, bytes, *others, alignment);
  }

  /// A free of more than this layer has counted: for a `Derived` that keeps accounts and has `label_` and `counted()`.
  /// A layer below that knows its blocks can say what is wrong, or this memory passed this layer by. Without such a
  /// layer it is reported here, and the memory kept.
  [[gnu::noinline, gnu::cold]] void deallocate_excess(stream_ref stream, void* p, std::size_t bytes,
                                                      std::size_t alignment, stream_list const* others) noexcept {
    std::uintptr_t const volatile address = reinterpret_cast<std::uintptr_t>(p);  // volatile: taken before p is gone
    if constexpr (weir::knows_blocks<Upstream>) {
      last_call.clear();
      give(stream, p, bytes, alignment, others);
      if (last_call.what == call_note::misuse) return;
    }
    report_excess(address, bytes, alignment);
  }
  [[gnu::noinline, gnu::cold]] void report_excess(std::uintptr_t address, std::size_t bytes,
                                                  std::size_t alignment) const noexcept {
    auto const& layer = static_cast<Derived const&>(*this);
    report_misuse("weir: " + layer.label_ + ": deallocate of " + hex(address) + ": " + std::to_string(bytes) +
                  " B aligned to " + std::to_string(alignment) + " were given back " + layer.counted() +
                  "; a size, an alignment or a pointer is wrong, or it was freed twice");
  }

  Upstream upstream_;
};

}  // namespace weir::detail
