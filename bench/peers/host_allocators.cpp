// mimalloc and jemalloc: how fast an allocator can be that serves host memory, for one thing because it may write into
// free memory and knows no streams. Loaded while running, since linking either would replace `malloc` under all peers.

#include "../suite/suite.hpp"
#include "peers.hpp"

#include <dlfcn.h>

namespace bench {
namespace {

template <class F>
F* function(void* library, char const* name) {
  return reinterpret_cast<F*>(dlsym(library, name));
}

struct mimalloc_heap {
  static constexpr char const* name = "mimalloc (host memory)";
  static constexpr bool streams = false, threads = true;
  static constexpr std::size_t most_live = 100'000;

  static bool load() {
    void* const library = dlopen("libmimalloc.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    malloc_aligned = function<void*(std::size_t, std::size_t)>(library, "mi_malloc_aligned");
    free = function<void(void*)>(library, "mi_free");
    return malloc_aligned != nullptr && free != nullptr;
  }
  void* allocate(std::size_t, std::size_t bytes) { return malloc_aligned(bytes, 256); }
  void deallocate(std::size_t, void* p, std::size_t) { free(p); }

 private:
  static inline void* (*malloc_aligned)(std::size_t bytes, std::size_t alignment);
  static inline void (*free)(void*);
};

struct jemalloc_heap {
  static constexpr char const* name = "jemalloc (host memory)";
  static constexpr bool streams = false, threads = true;
  static constexpr std::size_t most_live = 100'000;

  static bool load() {
    void* const library = dlopen("libjemalloc.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    mallocx = function<void*(std::size_t, int)>(library, "mallocx");
    sdallocx = function<void(void*, std::size_t, int)>(library, "sdallocx");
    return mallocx != nullptr && sdallocx != nullptr;
  }
  void* allocate(std::size_t, std::size_t bytes) { return mallocx(bytes, aligned_to_256); }
  void deallocate(std::size_t, void* p, std::size_t bytes) { sdallocx(p, bytes, aligned_to_256); }

 private:
  static constexpr int aligned_to_256 = 8;  // MALLOCX_LG_ALIGN(8)
  static inline void* (*mallocx)(std::size_t bytes, int flags);
  static inline void (*sdallocx)(void*, std::size_t bytes, int flags);
};

}  // namespace

void add_host_allocators() {
  if (mimalloc_heap::load())
    add_peer<mimalloc_heap>();
  else
    leave_out("mimalloc", "there is no libmimalloc.so.2 (Debian: libmimalloc2.0)");
  if (jemalloc_heap::load())
    add_peer<jemalloc_heap>();
  else
    leave_out("jemalloc", "there is no libjemalloc.so.2 (Debian: libjemalloc2)");
}

}  // namespace bench
