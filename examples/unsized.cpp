// A C interface over a stack: its `release` knows no size, as `free` does, and a budget still gets back what it
// charged.

#include <weir/weir.hpp>

#include <cassert>
#include <cstddef>
#include <cstdio>

using namespace weir::literals;

namespace {

auto& plugin_memory() {
  static auto memory = weir::make(weir::async{} | weir::pool{} | weir::limit{.max_bytes = 64_MiB, .name = "plugin"});
  return memory;
}

}  // namespace

extern "C" void* plugin_allocate(std::size_t bytes, cudaStream_t stream) {
  try {
    return plugin_memory().allocate(stream, bytes);
  } catch (...) {  // no exception leaves a C function
    return nullptr;
  }
}
extern "C" void plugin_release(void* p, cudaStream_t stream) { weir::deallocate_unsized(plugin_memory(), stream, p); }
extern "C" std::size_t plugin_size(void const* p) { return weir::find_block(plugin_memory(), p).bytes; }

int main() {
  weir::stream const stream;
  void* const p = plugin_allocate(10'000'000, stream.get());
  std::printf("%zu B, of which the budget counts %zu\n", plugin_size(p), plugin_memory().used());
  assert(plugin_size(p) == 10'000'000);
  plugin_release(p, stream.get());
  assert(plugin_memory().used() == 0 && plugin_size(p) == 0);
  assert(plugin_allocate(1_GiB, stream.get()) == nullptr);
  return 0;
}
