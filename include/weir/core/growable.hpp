#pragma once
// Resources that hand out addresses and the memory behind them one by one.

#include <weir/core/resource.hpp>
#include <weir/core/tenants.hpp>

#include <concepts>
#include <cstddef>

namespace weir {

/// Addresses in one piece, with memory behind all, some or none of them.
struct address_range {
  void* begin = nullptr;
  std::size_t bytes = 0;
};

/// A resource that can also put memory behind addresses later, and take it away again, in whole chunks: what a pool
/// needs to grow in place, and to move memory that it does not use to where it is needed. All sizes and addresses are
/// multiples of `chunk_bytes()`, a power of two. Like `host_order`, these calls know no streams: nothing may use what
/// is unmapped. `virtual_memory` is the source that has them; adaptors that pass requests on as they are pass them on.
///
/// - `reserve_range(most)`: addresses, aligned to a chunk, with nothing behind them; as many as the resource finds
///   right, at most `most` bytes. Throws `out_of_memory` or `cuda_error`.
/// - `release_range(range)`: takes them back. Nothing is mapped there any more.
/// - `map(p, n)`: puts memory behind [p, p + n), where there is none, for every device that may use it. False if there
///   is not as much. Throws `cuda_error` or `std::bad_alloc` for other failures. Either way nothing has changed then.
/// - `unmap(p, n)`: takes the memory behind [p, p + n) away. It is kept for the next `map`; `trim` gives it to the
///   system. False if the driver refuses, after an error that ended the context: then all of it stays where it is.
/// - `alias(to, from, n)`: shows what is behind [from, from + n) at `to` as well. What is written at one is read at the
///   other by work that is ordered after it. As `map` in all else. The memory is kept until both are unmapped.
///
/// It may have `tenancy()`, a `tenants`, where several pools use it at the same time, and `movable()`, false where
/// memory has to stay where it was mapped first until its range is released.
template <class R>
concept growable = resource<R> && requires(R& r, R const& c, void* p, std::size_t n, address_range range) {
  { c.chunk_bytes() }
  noexcept->std::same_as<std::size_t>;
  { r.reserve_range(n) } -> std::same_as<address_range>;
  { r.release_range(range) }
  noexcept;
  { r.map(p, n) } -> std::same_as<bool>;
  { r.unmap(p, n) }
  noexcept->std::same_as<bool>;
  { r.alias(p, p, n) } -> std::same_as<bool>;
};

/// One that several pools may use at the same time.
template <class R>
concept has_tenants = growable<R> && requires(R& r) {
  { r.tenancy() }
  noexcept->std::same_as<tenants&>;
};

/// Whether chunks of `r` may be shown at other addresses than those they were mapped at first: `r.movable()`, asked
/// through its `upstream()` where it has none; else true.
template <class R>
bool chunks_may_move(R const& r) noexcept {
  if constexpr (requires { bool{r.movable()}; })
    return r.movable();
  else if constexpr (requires { r.upstream(); })
    return weir::chunks_may_move(r.upstream());
  else
    return true;
}

}  // namespace weir
