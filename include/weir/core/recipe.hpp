#pragma once
// Recipes: small copyable descriptions of a stack, written source first with `|`, made in place with `make`.

#include <weir/core/resource.hpp>

#include <concepts>
#include <type_traits>

namespace weir {

/// A value that makes one resource each time it is called. Sources are recipes; `recipe | adaptor` is one.
template <class F>
concept recipe = requires(F const& f) {
  { f() } -> resource;
};

/// The type of resource that a recipe makes: for members and parameters.
template <recipe F>
using made_by = std::invoke_result_t<F const&>;

/// An adaptor's options: a value that says, in `on<Upstream>`, what stands on an upstream.
template <class A, class Upstream>
concept adaptor_over = requires {
  typename A::template on<Upstream>;
};

/// What `bottom | adaptor` writes down. Calling it builds the whole stack in place, upstream first; nothing moves.
template <recipe Bottom, class Adaptor>
struct stacked {
  Bottom bottom;
  Adaptor adaptor;

  using resource_type = typename Adaptor::template on<made_by<Bottom>>;
  resource_type operator()() const { return resource_type(bottom, adaptor); }
};

/// Puts an adaptor on top. Allocates nothing and calls nothing.
template <recipe Bottom, adaptor_over<made_by<Bottom>> Adaptor>
constexpr stacked<Bottom, Adaptor> operator|(Bottom bottom, Adaptor adaptor) {
  return {bottom, adaptor};
}

/// Builds the resource that `f` describes. Resources do not move: bind the result (`auto memory = make(...)`), or
/// initialise a member with it. Throws `std::invalid_argument` for wrong options.
template <recipe F>
[[nodiscard]] made_by<F> make(F const& f) {
  return f();
}

namespace detail {
template <template <class...> class Wanted, class T>
inline constexpr bool is_made_from = false;
template <template <class...> class Wanted, class... Args>
inline constexpr bool is_made_from<Wanted, Wanted<Args...>> = true;
}  // namespace detail

/// The outermost `Wanted` in a stack (`find<limit_resource>(memory)`); does not compile where there is none.
template <template <class...> class Wanted, class Top>
auto& find(Top& top) noexcept {
  if constexpr (detail::is_made_from<Wanted, std::remove_const_t<Top>>) {
    return top;
  } else {
    static_assert(
        requires { top.upstream(); }, "weir::find: this stack has no such layer");
    return weir::find<Wanted>(top.upstream());
  }
}

/// The same for a resource that is no template, such as a source (`find<async_resource>(memory)`).
template <class Wanted, class Top>
auto& find(Top& top) noexcept {
  if constexpr (std::same_as<Wanted, std::remove_const_t<Top>>) {
    return top;
  } else {
    static_assert(
        requires { top.upstream(); }, "weir::find: this stack has no such layer");
    return weir::find<Wanted>(top.upstream());
  }
}

}  // namespace weir
