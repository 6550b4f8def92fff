#include "model/runtime.hpp"

#include <utility>

namespace weir::sim::detail {

runtime::runtime() {
  timelines.emplace_back();  // id 0 is no stream's
  for (int number = 0; number < max_devices; ++number) {
    timeline* const t = make_timeline(*this, number, cudaStreamDefault, 0);
    t->legacy = true;
    device_state& d = device(number);
    d.legacy = t;
    d.default_pool = d.current_pool = std::make_shared<pool_state>(pool_home{.id = number});
    d.default_pool->is_default = true;
    d.default_pool->handle = pools.add(d.default_pool);
  }
}

runtime& state() {
  static runtime* const the_runtime = new runtime;
  return *the_runtime;
}

}  // namespace weir::sim::detail
