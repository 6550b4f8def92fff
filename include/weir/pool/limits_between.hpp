#pragma once
// The limits between a pool that grows in place and its source: which of them let no more through.

#include <weir/core/layer_ref.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/limit_ref.hpp>
#include <weir/pool/heap/size_class.hpp>

#include <cstddef>
#include <optional>

namespace weir::detail {

/// Calls `f(limit, by)` for each limit below a pool, from the pool down, that has too little room to map `bytes`, with
/// by how much. What the reserves of limits above it pay is not charged to a limit.
template <class Upstream, class F>
void for_each_short_limit(Upstream& upstream, std::size_t bytes, F f) {
  std::size_t charge = bytes;
  detail::for_each_layer(upstream, [&](auto& layer) {
    if (detail::changes_requests(layer)) charge = bytes;  // no reserve reaches through it
    std::optional<limit_ref> const limit = detail::limit_of(layer);
    if (!limit) return;
    std::size_t const wanted = limit->used() + charge, most = limit->max_bytes();
    if (charge != 0 && wanted > most) f(*limit, wanted - most);
    charge -= lesser(charge, limit->reserve_left());
  });
}

/// By how much the limits below a pool have too little room to map `bytes`: that of the shortest.
template <class Upstream>
std::size_t most_short(Upstream& upstream, std::size_t bytes) {
  std::size_t most = 0;
  detail::for_each_short_limit(upstream, bytes,
                               [&](limit_ref const&, std::size_t by) { most = by > most ? by : most; });
  return most;
}

/// Whether `limit` is one of those below.
template <class Upstream>
bool is_under(Upstream& upstream, limit_ref const& limit) noexcept {
  bool found = false;
  detail::for_each_layer(upstream, [&](auto& layer) { found = found || detail::limit_of(layer) == limit; });
  return found;
}

}  // namespace weir::detail
