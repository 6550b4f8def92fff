#pragma once
// The pool: memory kept in segments, cut into blocks and reused in stream order.

#include <weir/adaptors/detail/pooled.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/resource.hpp>
#include <weir/pool/pool_options.hpp>

#include <string>

namespace weir {

/// Made by `upstream | pool{...}`; what it does is said there. Thread-safe: one lock, never held while CUDA may block;
/// threads that often wait for it have caches of their own for small blocks (`pool::thread_caches`).
/// Segments are taken and given back in host order, so every upstream serves, stream-ordered or not. The destructor
/// waits for work on freed blocks, then gives every segment back; nobody may use the pool any more. What it cannot wait
/// for it leaves where it is, for good: as work on a stream that it knows without a CUDA call, while any thread has
/// declared a capture (`capture_scope`).
template <resource Upstream>
class pool_resource : public detail::pooled<pool_resource<Upstream>, Upstream> {
  using base = detail::pooled<pool_resource, Upstream>;

 public:
  static constexpr char const* layer_name = pool::layer_name;

  template <recipe F>
  pool_resource(F const& upstream, pool const& options) : base(upstream, detail::require_valid(options)) {
    if (options.initial_bytes != 0) this->reserve(options.initial_bytes);
  }

 private:
  friend base;

  std::string label() const {
    return this->max_bytes() == 0 ? "pool" : "pool(" + format_bytes(this->max_bytes()) + ")";
  }
  std::string state(pool_snapshot const& s) const {
    return detail::numbers_text(s) + "; largest free piece " + format_bytes(s.largest_free) + detail::outside_text(s);
  }
};

}  // namespace weir
