// Every source keeps the laws.
#include <conformance/resource_laws.hpp>

#include <weir/sources.hpp>

using namespace weir;
using laws::check_resource;

TEST_CASE("async on a pool of its own keeps the laws") { check_resource(async{}); }
TEST_CASE("async on the default pool keeps the laws") { check_resource(async{.use_default_pool = true}); }
// One policy stays on: without it, memory whose free is still queued on one stream is out of every other's reach.
TEST_CASE("async with nearly every option set keeps the laws") {
  check_resource(async{.device = 1,
                       .release_threshold = 8 * laws::mib,
                       .max_bytes = 48 * laws::mib,
                       .initial_bytes = laws::mib,
                       .reuse_follow_event_dependencies = false,
                       .reuse_allow_opportunistic = false});
}
TEST_CASE("device keeps the laws") { check_resource(device{}); }
TEST_CASE("device on another device than the current one keeps the laws") { check_resource(device{.device = 1}); }
TEST_CASE("managed keeps the laws") { check_resource(managed{}); }
TEST_CASE("pinned keeps the laws") { check_resource(pinned{}); }
TEST_CASE("host keeps the laws") { check_resource(host{}); }
