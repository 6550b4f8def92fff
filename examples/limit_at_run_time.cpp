// A service is warned before its budget is full, and sheds load. Then an operator needs memory for another job, and
// takes a part of the budget away while the service runs: what is live stays, and new requests wait their turn.
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/error.hpp>
#include <weir/core/numbers.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>

#include <cstddef>
#include <cstdio>
#include <vector>

using namespace weir::literals;

int main() {
  bool sheds_load = false;
  weir::any_resource const memory(
      weir::device{} | weir::pool{} |
      weir::limit{.max_bytes = 64_MiB, .name = "search", .soft_bytes = 48_MiB, .on_soft = [&](std::size_t charged) {
                    std::printf("%s are in use: no new clients\n", weir::format_bytes(charged).c_str());
                    sheds_load = true;
                  }});
  weir::stream const stream;

  std::vector<void*> clients;  // 4 MiB each
  while (!sheds_load) clients.push_back(memory.allocate(stream, 4_MiB));
  bool right = clients.size() == 13;

  weir::limit_ref const budget = weir::find_limit(memory, "search");
  budget.set_max_bytes(40_MiB);
  std::printf("the budget is %s now, %s are in use\n", weir::format_bytes(budget.max_bytes()).c_str(),
              weir::format_bytes(budget.used()).c_str());
  int refused = 0;
  while (true) try {
      clients.push_back(memory.allocate(stream, 4_MiB));
      break;
    } catch (weir::out_of_memory const&) {  // one client leaves before the next may come
      ++refused;
      memory.deallocate(stream, clients.back(), 4_MiB);
      clients.pop_back();
    }
  std::printf("a new client was let in after %d had left\n", refused);
  right = right && refused == 4 && budget.used() == 40_MiB;

  for (void* const client : clients) memory.deallocate(stream, client, 4_MiB);
  return right && budget.used() == 0 ? 0 : 1;
}
