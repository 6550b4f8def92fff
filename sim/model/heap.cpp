#include "model/heap.hpp"

#include "model/pages.hpp"
#include "model/tsan_fibers.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>

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
extern "C" void __lsan_register_root_region(void const* p, std::size_t bytes);
extern "C" void __lsan_unregister_root_region(void const* p, std::size_t bytes);
// NOLINTEND(bugprone-reserved-identifier)
#endif

namespace weir::sim::detail {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t large_bytes = std::size_t{1} << 20;

#ifdef WEIR_SIM_POISON
// Under the address sanitizer large blocks are pages of their own, which the system's protection guards. The sanitizer
// would overwrite what it knows of a block, an eighth of its size, several times in the block's life, and the system
// makes that memory anew each time: most of the time of tests that use gigabytes.
bool has_pages(std::size_t bytes) { return bytes >= large_bytes; }

std::size_t whole_pages(std::size_t bytes) { return (bytes + page_bytes - 1) / page_bytes * page_bytes; }

// The pages that a block is on; behind them is one that nobody may touch.
struct block_pages {
  unsigned char* first;
  std::size_t bytes;
};
block_pages find_pages(void* p, std::size_t bytes) {
  std::size_t const before = reinterpret_cast<std::uintptr_t>(p) % page_bytes;
  return {static_cast<unsigned char*>(p) - before, whole_pages(before + bytes)};
}

void* take_pages_for(std::size_t bytes, std::size_t alignment) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  // No better aligned than it has to be, as a block of the heap is.
  std::size_t const before = alignment < page_bytes ? alignment : 0;
  std::size_t const all = whole_pages(before + bytes);
  void* const pages = reserve_addresses(nullptr, all + page_bytes, alignment < page_bytes ? page_bytes : alignment);
  if (pages == nullptr) return nullptr;
  if (!open_pages(pages, all, true)) {
    give_addresses_back(pages, all + page_bytes);
    return nullptr;
  }
  auto* const block = static_cast<unsigned char*>(pages) + before;
  __asan_poison_memory_region(pages, before);
  __asan_poison_memory_region(block + bytes, all - before - bytes);
  __lsan_register_root_region(pages, all);  // objects that only the block names are no leaks
  return block;
}

// What went last keeps its addresses, which cost nothing, so that a late use of it is seen.
void give_pages(block_pages block) {
  static block_pages gone[256];
  static std::size_t next = 0;
  __lsan_unregister_root_region(block.first, block.bytes);
  unmap_pages(block.first, block.bytes);
  block_pages& oldest = gone[next++ % std::size(gone)];
  if (oldest.first != nullptr) give_addresses_back(oldest.first, oldest.bytes + page_bytes);
  oldest = block;
}
#endif

}  // namespace

void* take_from_heap(std::size_t bytes, std::size_t alignment) {
#ifdef WEIR_SIM_POISON
  if (has_pages(bytes)) return take_pages_for(bytes, alignment);
#endif
  void* p = nullptr;
  return posix_memalign(&p, alignment, bytes) == 0 ? p : nullptr;
}

void give_to_heap(void* p, std::size_t bytes, bool waited) {
#ifdef WEIR_SIM_POISON
  if (has_pages(bytes)) return give_pages(find_pages(p, bytes));
#endif
  allow(p, bytes);
  if (!waited) return as_stream([p] { std::free(p); });
  look_away();
  std::free(p);
  look_again();
}

void forbid([[maybe_unused]] void* p, [[maybe_unused]] std::size_t bytes) {
#ifdef WEIR_SIM_POISON
  if (!has_pages(bytes)) return __asan_poison_memory_region(p, bytes);
  block_pages const block = find_pages(p, bytes);
  open_pages(block.first, block.bytes, false);
#endif
}

void allow([[maybe_unused]] void* p, [[maybe_unused]] std::size_t bytes) {
#ifdef WEIR_SIM_POISON
  if (!has_pages(bytes)) return __asan_unpoison_memory_region(p, bytes);
  block_pages const block = find_pages(p, bytes);
  open_pages(block.first, block.bytes, true);
#endif
}

void unpoison([[maybe_unused]] void* p, [[maybe_unused]] std::size_t bytes) {
#ifdef WEIR_SIM_POISON
  __asan_unpoison_memory_region(p, bytes);
#endif
}

namespace {

// Valgrind does not learn from the host that its new pages are 0, and would report reads of them. It is there where its
// libraries were loaded first.
bool in_valgrind() {
  static bool const is_there = [] {
    char const* const loaded_first = std::getenv("LD_PRELOAD");
    return loaded_first != nullptr && std::strstr(loaded_first, "vgpreload") != nullptr;
  }();
  return is_there;
}

}  // namespace

void zero(void* p, std::size_t bytes, pages_of_memory pages) {
  auto* const first = static_cast<unsigned char*>(p);
  // Something is written at both ends, so that a use of what nobody may touch does not go unseen.
  std::size_t const before = page_bytes - reinterpret_cast<std::uintptr_t>(p) % page_bytes;
  std::size_t const whole = bytes < large_bytes ? 0 : (bytes - before - 1) / page_bytes * page_bytes;
  if (pages == pages_of_memory::program || streams_are_fibers || in_valgrind() || whole == 0 ||
      !zero_pages(first + before, whole, pages == pages_of_memory::views)) {
    std::memset(p, 0, bytes);
    return;
  }
  std::memset(first, 0, before);
  std::memset(first + before + whole, 0, bytes - before - whole);
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
