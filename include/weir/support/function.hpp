#pragma once
// A callable whose type is forgotten: the part of `std::function` that weir needs, without its header.

#include <weir/support/shared_owner.hpp>

#include <concepts>
#include <type_traits>
#include <utility>

namespace weir::detail {

template <class Signature>
class function;

/// Calls what it was made from; copies share that, and the last one destroys it. Where it returns nothing, what that
/// returns is dropped. Empty when made by default, from a null pointer or from an empty `std::function`: not to be
/// called then. As thread-safe as what it was made from.
/// `<functional>` would be a tenth of what `weir/weir.hpp` takes to compile.
template <class Result, class... Arguments>
class function<Result(Arguments...)> {
  template <class F>
  static constexpr bool gives_result = requires(F& f, Arguments... a) {
    { f(a...) } -> std::convertible_to<Result>;
  }
  || (std::same_as<Result, void> && requires(F & f, Arguments... a) { f(a...); });

 public:
  function() noexcept = default;
  template <class F>
  requires(!std::same_as<F, function> && gives_result<F>) function(F f) {
    if (!is_empty(f)) held_ = shared_owner<callable>::template make<calling<F>>(std::move(f));
  }

  explicit operator bool() const noexcept { return held_.get() != nullptr; }
  Result operator()(Arguments... arguments) const { return held_->call(arguments...); }

 private:
  /// A lambda can be compared to null as well, and never is.
  template <class F>
  static bool is_empty(F const& f) {
    if constexpr (std::is_pointer_v<F> || requires { f.operator bool(); })
      return !f;
    else
      return false;
  }

  struct callable {
    virtual Result call(Arguments... arguments) = 0;

   protected:
    ~callable() = default;
  };
  template <class F>
  struct calling final : callable {
    explicit calling(F made) : f(std::move(made)) {}
    Result call(Arguments... arguments) override { return static_cast<Result>(f(arguments...)); }
    F f;
  };

  shared_owner<callable> held_;
};

}  // namespace weir::detail
