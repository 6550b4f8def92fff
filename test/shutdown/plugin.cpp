// A library with stacks in static objects, to be unloaded.
#include <weir/adaptors/tracking.hpp>
#include <weir/bridges/per_device.hpp>
#include <weir/sources/virtual_memory.hpp>
#include <weir/support/sampled_clock.hpp>
#include <weir/tools/config_text.hpp>
#include <weir/tools/log_reader.hpp>
#include <weir/weir.hpp>

#include <array>
#include <optional>
#include <typeinfo>

using namespace weir;

namespace {

auto memory = make(async{} | pool{} | limit{.max_bytes = 1_GiB} | statistics{});
auto on_device = make(device{} | fixed_size{.block_bytes = 1_MiB});

auto arenas = make(device{} | arena{});

}  // namespace

extern "C" [[gnu::visibility("default")]] void use_an_arena();
void use_an_arena() { arenas.deallocate(stream_ref(), arenas.allocate(stream_ref(), 1000), 1000); }

extern "C" [[gnu::visibility("default")]] void use_the_plugin();
void use_the_plugin() {
  weir::stream const lasting;
  for (stream_ref const s : {stream_ref(lasting), stream_ref(cudaStreamLegacy), stream_ref(cudaStreamPerThread)}) {
    void* const p = memory.allocate(s, 3_MiB);
    memory.deallocate(s, p, 3_MiB);
    void* const q = on_device.allocate(s, 1_MiB);
    on_device.deallocate(s, q, 1_MiB);
  }
}

extern "C" [[gnu::visibility("default")]] std::uint64_t number_of_thread();
std::uint64_t number_of_thread() { return detail::thread_registry::this_number(); }

extern "C" [[gnu::visibility("default")]] std::uint64_t time_of_event();
std::uint64_t time_of_event() {
  detail::thread_clock.look_if_due();
  return detail::thread_clock.next(0);
}

extern "C" [[gnu::visibility("default")]] void make_a_stack(std::optional<any_resource>& made);
void make_a_stack(std::optional<any_resource>& made) { made.emplace(device{} | pool{} | tracking{}); }

extern "C" [[gnu::visibility("default")]] void make_current(std::optional<per_device_scope>& scope);
void make_current(std::optional<per_device_scope>& scope) {
  scope.emplace(any_resource(device{} | limit{.max_bytes = 1_MiB, .name = "of the library"}));
}

using limited_chunks = limit_resource<virtual_memory_resource>;
extern "C" [[gnu::visibility("default")]] void make_a_pool_on(limited_chunks& chunks,
                                                              std::optional<any_resource>& made);
void make_a_pool_on(limited_chunks& chunks, std::optional<any_resource>& made) { made.emplace(share(chunks) | pool{}); }

extern "C" [[gnu::visibility("default")]] bool refers_to(any_ref reference, limited_chunks& chunks);
bool refers_to(any_ref reference, limited_chunks& chunks) { return reference == any_ref(chunks); }

using types = std::array<std::type_info const*, 4>;
extern "C" [[gnu::visibility("default")]] void types_of_errors(types& found);
void types_of_errors(types& found) {
  found = {&typeid(out_of_memory), &typeid(cuda_error), &typeid(config_error), &typeid(damaged_trace)};
}
