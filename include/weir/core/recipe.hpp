#pragma once
// Recipes: small copyable descriptions of a stack, written source first with `|`, made in place with `make`.

#include <weir/core/error.hpp>
#include <weir/core/resource.hpp>

#include <concepts>
#include <cstddef>
#include <string>
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

namespace detail {
/// False, and not known to be before the template that asks is used: for functions that only say what was meant.
template <class...>
inline constexpr bool never = false;
}  // namespace detail

/// What `bottom | adaptor` writes down. Calling it builds the whole stack in place, upstream first; nothing moves.
template <recipe Bottom, class Adaptor>
struct stacked {
  Bottom bottom;
  Adaptor adaptor;

  using resource_type = typename Adaptor::template on<made_by<Bottom>>;
  /// Options that say what is wrong with them (`problem()`) are asked before anything below is made.
  resource_type operator()() const {
    if constexpr (requires { adaptor.problem(); }) detail::require_valid(adaptor);
    return resource_type(bottom, adaptor);
  }
  /// What is wrong with the options of this layer or of one below it, as far as they say; empty if nothing is.
  std::string problem() const {
    std::string wrong;
    if constexpr (requires { adaptor.problem(); }) wrong = adaptor.problem();
    if constexpr (requires { bottom.problem(); })
      if (wrong.empty()) wrong = bottom.problem();
    return wrong;
  }

  /// Not to be called: says that `make` was forgotten.
  template <class... Arguments>
  void* allocate(Arguments const&...) const {
    static_assert(detail::never<Arguments...>,
                  "weir: this is a recipe, which holds no memory; make it first: `auto memory = weir::make(recipe);`");
    return nullptr;
  }
};

/// Puts an adaptor on top. Allocates nothing and calls nothing. Found wherever one side is weir's; a source and an
/// adaptor of your own on each other need `using weir::operator|;` in the namespace of one of them.
template <recipe Bottom, adaptor_over<made_by<Bottom>> Adaptor>
constexpr stacked<Bottom, Adaptor> operator|(Bottom bottom, Adaptor adaptor) {
  return {bottom, adaptor};
}

namespace detail {
/// A resource to ask with whether something is an adaptor's options.
struct some_upstream {
  void* allocate(stream_ref, std::size_t, std::size_t);
  void deallocate(stream_ref, void*, std::size_t, std::size_t) noexcept;
};
template <class T>
concept options_or_resource = resource<T> || adaptor_over<T, some_upstream>;
template <class T>
concept recipe_or_options = recipe<T> || adaptor_over<T, some_upstream>;
template <class T>
concept recipe_only = recipe<T> && !adaptor_over<T, some_upstream>;
template <class T>
concept cannot_be_made = options_or_resource<T> && !recipe<T>;
template <class T>
concept cannot_be_shared = recipe<T> && !resource<T>;
}  // namespace detail

/// Not to be called: says what has to stand on the left of `|`. The result's type is deduced, so that it says so first.
/// Asked about nothing that stands on a recipe. A `requires { pool{} | limit{}; }` is an error where it was false.
template <class Left, class Adaptor>
requires(!recipe<Left> && detail::options_or_resource<std::remove_cvref_t<Left>> &&
         adaptor_over<Adaptor, detail::some_upstream>) auto
operator|(Left&&, Adaptor) {
  static_assert(!resource<std::remove_cvref_t<Left>>,
                "weir: the stack on the left of `|` is made already; write `weir::share(memory) | ...` to stand on it");
  static_assert(resource<std::remove_cvref_t<Left>>,
                "weir: a stack starts with a source, as in `weir::async{} | weir::pool{}`");
}

/// Not to be called: says what may stand on the right of `|`.
template <detail::recipe_or_options Left, detail::recipe_only Right>
auto operator|(Left const&, Right const&) {
  static_assert(recipe<Left>,
                "weir: the source stands first, what uses it on its right: `weir::async{} | weir::pool{}`");
  static_assert(!recipe<Left>,
                "weir: on the right of `|` stands an adaptor, such as `weir::pool{}`; this makes a stack by itself");
}

/// Builds the resource that `f` describes. Resources do not move: bind the result (`auto memory = make(...)`), or
/// initialise a member with it. Throws `std::invalid_argument` for wrong options.
template <recipe F>
[[nodiscard]] made_by<F> make(F const& f) {
  return f();
}

/// Not to be called: says what `make` is given.
template <detail::cannot_be_made T>
void make(T const&) {
  static_assert(!resource<T>, "weir: this stack is made already; `weir::share(memory)` is a recipe that stands on it");
  static_assert(resource<T>, "weir: a stack starts with a source, as in `weir::make(weir::async{} | weir::pool{})`");
}

/// Not to be called: says that `make` was forgotten.
template <detail::cannot_be_shared F>
void share(F const&) {
  static_assert(resource<F>,
                "weir: this is a recipe; make it first, and share what was made: `auto memory = weir::make(recipe);`");
}

// What has no layers yet has no answer either.
template <class F>
requires detail::cannot_be_shared<std::remove_cvref_t<F>>
int device_of(F&&) = delete;  // weir: make the recipe first: `weir::make(recipe)`
template <detail::cannot_be_shared F>
void report_of(F const&) = delete;  // weir: make the recipe first: `weir::make(recipe)`

namespace detail {
template <template <class...> class Wanted, class T>
inline constexpr bool is_made_from = false;
template <template <class...> class Wanted, class... Args>
inline constexpr bool is_made_from<Wanted, Wanted<Args...>> = true;

/// A stack that shows its layers only when the program runs: `any_ref`, `any_resource` and the like.
template <class Top>
concept of_a_forgotten_type = requires {
  &std::remove_const_t<Top>::visit_layers;
};
/// Whether there is a layer below; where there is none the compiler says what was meant.
template <class Top>
constexpr bool has_a_layer_below() {
  static_assert(!cannot_be_shared<std::remove_const_t<Top>>,
                "weir::find: this is a recipe, which has no layers yet; make it first: `auto memory = "
                "weir::make(recipe);`");
  static_assert(
      !of_a_forgotten_type<Top>,
      "weir::find: the type of this stack is forgotten: ask by name (`weir::find(memory, \"statistics\")`), or keep it "
      "typed");
  static_assert(
      of_a_forgotten_type<Top> || requires(Top & top) { top.upstream(); }, "weir::find: this stack has no such layer");
  return true;
}
}  // namespace detail

/// The outermost `Wanted` in a stack (`find<limit_resource>(memory)`); does not compile where there is none, nor where
/// the type of the stack is forgotten (`any_ref`, `any_resource`, handles to them), which is asked by name.
template <template <class...> class Wanted, class Top>
auto& find(Top& top) noexcept {
  if constexpr (detail::is_made_from<Wanted, std::remove_const_t<Top>>) {
    return top;
  } else {
    static_assert(detail::has_a_layer_below<Top>());
    return weir::find<Wanted>(top.upstream());
  }
}

/// The same for a resource that is no template, such as a source (`find<async_resource>(memory)`).
template <class Wanted, class Top>
auto& find(Top& top) noexcept {
  static_assert(resource<Wanted>,
                "weir::find: this is the name of a layer's options; its resource is wanted, as in "
                "`weir::find<weir::pool_resource>(memory)`");
  if constexpr (std::same_as<Wanted, std::remove_const_t<Top>>) {
    return top;
  } else {
    static_assert(detail::has_a_layer_below<Top>());
    return weir::find<Wanted>(top.upstream());
  }
}

}  // namespace weir
