// A service answers from a cache of thumbnails on the device. A large batch arrives, and does not fit beside it: the
// cache gives up what it used longest ago, and only as much as the batch needs.
#include <weir/adaptors/on_failure.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/error.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>

#include <cstddef>
#include <cstdio>
#include <deque>

using namespace weir::literals;

namespace {

/// Thumbnails of 1 MiB, the one that was used longest ago in front.
template <class Memory>
class thumbnails {
 public:
  explicit thumbnails(Memory& memory) : memory_(memory) {}
  ~thumbnails() { evict(size() * bytes_each, weir::stream_ref()); }

  void add(weir::stream_ref stream) {
    void* const pixels = memory_.allocate(stream, bytes_each);
    cudaMemsetAsync(pixels, 0, bytes_each, stream.get());  // or a kernel that draws it
    pixels_.push_back(pixels);
  }
  std::size_t evict(std::size_t bytes, weir::stream_ref stream) {
    std::size_t gone = 0;
    for (; gone < bytes && !pixels_.empty(); gone += bytes_each) {
      memory_.deallocate(stream, pixels_.front(), bytes_each);
      pixels_.pop_front();
    }
    return gone;
  }
  std::size_t size() const { return pixels_.size(); }

 private:
  static constexpr std::size_t bytes_each = 1_MiB;
  Memory& memory_;
  std::deque<void*> pixels_;
};

}  // namespace

int main() {
  auto pooled = weir::make(weir::device{} | weir::pool{.initial_bytes = 64_MiB, .max_bytes = 64_MiB});
  thumbnails cache(pooled);
  auto memory =
      weir::make(weir::share(pooled) | weir::on_failure{{{"thumbnails", [&cache](weir::memory_request const& missing) {
                                                            return cache.evict(missing.bytes, missing.stream);
                                                          }}}});
  weir::stream const stream;
  for (int i = 0; i < 60; ++i) cache.add(stream);

  void* const batch = memory.allocate(stream, 24_MiB);
  std::printf("a batch of 24 MiB fits; %zu of 60 thumbnails are left\n", cache.size());
  bool const kept_some = cache.size() >= 36 && cache.size() < 60;
  memory.deallocate(stream, batch, 24_MiB);

  bool refused = false;
  try {
    memory.deallocate(stream, memory.allocate(stream, 100_MiB), 100_MiB);  // more than there is, whoever gives
  } catch (weir::out_of_memory const& failure) {
    std::printf("%s\n", failure.what());
    refused = true;
  }
  return kept_some && refused && memory.numbers().rescued == 1 ? 0 : 1;
}
