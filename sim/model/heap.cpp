#include "model/heap.hpp"

#include "model/tsan_fibers.hpp"

#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#define WEIR_SIM_POISON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEIR_SIM_POISON 1
#endif
#endif
#ifdef WEIR_SIM_POISON
// NOLINTBEGIN(bugprone-reserved-identifier): as in <sanitizer/asan_interface.h>, which not every compiler brings
extern "C" void __asan_poison_memory_region(void const volatile* p, std::size_t bytes);
extern "C" void __asan_unpoison_memory_region(void const volatile* p, std::size_t bytes);
// NOLINTEND(bugprone-reserved-identifier)
#endif

namespace weir::sim::detail {

void* take_from_heap(std::size_t bytes, std::size_t alignment) {
  void* p = nullptr;
  return posix_memalign(&p, alignment, bytes) == 0 ? p : nullptr;
}

void give_to_heap(void* p, std::size_t bytes, bool waited) {
  allow(p, bytes);
  if (!waited) return as_stream([p] { std::free(p); });
  look_away();
  std::free(p);
  look_again();
}

void forbid([[maybe_unused]] void* p, [[maybe_unused]] std::size_t bytes) {
#ifdef WEIR_SIM_POISON
  __asan_poison_memory_region(p, bytes);
#endif
}

void allow([[maybe_unused]] void* p, [[maybe_unused]] std::size_t bytes) {
#ifdef WEIR_SIM_POISON
  __asan_unpoison_memory_region(p, bytes);
#endif
}

void scribble(void* p, std::size_t bytes, unsigned char pattern) {
  constexpr std::size_t small = std::size_t{64} * 1024;
  constexpr std::size_t end = std::size_t{4} * 1024;
  auto* const first = static_cast<unsigned char*>(p);
  if (bytes <= small) {
    std::memset(first, pattern, bytes);
  } else {
    std::memset(first, pattern, end);
    std::memset(first + bytes - end, pattern, end);
  }
}

void begin_use(void* p, std::size_t bytes, unsigned char pattern) {
  allow(p, bytes);
  as_stream([p, bytes, pattern] { scribble(p, bytes, pattern); });
}

}  // namespace weir::sim::detail
