// Compiled with -fno-rtti: the whole library, and what of it asks for types.
#include <weir/adaptors.hpp>
#include <weir/bridges/per_device.hpp>
#include <weir/bridges/pmr.hpp>
#include <weir/bridges/stl.hpp>
#include <weir/bridges/torch.hpp>
#include <weir/containers.hpp>
#include <weir/sources/virtual_memory.hpp>
#include <weir/testing/checked.hpp>
#include <weir/tools.hpp>
#include <weir/tools/read_trace.hpp>
#include <weir/weir.hpp>

#include <memory_resource>
#include <vector>

int main() {
  auto memory = weir::make(weir::pinned{} | weir::pool{} | weir::statistics{});
  weir::pmr_resource const one(memory), same_memory(memory);
  bool right = one.is_equal(one) && !one.is_equal(same_memory) && !one.is_equal(*std::pmr::new_delete_resource());
  {
    weir::pmr_resource resource(memory);
    std::pmr::vector<std::pmr::vector<int>> values(3, &resource);
    values[0].assign(1000, 5);
    right = right && values[0].back() == 5;
  }
  return right && memory.numbers().allocations.current == 0 ? 0 : 1;
}
