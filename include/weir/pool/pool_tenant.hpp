#pragma once
// A pool as one of several tenants of a growable upstream.

#include <weir/core/bytes.hpp>
#include <weir/core/growable.hpp>
#include <weir/core/tenants.hpp>
#include <weir/pool/limits_between.hpp>
#include <weir/pool/pool_options.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace weir::detail {

/// One of the tenants of `Upstream`, if that has some, for an `Allocator` that answers `usage()` and `give_idle(bytes)`
/// from `join` to `leave`.
template <class Allocator, class Upstream>
class pool_tenant {
 public:
  pool_tenant(Allocator&, Upstream&, pool const& options) noexcept
      : is_promised_something_(options.min_bytes != 0 || options.low_bytes != 0) {}
  /// Throws `std::invalid_argument` if something is promised that nobody keeps.
  void join() const {
    if (is_promised_something_)
      throw std::invalid_argument(
          "weir: pool: min_bytes and low_bytes are for pools that share a growable upstream, as "
          "`share(pages) | pool{...}` with `pages` of weir::virtual_memory; set neither here");
  }
  tenant* get() noexcept { return nullptr; }
  std::size_t let_in() const noexcept { return 0; }
  void stop_giving() noexcept {}
  void leave(std::size_t = 0) noexcept {}

 private:
  bool is_promised_something_;
};

template <class Allocator, has_tenants Upstream>
class pool_tenant<Allocator, Upstream> final : public tenant {
 public:
  /// Throws `std::invalid_argument` if the pool could not hold what it is promised.
  pool_tenant(Allocator& pool_of, Upstream& upstream, pool const& options)
      : allocator_(pool_of), upstream_(upstream), name_(options.name) {
    // In whole chunks, as all that it has.
    std::size_t const chunk = upstream.chunk_bytes();
    min_bytes = round_up_or_zero(options.min_bytes, chunk);
    low_bytes = round_up_or_zero(options.low_bytes, chunk);
    require_room(options, options.max_bytes / chunk * chunk);
  }
  void join() { upstream_.tenancy().join(*this); }
  tenant* get() noexcept { return this; }
  /// From now on it gives nothing to others, and none of them is being given anything; what it holds counts until it
  /// leaves. Without the allocator's lock.
  void stop_giving() noexcept {
    upstream_.tenancy().between_questions([this] { gives_ = false; });
  }
  /// `left`: bytes that the allocator could not give back.
  void leave(std::size_t left = 0) noexcept { upstream_.tenancy().leave(*this, left); }

  tenant_usage usage() noexcept override { return allocator_.usage(); }
  std::size_t give_idle(std::size_t bytes) noexcept override { return gives_ ? allocator_.give_idle(bytes) : 0; }
  bool is_under(limit_ref const& limit) noexcept override { return detail::is_under(upstream_, limit); }
  std::string name() const override { return name_ == nullptr || *name_ == 0 ? "a pool" : name_; }

 private:
  void require_room(pool const& options, std::size_t most) const {
    if (options.max_bytes == 0 || min_bytes <= most) return;
    throw std::invalid_argument("weir: pool: min_bytes is " + format_bytes(options.min_bytes) + ", which is " +
                                format_bytes(min_bytes) + " in whole chunks; max_bytes (" +
                                format_bytes(options.max_bytes) + ") has room for " + format_bytes(most) +
                                " of them: raise max_bytes to " + format_bytes(min_bytes) + ", or lower min_bytes");
  }

  Allocator& allocator_;
  Upstream& upstream_;
  char const* name_;
  bool gives_ = true;  // guarded by the lock of the tenants, with which it is asked
};

}  // namespace weir::detail
