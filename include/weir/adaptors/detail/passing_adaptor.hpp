#pragma once
// What adaptors have in common whose requests arrive below as they are: on growable memory they are growable too.

#include <weir/adaptors/detail/adaptor_base.hpp>
#include <weir/core/growable.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource.hpp>
#include <weir/core/tenants.hpp>

#include <cstddef>

namespace weir::detail {

/// The base of `Derived`, an adaptor through which a pool grows in place. All calls of `growable` go to the upstream;
/// `Derived` sees what is mapped, of which each chunk is for it what a block is otherwise, by replacing two functions:
///
/// - `map_by(p, bytes, map)`: calls `map()`, which puts memory behind [p, p + bytes), and returns what that does.
/// - `unmap_by(p, bytes, unmap)`: the same of `unmap()`, which takes it away. Throws nothing.
template <class Derived, resource Upstream>
class passing_adaptor : public adaptor_base<Derived, Upstream> {
 public:
  std::size_t chunk_bytes() const noexcept requires growable<Upstream> { return upstream_.chunk_bytes(); }
  address_range reserve_range(std::size_t most) requires growable<Upstream> { return upstream_.reserve_range(most); }
  void release_range(address_range range) noexcept requires growable<Upstream> { upstream_.release_range(range); }
  bool map(void* p, std::size_t bytes) requires growable<Upstream> {
    return derived().map_by(p, bytes, [=, this] { return upstream_.map(p, bytes); });
  }
  bool unmap(void* p, std::size_t bytes) noexcept requires growable<Upstream> {
    return derived().unmap_by(p, bytes, [=, this]() noexcept { return upstream_.unmap(p, bytes); });
  }
  bool alias(void* to, void* from, std::size_t bytes) requires growable<Upstream> {
    return derived().map_by(to, bytes, [=, this] { return upstream_.alias(to, from, bytes); });
  }
  tenants& tenancy() noexcept requires has_tenants<Upstream> { return upstream_.tenancy(); }

 protected:
  template <recipe F>
  explicit passing_adaptor(F const& upstream) : adaptor_base<Derived, Upstream>(upstream) {}
  ~passing_adaptor() = default;

  template <class Map>
  bool map_by(void*, std::size_t, Map map) {
    return map();
  }
  template <class Unmap>
  bool unmap_by(void*, std::size_t, Unmap unmap) noexcept {
    return unmap();
  }
  /// Calls `f(p)` for each chunk of [p, p + bytes).
  template <class F>
  void for_each_chunk(void* p, std::size_t bytes, F f) const {
    for (std::size_t at = 0; at < bytes; at += chunk_bytes()) f(static_cast<std::byte*>(p) + at);
  }

  using adaptor_base<Derived, Upstream>::upstream_;

 private:
  Derived& derived() noexcept { return static_cast<Derived&>(*this); }
};

}  // namespace weir::detail
