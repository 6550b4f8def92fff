#pragma once
// A growable stack behind one type: for stacks that are made from text, on which a pool is to grow in place.

#include <weir/core/any_resource.hpp>
#include <weir/core/growable.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/tenants.hpp>

#include <concepts>
#include <cstddef>

namespace weir::detail {

/// An `any_resource` whose stack is growable, with tenants, and that is so itself. What it adds costs a call through a
/// pointer.
class any_growable : public any_resource {
 public:
  /// Makes the stack that `f` describes, in place.
  template <recipe F>
  requires(!std::same_as<F, any_growable>) explicit any_growable(F const& f)
      : any_resource(f), stack_(&this->template stack<made_by<F>>()), calls_(&calls_of<made_by<F>>) {}
  any_growable(any_growable const&) = default;  // no moves: each has a stack
  any_growable& operator=(any_growable const&) = default;

  std::size_t chunk_bytes() const noexcept { return calls_->chunk_bytes(stack_); }
  address_range reserve_range(std::size_t most) const { return calls_->reserve_range(stack_, most); }
  void release_range(address_range range) const noexcept { calls_->release_range(stack_, range); }
  bool map(void* p, std::size_t bytes) const { return calls_->map(stack_, p, bytes); }
  bool unmap(void* p, std::size_t bytes) const noexcept { return calls_->unmap(stack_, p, bytes); }
  bool alias(void* to, void* from, std::size_t bytes) const { return calls_->alias(stack_, to, from, bytes); }
  tenants& tenancy() const noexcept { return calls_->tenancy(stack_); }
  bool movable() const noexcept { return calls_->movable(stack_); }

  any_growable operator()() const { return *this; }

 private:
  struct growable_calls {
    std::size_t (*chunk_bytes)(void*) noexcept;
    address_range (*reserve_range)(void*, std::size_t);
    void (*release_range)(void*, address_range) noexcept;
    bool (*map)(void*, void*, std::size_t);
    bool (*unmap)(void*, void*, std::size_t) noexcept;
    bool (*alias)(void*, void*, void*, std::size_t);
    tenants& (*tenancy)(void*) noexcept;
    bool (*movable)(void*) noexcept;
  };
  template <has_tenants R>
  static constexpr growable_calls calls_of = {
      [](void* r) noexcept { return static_cast<R*>(r)->chunk_bytes(); },
      [](void* r, std::size_t most) { return static_cast<R*>(r)->reserve_range(most); },
      [](void* r, address_range range) noexcept { static_cast<R*>(r)->release_range(range); },
      [](void* r, void* p, std::size_t bytes) { return static_cast<R*>(r)->map(p, bytes); },
      [](void* r, void* p, std::size_t bytes) noexcept { return static_cast<R*>(r)->unmap(p, bytes); },
      [](void* r, void* to, void* from, std::size_t bytes) { return static_cast<R*>(r)->alias(to, from, bytes); },
      [](void* r) noexcept -> tenants& { return static_cast<R*>(r)->tenancy(); },
      [](void* r) noexcept { return weir::chunks_may_move(*static_cast<R*>(r)); },
  };

  void* stack_;
  growable_calls const* calls_;
};

}  // namespace weir::detail
