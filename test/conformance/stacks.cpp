// Layers keep the laws together, in orders that programs use and in some that they do not.
#include <conformance/resource_laws.hpp>

#include <weir/adaptors/aligned.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/logging.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/scrub.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/adaptors/trace.hpp>
#include <weir/adaptors/tracking.hpp>
#include <weir/containers/any_handle.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/sources.hpp>

using namespace weir;
using laws::check_resource;
using laws::mib;

namespace {

logging const log{.path = "/dev/null"};

/// A tenant that owns what it rents from: `top` stands on a handle to `base`.
template <recipe Base, class Tenant>
struct renting {
  Base base;
  Tenant tenant;

  class resource_type {
   public:
    using base_type = made_by<Base>;
    using tenant_type = made_by<std::invoke_result_t<Tenant const&, base_type&>>;
    static constexpr bool device_accessible = weir::device_accessible<tenant_type>;
    static constexpr bool host_accessible = weir::host_accessible<tenant_type>;
    static constexpr bool host_ordered = weir::host_ordered<tenant_type>;

    explicit resource_type(renting const& r) : base_(make(r.base)), tenant_(make(r.tenant(base_))) {}
    void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) {
      return tenant_.allocate(stream, bytes, alignment);
    }
    void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept {
      tenant_.deallocate(stream, p, bytes, alignment);
    }
    void describe(report& out) const { weir::describe(tenant_, out); }

   private:
    base_type base_;
    tenant_type tenant_;
  };
  resource_type operator()() const { return resource_type(*this); }
};
template <class Base, class Tenant>
renting(Base, Tenant) -> renting<Base, Tenant>;

}  // namespace

TEST_CASE("1: the stack of the README") {
  check_resource(async{} | pool{.initial_bytes = 1 * mib, .max_bytes = 60 * mib} | limit{.max_bytes = 50 * mib} |
                 statistics{} | log);
}
TEST_CASE("2: a limit under a pool bounds what the pool holds") {
  check_resource(device{} | limit{.max_bytes = 60 * mib} | pool{});
}
TEST_CASE("3: limits in limits") {
  check_resource(async{} | limit{.max_bytes = 60 * mib} | limit{.max_bytes = 58 * mib} | limit{.max_bytes = 56 * mib});
}
TEST_CASE("4: statistics on both sides of a pool") { check_resource(device{} | statistics{} | pool{} | statistics{}); }
TEST_CASE("5: a pool on a pool") {
  check_resource(async{} | pool{.growth_bytes = 8 * mib} | pool{.growth_bytes = 2 * mib});
}
TEST_CASE("6: pinned memory in a pool, counted and limited") {
  check_resource(pinned{} | pool{} | statistics{} | limit{.max_bytes = 60 * mib});
}
TEST_CASE("7: managed memory in a pool that gives back early") {
  check_resource(managed{} | pool{.release_threshold = 2 * mib} | log);
}
TEST_CASE("8: host memory in a pool") { check_resource(host{} | pool{} | statistics{}); }
TEST_CASE("9: a tenant with a budget of its own in a shared pool") {
  check_resource(renting{async{} | pool{}, [](auto& base) { return share(base) | limit{.max_bytes = 50 * mib}; }});
}
TEST_CASE("10: a tenant of a tenant") {
  check_resource(renting{
      renting{device{} | pool{} | limit{.max_bytes = 60 * mib}, [](auto& base) { return share(base) | statistics{}; }},
      [](auto& base) { return share(base) | limit{.max_bytes = 50 * mib} | log; }});
}
TEST_CASE("11: an erased stack") {
  check_resource([] { return any_resource{async{} | pool{} | limit{.max_bytes = 60 * mib}}; });
}
TEST_CASE("12: layers on an erased stack") {
  check_resource([] {
    return made_by<decltype(std::declval<any_resource>() | limit{} | statistics{})>(
        any_resource{device{} | pool{}} | limit{.max_bytes = 60 * mib}, statistics{});
  });
}
TEST_CASE("13: an erased stack of host memory") {
  check_resource([] { return any_host_resource{pinned{} | pool{}}; });
}
TEST_CASE("14: a private pool for a tenant, on the memory of a shared one") {
  check_resource(renting{device{} | pool{}, [](auto& base) { return share(base) | pool{.growth_bytes = 4 * mib}; }});
}
TEST_CASE("15: a pool that waits, on the device's default pool") {
  check_resource(async{.use_default_pool = true} | pool{.pending = when_pending::wait} | statistics{});
}
TEST_CASE("16: a pool that large blocks pass unsplit, in a log on both sides") {
  check_resource(device{} | log | pool{.max_split_bytes = 2 * mib} | log);
}
TEST_CASE("17: segments and blocks aligned to pages") {
  check_resource(device{} | aligned{.alignment = 64 * 1024} | pool{} | aligned{.from_bytes = 1000} | statistics{});
}
TEST_CASE("18: tenants that see nothing of each other, in a shared pool") {
  check_resource(renting{device{} | pool{},
                         [](auto& base) { return share(base) | scrub{.on_allocation = true} | limit{50 * mib}; }});
}
TEST_CASE("19: a handle that owns its stack") {
  check_resource([] { return any_handle(any_resource{async{} | pool{} | limit{.max_bytes = 60 * mib}}); });
}
TEST_CASE("20: a tenant on a handle that refers") {
  check_resource(
      renting{device{} | pool{}, [](auto& base) { return any_handle(base) | limit{.max_bytes = 50 * mib}; }});
}
TEST_CASE("21: live blocks known on both sides of a pool") {
  check_resource(async{} | tracking{} | pool{} | limit{.max_bytes = 60 * mib} | tracking{.frames = 2});
}
TEST_CASE("22: what passes recorded on both sides of a pool") {
  check_resource(device{} | trace{.events = 10} | pool{} | limit{.max_bytes = 60 * mib} | trace{.events = 10});
}
