#pragma once
// A stack as a std::pmr::memory_resource, for std::pmr containers and for what is built on them.

#include <weir/core/handle.hpp>
#include <weir/core/resource.hpp>

#include <cstddef>
#include <memory_resource>
#include <utility>

namespace weir {

/// Serves std::pmr containers from `memory`, which must outlive it; it must outlive its containers, as always with pmr.
///
///     weir::pmr_resource on_pinned(memory);
///     std::pmr::vector<int> v(&on_pinned);
///
/// Without a stream it lives in host order; with one, freed memory is reused only after the work queued there so far
/// (as in `weir::allocator`). Two of one type are equal if they have the same memory and stream, those of other types
/// are not; compiled with `-fno-rtti`, which cannot tell what the other one is, two are equal only if they are the same
/// object. As thread-safe as the stack is; throws what the stack throws, so alignments above `max_alignment` are
/// `std::invalid_argument`.
template <resource R>
class pmr_resource final : public std::pmr::memory_resource {
  static_assert(host_accessible<R>,
                "weir::pmr_resource: the host cannot reach this memory, and std::pmr containers live on the host. "
                "Use pinned, managed or host memory, or weir::device_vector for memory on the device.");

 public:
  using handle_type = handle_to<R>;

  explicit pmr_resource(R& memory, stream_ref freed_on = host_order) noexcept requires held_by_reference<R>
      : memory_(memory), freed_on_(freed_on) {}
  explicit pmr_resource(handle_type memory, stream_ref freed_on = host_order) noexcept
      : memory_(std::move(memory)), freed_on_(freed_on) {}

  pmr_resource(pmr_resource const&) = delete;  // containers hold its address
  pmr_resource& operator=(pmr_resource const&) = delete;

 private:
  // std::pmr promises a pointer for zero bytes too.
  static std::size_t at_least_one(std::size_t bytes) noexcept { return bytes == 0 ? 1 : bytes; }

  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    return memory_.allocate(host_order, at_least_one(bytes), alignment);
  }
  void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override {
    memory_.deallocate(freed_on_, p, at_least_one(bytes), alignment);
  }
  bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override {
#ifdef __cpp_rtti
    auto const* const same = dynamic_cast<pmr_resource const*>(&other);
    return same != nullptr && memory_ == same->memory_ && freed_on_ == same->freed_on_;
#else
    return this == &other;
#endif
  }

  handle_type memory_;
  stream_ref freed_on_;
};

template <resource R>
pmr_resource(R&) -> pmr_resource<R>;
template <resource R>
pmr_resource(R&, stream_ref) -> pmr_resource<R>;
// A handle is copied, so it may be a temporary.
template <handle H>
pmr_resource(H const&) -> pmr_resource<H>;
template <handle H>
pmr_resource(H const&, stream_ref) -> pmr_resource<H>;
// One from `share` gives the same type as the stack it refers to.
template <resource R>
pmr_resource(resource_ref<R>) -> pmr_resource<R>;
template <resource R>
pmr_resource(resource_ref<R>, stream_ref) -> pmr_resource<R>;

}  // namespace weir
