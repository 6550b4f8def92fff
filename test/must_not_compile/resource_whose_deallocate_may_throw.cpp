// refused: no matching function for call to .share
#include <weir/core/resource_ref.hpp>

#include <cstddef>

struct own_resource {
  void* allocate(weir::stream_ref, std::size_t, std::size_t) { return nullptr; }
#if defined(REFUSED)
  void deallocate(weir::stream_ref, void*, std::size_t, std::size_t) {}
#else
  void deallocate(weir::stream_ref, void*, std::size_t, std::size_t) noexcept {}
#endif
};

int main() {
  own_resource memory;
  static_cast<void>(weir::share(memory));
}
