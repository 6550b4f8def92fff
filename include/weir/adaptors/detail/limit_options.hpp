#pragma once
// What can be said about a budget, and how many bytes that makes.

#include <weir/core/bytes.hpp>
#include <weir/core/options.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/device.hpp>
#include <weir/support/function.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace weir {

template <resource Upstream>
class limit_resource;

/// Refuses what would take its live bytes above a budget, exactly, whatever threads do. Give one of `max_bytes`,
/// `fraction` and `fraction_of_free`. A request is charged with what it takes of the upstream (`weir::taken`): a whole
/// block of `fixed_size`, the padding for a large alignment over a source. When not to use it: to bound what a pool
/// *below* it reserves from CUDA, use the pool's own `max_bytes`.
struct limit {
  std::size_t max_bytes = 0;      ///< the budget in bytes; 0: not given
  double fraction = 0;            ///< the budget as a part of the total memory of the stack's device, above 0 up to 1
  std::size_t granularity = 256;  ///< each charge is rounded up to a multiple of this (a power of two), in bytes
  std::string name = {};          ///< whose budget it is, for reports and errors: `search` makes it `search: limit`
  double fraction_of_free = 0;    ///< the budget as a part of what is free on that device when the limit is made
  std::size_t soft_bytes = 0;     ///< who goes above this is served, but counted and told; 0: no soft limit
  /// Told how many bytes are charged by each request that goes above `soft_bytes` from there or below: once, until it
  /// falls to `soft_bytes` again. Called on the request's thread before the upstream is asked, while weir holds no
  /// lock: it may free and trim on the same stack. What it throws passes through `allocate`.
  detail::function<void(std::size_t charged)> on_soft = {};
  /// Guaranteed to this limit by the one below it, and by those below that: charged there when this one is made, and
  /// used first. Others there cannot have it, whether it is in use or not.
  std::size_t reserve_bytes = 0;

  template <resource Upstream>
  using on = limit_resource<Upstream>;

  static constexpr char const* layer_name = "limit";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(option::part("fraction", "fraction", &limit::fraction, "not given").first());
    f(option::bytes("max", "max_bytes", &limit::max_bytes).first());
    f(option::bytes("granularity", "granularity", &limit::granularity).power_of_two());
    f(option::text("name", "name", &limit::name));
    f(option::part("fraction_of_free", "fraction_of_free", &limit::fraction_of_free, "not given"));
    f(option::bytes("soft", "soft_bytes", &limit::soft_bytes).or_zero("none"));
    f(option::bytes("reserve", "reserve_bytes", &limit::reserve_bytes).or_zero("none"));
  }

  /// Empty if these options are valid, else what is wrong with them.
  template <class = void>  // so that only those pay for compiling it who use it
  std::string problem() const {
    if (std::string what = option::first_problem(*this); !what.empty()) return what;
    int const given_ones = (max_bytes != 0) + (fraction != 0) + (fraction_of_free != 0);
    if (given_ones == 0)
      return "limit: no budget is given: max_bytes, fraction and fraction_of_free are 0; give exactly one of them";
    if (given_ones != 1)
      return "limit: max_bytes is " + std::to_string(max_bytes) + ", fraction is " + option::exact_text(fraction) +
             " and fraction_of_free is " + option::exact_text(fraction_of_free) +
             "; give exactly one of them a value above 0";
    if (on_soft && soft_bytes == 0) return "limit: on_soft is given, but soft_bytes is not; give it, too";
    if (reserve_bytes != 0 && round_up_or_zero(reserve_bytes, granularity) == 0)
      return "limit: reserve_bytes is " + std::to_string(reserve_bytes) + "; no memory is as large";
    if (max_bytes == 0) return {};
    std::string const given = "limit: max_bytes is " + std::to_string(max_bytes);
    if (soft_bytes > max_bytes)
      return given + " and soft_bytes " + std::to_string(soft_bytes) + "; it must not be more";
    if (reserve_bytes > max_bytes)
      return given + " and reserve_bytes " + std::to_string(reserve_bytes) + "; it must not be more";
    if (max_bytes >= granularity) return {};
    std::string less = given + "; that is less than one granularity of " + std::to_string(granularity);
    if (max_bytes > 100) return less;
    return less + "; for a part of the device write limit(" + std::to_string(max_bytes) +
           "%) in a text, and in C++ set fraction";
  }
  template <class = void>
  bool valid() const {
    return problem().empty();
  }
};

namespace detail {

/// The bytes of a budget. Asks CUDA once, where a fraction is given: throws `std::invalid_argument` for one that is
/// less than a granularity or than `soft_bytes`, and `cuda_error`.
template <class = void>
std::size_t budget_of(limit const& options, int device) {
  if (options.max_bytes != 0) return options.max_bytes;
  bool const of_free = options.fraction_of_free != 0;
  double const fraction = of_free ? options.fraction_of_free : options.fraction;
  device_memory_info const has = memory_info(device);
  auto const bytes =
      static_cast<std::size_t>(static_cast<double>(of_free ? has.free_bytes : has.total_bytes) * fraction);
  if (bytes >= options.granularity && bytes >= options.soft_bytes) return bytes;
  throw std::invalid_argument(
      std::string("weir: limit: ") + (of_free ? "fraction_of_free" : "fraction") + " is " +
      option::exact_text(fraction) + ", which is " + std::to_string(bytes) + " B of device " + std::to_string(device) +
      " and less than " +
      (bytes < options.granularity ? "one granularity" : "soft_bytes, " + std::to_string(options.soft_bytes)));
}

/// The same for a limit on `upstream`: of its device, or of the current one where no layer names one. Throws
/// `std::invalid_argument` also for a part of memory that only the host reaches and that is of no device.
template <class Upstream>
std::size_t budget_on(Upstream const& upstream, limit const& options) {
  if (options.max_bytes != 0) return options.max_bytes;
  if constexpr (host_accessible<Upstream> && !device_accessible<Upstream>) {
    bool const of_free = options.fraction_of_free != 0;
    if (weir::device_of(upstream) < 0)
      throw std::invalid_argument(std::string("weir: limit: ") + (of_free ? "fraction_of_free" : "fraction") + " is " +
                                  option::exact_text(of_free ? options.fraction_of_free : options.fraction) +
                                  ", a part of a device's memory, and this is memory of the host, of no device; give "
                                  "max_bytes in its place (in a text: limit(8GiB))");
  }
  return detail::budget_of(options, detail::device_for(upstream));
}

}  // namespace detail
}  // namespace weir
