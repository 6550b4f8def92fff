// Two tenants share one pool, each under a budget of its own. The one that asks for too much is told so, and the other
// never notices.
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>

#include <cstdio>

using namespace weir::literals;

int main() {
  auto device = weir::make(weir::async{} | weir::pool{} | weir::limit{.fraction = 0.5});  // leave half for others
  auto search = weir::make(weir::share(device) | weir::limit{.max_bytes = 64_MiB, .name = "search"});
  auto images = weir::make(weir::share(device) | weir::limit{.max_bytes = 16_MiB, .name = "images"});
  weir::stream const stream;

  void* const index = search.allocate(stream, 40_MiB);

  // Too large a batch is halved until it fits the budget.
  std::size_t batch = 100_MiB;
  void* pixels = nullptr;
  while (pixels == nullptr && batch >= 1_MiB) {
    try {
      pixels = images.allocate(stream, batch);
    } catch (weir::out_of_memory const& failure) {
      if (batch == 100_MiB) std::printf("%s\n", failure.what());
      batch /= 2;
    }
  }
  std::printf("images: a batch of %s fits; %s of %s used, %llu requests refused\n", weir::format_bytes(batch).c_str(),
              weir::format_bytes(images.used()).c_str(), weir::format_bytes(images.max_bytes()).c_str(),
              static_cast<unsigned long long>(images.refused()));
  std::printf("search: %s of %s used, %llu requests refused\n", weir::format_bytes(search.used()).c_str(),
              weir::format_bytes(search.max_bytes()).c_str(), static_cast<unsigned long long>(search.refused()));

  bool const right = batch == 100_MiB / 8 && images.used() == batch && images.refused() == 3 &&
                     search.used() == 40_MiB && device.used() == search.used() + images.used();

  images.deallocate(stream, pixels, batch);
  search.deallocate(stream, index, 40_MiB);
  stream.synchronize();
  return right && device.used() == 0 ? 0 : 1;
}
