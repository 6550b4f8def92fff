#pragma once
// Handles: resources that are copied instead of referred to. Containers and bridges hold one.

#include <weir/core/recipe.hpp>
#include <weir/core/resource_ref.hpp>

#include <concepts>

namespace weir {

/// A resource that is a value: copies are the same memory and compare equal, and as a recipe it makes itself.
/// `resource_ref`, `any_resource` and `any_ref` are handles; stacks and sources, which never move, are not.
template <class R>
concept handle = resource<R> && std::copyable<R> && std::equality_comparable<R> && recipe<R> && requires(R const& r) {
  { r() } -> std::same_as<R>;
};

namespace detail {

template <class R>
struct handle_for {
  using type = resource_ref<R>;
};
template <handle R>
struct handle_for<R> {
  using type = R;
};
template <handle R>
struct handle_for<R const> {
  using type = R;
};

}  // namespace detail

/// What to hold in order to use an `R` later: itself if it is a handle, else a reference, `resource_ref<R>`.
template <resource R>
using handle_to = typename detail::handle_for<R>::type;

/// True where that is a reference.
template <class R>
concept held_by_reference = std::same_as<handle_to<R>, resource_ref<R>>;

}  // namespace weir
