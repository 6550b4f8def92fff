#pragma once
// What a pool asks of the others that have their chunks from the same upstream.

#include <weir/core/growable.hpp>
#include <weir/core/limit_ref.hpp>
#include <weir/core/tenants.hpp>
#include <weir/pool/limits_between.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// One of several pools on a growable upstream, as `tenants` knows it. On an upstream that is nobody else's there is
/// nothing to ask. All but `set_tenant` is called without the pool's lock where it may ask others; those take theirs.
template <growable Upstream>
class chunk_sharing {
 public:
  explicit chunk_sharing(Upstream& upstream) noexcept : upstream_(upstream) {}
  /// Who asks.
  void set_tenant(tenant* me) noexcept { me_ = me; }

  /// True if more than one pool uses the upstream. Also with the pool's lock held, as the next two.
  bool is_shared() const noexcept {
    tenants const* const all = tenancy();
    return all != nullptr && all->is_shared();
  }
  /// How often some pool has given memory back.
  std::uint64_t given() const noexcept {
    tenants const* const all = tenancy();
    return all == nullptr ? 0 : all->given();
  }
  /// While it lives, the pool gives idle memory back.
  tenants::giving giving() noexcept { return tenants::giving(tenancy()); }

  /// See `tenants::gave_since`.
  bool gave_since(std::uint64_t seen, bool may_wait) const noexcept { return tenancy()->gave_since(seen, may_wait); }
  /// What all hold, and the most of it that was live; see `tenants::joint`. Only where it is shared.
  tenant_usage joint(std::size_t own_peak, std::size_t more) noexcept { return tenancy()->joint(own_peak, more); }

  /// Lets others give back what they do not use, `bytes` in all, or what is lacking if that is more; nobody where a
  /// limit has no room for `missing` anyway.
  void reclaim(std::size_t bytes, std::size_t missing) noexcept {
    if (!is_shared() || most_short(upstream_, missing) != 0) return;
    std::size_t const wanted = greater(bytes, tenancy()->lacking(*me_));
    if (wanted != 0) tenancy()->reclaim(*me_, wanted);
  }
  /// Lets others under the same limits give back what these lack to map `missing`. Returns how many bytes that was.
  std::size_t relieve_limits(std::size_t missing) noexcept {
    std::size_t got = 0;
    bool is_refused = false;  // by one that stays short, whatever others give further down
    if (tenancy() == nullptr) return 0;
    for_each_short_limit(upstream_, missing, [&](limit_ref const& limit, std::size_t by) {
      std::size_t const gave = is_refused ? 0 : tenancy()->reclaim(*me_, by, &limit);
      is_refused = gave < by;
      got += gave;
    });
    return got;
  }
  /// See `tenants::claim`; with the pool's lock held.
  tenants::claim claim(std::size_t own = 0) noexcept { return tenants::claim(me_, own); }
  /// Calls `map()`, unless the `fresh` bytes that it takes are promised to others; see `tenants::take`.
  template <class F>
  bool take(tenants::claim& of, std::size_t fresh, F map) {
    tenants* const all = tenancy();
    return all == nullptr ? map() : all->take(*me_, of, fresh, map);
  }

 private:
  tenants* tenancy() const noexcept {
    if constexpr (has_tenants<Upstream>)
      return &upstream_.tenancy();
    else
      return nullptr;
  }

  Upstream& upstream_;
  tenant* me_ = nullptr;
};

}  // namespace weir::detail
