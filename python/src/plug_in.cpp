// The shared library that frameworks load: weir::framework_memory behind C functions, with stacks from text.
#include "plug_in.h"

#include <weir/bridges/torch.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/error.hpp>
#include <weir/core/layers.hpp>
#include <weir/core/numbers.hpp>
#include <weir/core/report.hpp>
#include <weir/cuda/device.hpp>
#include <weir/sources/source_device.hpp>
#include <weir/tools/parse.hpp>
#include <weir/tools/stack_from_environment.hpp>
#include <weir/tools/summary.hpp>
#ifdef WEIR_CHECKED
#include <weir/testing/checked.hpp>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace {

weir::any_resource made_from(std::string const& text) {
  weir::any_resource stack = weir::stack_from_environment(text);
#ifdef WEIR_CHECKED  // for tests on the simulated runtime: it proves the order of every block
  return weir::any_resource(stack | weir::checked{});
#else
  return stack;
#endif
}

/// Made when the library is loaded, and never destroyed: frameworks free after `main`.
weir::framework_memory& memory = *new weir::framework_memory(&made_from, "async | pool");

int valid_device(int device) { return device == -1 ? weir::current_device() : device; }
weir::any_resource const& stack_of(int device) { return memory.stack(valid_device(device)); }
/// For questions whose answer is nothing where no stack is there: null then. Throws where there is no such device.
weir::any_resource const* made_stack_of(int device) {
  device = valid_device(device);
  weir::any_resource const* const made = memory.made(device);
  if (made == nullptr) weir::detail::chosen_device("framework_memory", weir::detail::device_stacks::valid(device));
  return made;
}

[[noreturn, gnu::noinline]] void refuse_size(ptrdiff_t size) {
  throw std::invalid_argument("weir: a size of " + std::to_string(size) + " B was asked for; it must be 0 or more");
}
std::size_t valid_size(ptrdiff_t size) {
  if (size < 0) [[unlikely]]
    refuse_size(size);
  return static_cast<std::size_t>(size);
}

thread_local std::string error;
thread_local std::string answer;

int failed(weir_status status, char const* text) noexcept {
  try {
    error = text;
  } catch (...) {
    error.clear();
  }
  return status;
}

/// Calls `f()`, and tells what it throws by a status and a text.
template <class F>
int told(F f) noexcept {
  try {
    f();
    return weir_ok;
  } catch (weir::out_of_memory const& refusal) {
    return failed(weir_out_of_memory, refusal.what());
  } catch (std::invalid_argument const& refusal) {
    return failed(weir_invalid, refusal.what());
  } catch (std::logic_error const& refusal) {
    return failed(weir_too_late, refusal.what());
  } catch (weir::cuda_error const& refusal) {
    return failed(weir_cuda_error, refusal.what());
  } catch (std::exception const& refusal) {
    return failed(weir_failed, refusal.what());
  } catch (...) {
    return failed(weir_failed, "weir: unknown error");
  }
}

template <class F>
int answered(char const** result, F f) noexcept {
  return told([&] {
    answer = f();
    *result = answer.c_str();
  });
}

/// A stack's numbers are those of its outermost layer that knows them: others see what that one takes in large pieces.
template <class Number>
void fill(std::optional<weir_level>& level, std::optional<Number> const& current, std::optional<Number> const& peak,
          std::optional<Number> const& total) {
  if (level || !current) return;
  std::uint64_t const ever = total.value_or(0);
  level = weir_level{*current, peak.value_or(0), ever, ever > *current ? ever - *current : 0};
}

weir_totals totals_of(weir::any_resource const& stack) {
  std::optional<weir_level> requested, allocated, reserved, live;
  uint64_t refused = 0;
  for (weir::layer_numbers const& layer : weir::numbers(stack)) {
    if (layer.depth != 0) continue;
    fill(requested, layer.requested, layer.requested_peak, layer.requested_total);
    fill(allocated, layer.allocated, layer.allocated_peak, layer.allocated_total);
    fill(reserved, layer.reserved, layer.reserved_peak, {});
    fill(live, layer.live, layer.live_peak, layer.live_total);
    refused += layer.refused.value_or(0);
  }
  weir_level const none{};
  weir_totals all{requested.value_or(none), allocated.value_or(none), reserved.value_or(none), live.value_or(none),
                  refused};
  if (all.allocated.total == 0) {  // few layers count it
    all.allocated.total = all.requested.total;
    all.allocated.freed = all.requested.freed;
  }
  return all;
}

/// From the source up: a budget lets less of it through, and what a layer has free is there besides.
std::size_t largest_of(weir::any_resource const& stack, std::size_t largest) {
  weir::stack_summary const all = weir::summary_of(stack);
  for (auto each = all.layers.rbegin(); each != all.layers.rend(); ++each) {
    weir::layer_numbers const& layer = each->numbers;
    if (layer.depth != 0) continue;
    std::size_t const taken = layer.charged.value_or(layer.reserved.value_or(0));
    if (layer.max_bytes) largest = std::min(largest, *layer.max_bytes - std::min(*layer.max_bytes, taken));
    largest = std::max(largest, layer.largest_free.value_or(0));
  }
  return largest;
}

}  // namespace

// ---- for PyTorch

void* weir_malloc(ptrdiff_t size, int device, cudaStream_t stream) {
  return memory.allocate(valid_size(size), device, stream);
}
void* weir_malloc_or_null(ptrdiff_t size, int device, cudaStream_t stream) try {
  return weir_malloc(size, device, stream);
} catch (weir::out_of_memory const&) {
  return nullptr;
}
void* weir_malloc_segment(ptrdiff_t size, int device, cudaStream_t stream) try {
  return memory.allocate_segment(valid_size(size), device, stream);
} catch (weir::out_of_memory const&) {
  return nullptr;
}
void weir_free_segment(void* p, ptrdiff_t size, int device, cudaStream_t stream) noexcept {
  memory.deallocate_segment(p, static_cast<std::size_t>(size), device, stream);
}
void weir_free(void* p, ptrdiff_t size, int device, cudaStream_t stream) noexcept {
  memory.deallocate(p, static_cast<std::size_t>(size), device, stream);
}
void weir_record_stream(void* p, cudaStream_t stream) { memory.record_stream(p, stream); }
void weir_empty_cache() noexcept { memory.trim(); }
void weir_set_fraction(double fraction, int device) {
  if (!(fraction >= 0 && fraction <= 1))
    throw std::invalid_argument("weir: a fraction of " + std::to_string(fraction) +
                                " was asked for; it must be from 0 to 1");
  auto const total = static_cast<double>(weir::memory_info(device).total_bytes);
  weir::find_limit(stack_of(device)).set_max_bytes(static_cast<std::size_t>(fraction * total));
}

void weir_begin_graph_pool(int device, weir_graph_pool_id id, std::function<bool(cudaStream_t)> belongs) {
  memory.begin_graph_pool(device, id, std::move(belongs));
}
void weir_end_graph_pool(int device, weir_graph_pool_id id) noexcept { memory.end_graph_pool(device, id); }
bool weir_find_graph_pool(int device, cudaStream_t stream, weir_graph_pool_id* id, bool* is_kept) {
  auto const found = memory.find_graph_pool(device, stream);
  if (!found) return false;
  *id = found->id;
  *is_kept = found->capture != 0;
  return true;
}
void weir_share_graph_pool(weir_graph_pool_id id) noexcept { memory.share_graph_pool(id); }
void weir_add_graph_pool_user(weir_graph_pool_id id) { memory.add_graph_pool_user(id); }
int weir_graph_pool_users(weir_graph_pool_id id) { return static_cast<int>(memory.graph_pool_users(id)); }
void weir_release_graph_pool(int, weir_graph_pool_id id) { memory.release_graph_pool(id); }

// ---- for everybody else

char const* weir_error_text() noexcept { return error.c_str(); }

int weir_try_malloc(void** p, ptrdiff_t size, int device, cudaStream_t stream) noexcept {
  return told([&] { *p = weir_malloc(size, device, stream); });
}
int weir_try_free(void* p, ptrdiff_t size, int device, cudaStream_t stream) noexcept {
  return told([&] {
    memory.stack(device);  // a device that cannot be is an error here, not misuse
    memory.deallocate(p, valid_size(size), device, stream);
  });
}
int weir_try_record_stream(void* p, cudaStream_t stream) noexcept {
  return told([&] { weir_record_stream(p, stream); });
}

int weir_try_use(char const* text, int device) noexcept {
  return told([&] {
    weir::check_text(text);
    memory.use(text, device);
  });
}
int weir_try_trim(uint64_t* released, int device) noexcept {
  return told([&] {
    if (device == -1) {
      *released = memory.trim();
    } else if (weir::any_resource const* const stack = made_stack_of(device)) {
      weir::synchronize(*stack);
      *released = weir::trim(*stack);
    } else {
      *released = 0;
    }
  });
}
int weir_try_report(char const** text, int device) noexcept {
  return answered(text, [&] { return weir::report_of(stack_of(device)).lines(); });
}
int weir_try_numbers(char const** json, int device) noexcept {
  return answered(json, [&] { return weir::summary_json(stack_of(device), {.name = {}, .by_tag = true}); });
}
int weir_try_reset_peaks(int device) noexcept {
  return told([&] {
    if (weir::any_resource const* const stack = made_stack_of(device)) weir::reset_peaks(*stack);
  });
}

int weir_try_limit(weir_limit_numbers* numbers, int device, char const* name) noexcept {
  return told([&] {
    weir::limit_ref const limit = weir::find_limit(stack_of(device), name);
    *numbers = {limit.used(), limit.max_bytes(), limit.peak(), limit.refused()};
  });
}
int weir_try_set_limit(int device, char const* name, uint64_t max_bytes) noexcept {
  return told([&] { weir::find_limit(stack_of(device), name).set_max_bytes(max_bytes); });
}

int weir_try_totals(weir_totals* totals, int device) noexcept {
  return told([&] {
    weir::any_resource const* const stack = made_stack_of(device);
    *totals = stack == nullptr ? weir_totals{} : totals_of(*stack);
  });
}

int weir_try_largest(uint64_t* bytes, int device) noexcept {
  return told([&] {
    weir::any_resource const* const stack = made_stack_of(device);
    std::size_t const of_device = weir::memory_info(valid_device(device)).free_bytes;
    *bytes = stack == nullptr ? of_device : largest_of(*stack, of_device);
  });
}

int weir_try_device_memory(uint64_t* free_bytes, uint64_t* total_bytes, int device) noexcept {
  return told([&] {
    weir::device_memory_info const info = weir::memory_info(valid_device(device));
    *free_bytes = info.free_bytes;
    *total_bytes = info.total_bytes;
  });
}
int weir_try_current_device(int* device) noexcept {
  return told([&] { *device = weir::current_device(); });
}

int weir_compiled_for() noexcept { return CUDART_VERSION; }
