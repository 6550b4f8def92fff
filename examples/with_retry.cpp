// Two hundred images are to be resized on a device that has no room for all of them at once. Nobody knows how many fit:
// the batch is halved until it does, and the rest goes on with that.
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>
#include <weir/tools/with_retry.hpp>

#include <cstddef>
#include <cstdio>
#include <memory>
#include <vector>

using namespace weir::literals;

int main() {
  auto memory = weir::make(weir::device{} | weir::pool{} | weir::limit{64_MiB});
  weir::stream const stream;
  std::vector<int> resized(200);

  weir::retry_result const did = weir::with_retry(memory, resized.size(), [&](std::size_t first, std::size_t count) {
    std::size_t const bytes = count * 1_MiB;
    auto const give_back = [&](void* p) { memory.deallocate(stream, p, bytes); };  // also if the next one is refused
    std::unique_ptr<void, decltype(give_back)> const in(memory.allocate(stream, bytes), give_back);
    std::unique_ptr<void, decltype(give_back)> const out(memory.allocate(stream, bytes), give_back);
    cudaMemcpyAsync(out.get(), in.get(), bytes, cudaMemcpyDefault, stream.get());  // or a kernel that resizes
    for (std::size_t i = first; i < first + count; ++i) ++resized[i];
  });
  std::printf("%s\n", did.text().c_str());
  stream.synchronize();

  bool right = did.items == 200 && did.batch == 25 && did.refused == 3 && memory.used() == 0;
  for (int const times : resized) right = right && times == 1;
  return right ? 0 : 1;
}
