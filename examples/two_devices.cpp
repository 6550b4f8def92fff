// Two devices, a stack each. A library that is not told what to allocate from asks for the current memory of its
// device; what one has goes to the other by a copy; and one writes the other's memory in place.
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/bridges/per_device.hpp>
#include <weir/containers.hpp>
#include <weir/core/any_resource.hpp>
#include <weir/core/numbers.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/event.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <list>
#include <numeric>
#include <string>
#include <vector>

namespace {

// The library: it works on the device that is current, with that device's memory.
weir::vector<int> squares(int count, weir::stream_ref stream) {
  std::vector<int> values(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = i * i;
  return {values, stream, weir::current_memory()};
}

void require(cudaError_t code, char const* call) {
  if (code != cudaSuccess) throw weir::cuda_error(code, call, __FILE__, __LINE__);
}

// Work given to `later` from now on starts after what `earlier` was given so far. An event is of the device that is
// current when it is made, and is recorded on streams of that device; any stream may wait for it.
void order_after(weir::stream const& later, weir::stream const& earlier) {
  weir::device_guard const on_device(earlier.device());
  weir::event point;
  point.record(earlier);
  point.hold_back(later);
}

}  // namespace

int main() try {
  int const devices = weir::device_count();
  if (devices < 2) {
    std::printf("this needs two devices; there is %d\n", devices);
    return 0;
  }

  // A stack for each device, current for it as long as its scope lives. Peers may use what it gives.
  std::list<weir::per_device_scope> scopes;
  for (int device = 0; device < 2; ++device)
    scopes.emplace_back(weir::any_resource(weir::async{.device = device, .peers = true} | weir::pool{} |
                                           weir::statistics{.name = "device " + std::to_string(device)}));

  weir::stream const near;
  weir::vector<int> const here = squares(1000, near);
  weir::device_guard const elsewhere(1);
  weir::stream const far;
  weir::vector<int> const there = squares(1000, far);
  std::printf("one vector is on device %d, the other on device %d\n", here.device(), there.device());

  // From one device to the other.
  order_after(near, far);
  weir::vector<int> both(2000, near, weir::current_memory(0));
  auto const copy = [&](std::size_t at, weir::vector<int> const& from) {
    require(cudaMemcpyAsync(both.data() + at, from.data(), from.size() * sizeof(int), cudaMemcpyDefault, near.get()),
            "cudaMemcpyAsync");
  };
  copy(0, here);
  copy(1000, there);

  // In place: device 1 clears what came from device 0, in device 0's memory.
  int reaches = 0;
  require(cudaDeviceCanAccessPeer(&reaches, 1, 0), "cudaDeviceCanAccessPeer");
  if (reaches != 0) {
    order_after(far, near);
    require(cudaMemsetAsync(both.data(), 0, 1000 * sizeof(int), far.get()), "cudaMemsetAsync");
    order_after(near, far);
  }
  std::vector<int> const result = both.to_host();  // waits for `near`

  for (int device = 0; device < 2; ++device) {
    std::string const name = "device " + std::to_string(device);
    auto const memory = weir::current_memory(device);
    std::printf("%s: %llu B live\n", name.c_str(),
                static_cast<unsigned long long>(*weir::numbers(memory).front().requested));
  }
  long long const sum = std::accumulate(result.begin(), result.end(), 0LL);
  std::printf("device 1 %s device 0's memory in place; the sum is %lld\n", reaches != 0 ? "writes" : "cannot reach",
              sum);
  return here.device() == 0 && there.device() == 1 && sum == (reaches != 0 ? 1 : 2) * 332833500LL ? 0 : 1;
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
