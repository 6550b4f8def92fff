// A service answers two customers from one pool. One customer's memory is scrubbed when it is freed; what the other one
// finds in memory that it did not write is zeros, also where a kernel wrote past the end.
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/scrub.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

using namespace weir::literals;

namespace {

constexpr std::size_t size = 1000;

/// Leaves a secret in memory of `first`, and counts what `second` finds of it in the same place.
template <class First, class Second>
long found_by(First& first, Second& second, weir::stream const& stream) {
  void* const secret = first.allocate(stream, size);
  bool asked = cudaMemsetAsync(secret, 's', size, stream.get()) == cudaSuccess;
  first.deallocate(stream, secret, size);

  void* const p = second.allocate(stream, size);
  std::vector<char> seen(size);
  asked = asked && cudaMemcpyAsync(seen.data(), p, size, cudaMemcpyDeviceToHost, stream.get()) == cudaSuccess;
  stream.synchronize();
  second.deallocate(stream, p, size);
  return asked ? std::count(seen.begin(), seen.end(), 's') : -1;
}

}  // namespace

int main() {
  auto pool = weir::make(weir::async{} | weir::pool{});
  auto careful = weir::make(weir::share(pool) | weir::scrub{});
  weir::stream const stream;

  long const without = found_by(pool, pool, stream);
  long const with = found_by(careful, pool, stream);
  std::printf("of a secret of %zu B the next owner sees %ld B without scrub, and %ld B with it\n", size, without, with);
  return without == long{size} && with == 0 && careful.kept_bytes() == 0 ? 0 : 1;
}
