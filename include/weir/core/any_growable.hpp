#pragma once
// A growable stack behind one type: for stacks that are made from text, on which a pool is to grow in place.

#include <weir/core/deallocate_after.hpp>
#include <weir/core/growable.hpp>
#include <weir/core/layer_ref.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/support/shared_owner.hpp>

#include <concepts>
#include <cstddef>

namespace weir::detail {

/// Owns a growable stack of device memory, one with tenants, whose type is forgotten, and is growable itself. Copies
/// share it, the last one destroys it. Thread-safe as the stack is. Costs one virtual call a request.
class any_growable {
 public:
  static constexpr bool device_accessible = true;
  static constexpr bool host_accessible = false;
  static constexpr bool host_ordered = true;

  /// Makes the stack that `f` describes, in place.
  template <recipe F>
  requires(!std::same_as<F, any_growable>) explicit any_growable(F const& f)
      : held_(shared_owner<erased>::make<model<made_by<F>>>(f)) {}

  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) const {
    return held_->allocate(stream, bytes, alignment);
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes,
                  std::size_t alignment = default_alignment) const noexcept {
    held_->deallocate(stream, p, bytes, {}, alignment);
  }
  /// See `weir::deallocate_after`.
  void deallocate_after(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                        std::size_t alignment = default_alignment) const noexcept {
    held_->deallocate(stream, p, bytes, others, alignment);
  }

  std::size_t chunk_bytes() const noexcept { return held_->chunk_bytes(); }
  address_range reserve_range(std::size_t most) const { return held_->reserve_range(most); }
  void release_range(address_range range) const noexcept { held_->release_range(range); }
  bool map(void* p, std::size_t bytes) const { return held_->map(p, bytes); }
  bool unmap(void* p, std::size_t bytes) const noexcept { return held_->unmap(p, bytes); }
  bool alias(void* to, void* from, std::size_t bytes) const { return held_->alias(to, from, bytes); }
  tenants& tenancy() const noexcept { return held_->tenancy(); }
  bool movable() const noexcept { return held_->movable(); }

  void describe(report& out) const { held_->describe(out); }
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept { return held_->taken(bytes, alignment); }
  int device() const noexcept { return held_->device(); }
  void visit_layers(layer_visitor& visitor) const { held_->visit_layers(visitor); }

  any_growable operator()() const { return *this; }

 private:
  struct erased {
    virtual void* allocate(stream_ref, std::size_t, std::size_t) = 0;
    virtual void deallocate(stream_ref, void*, std::size_t, stream_list, std::size_t) noexcept = 0;
    virtual std::size_t chunk_bytes() const noexcept = 0;
    virtual address_range reserve_range(std::size_t) = 0;
    virtual void release_range(address_range) noexcept = 0;
    virtual bool map(void*, std::size_t) = 0;
    virtual bool unmap(void*, std::size_t) noexcept = 0;
    virtual bool alias(void*, void*, std::size_t) = 0;
    virtual tenants& tenancy() noexcept = 0;
    virtual bool movable() const noexcept = 0;
    virtual void describe(report&) const = 0;
    virtual std::size_t taken(std::size_t, std::size_t) const noexcept = 0;
    virtual int device() const noexcept = 0;
    virtual void visit_layers(layer_visitor&) = 0;
  };

  template <has_tenants R>
  struct model final : erased {
    static_assert(weir::device_accessible<R> && weir::host_ordered<R>);
    template <recipe F>
    explicit model(F const& f) : held(f()) {}

    void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) override {
      return held.allocate(stream, bytes, alignment);
    }
    void deallocate(stream_ref stream, void* p, std::size_t bytes, stream_list others,
                    std::size_t alignment) noexcept override {
      weir::deallocate_after(held, stream, p, bytes, others, alignment);
    }
    std::size_t chunk_bytes() const noexcept override { return held.chunk_bytes(); }
    address_range reserve_range(std::size_t most) override { return held.reserve_range(most); }
    void release_range(address_range range) noexcept override { held.release_range(range); }
    bool map(void* p, std::size_t bytes) override { return held.map(p, bytes); }
    bool unmap(void* p, std::size_t bytes) noexcept override { return held.unmap(p, bytes); }
    bool alias(void* to, void* from, std::size_t bytes) override { return held.alias(to, from, bytes); }
    tenants& tenancy() noexcept override { return held.tenancy(); }
    bool movable() const noexcept override { return weir::chunks_may_move(held); }
    void describe(report& out) const override { weir::describe(held, out); }
    std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept override {
      return weir::taken(held, bytes, alignment);
    }
    int device() const noexcept override { return weir::device_of(held); }
    void visit_layers(layer_visitor& visitor) override { detail::show_layers(held, visitor); }

    R held;
  };

  shared_owner<erased> held_;
};

}  // namespace weir::detail
