// refused: weir::from_cuda_mr: this resource cannot be copied; give a reference
#include <weir/bridges/cuda_mr.hpp>

#include <cstdlib>

struct theirs {
  theirs() = default;
#if defined(REFUSED)
  theirs(theirs const&) = delete;
  theirs(theirs&&) = default;
#endif
  void* allocate(std::size_t bytes, std::size_t) { return std::malloc(bytes); }
  void deallocate(void* p, std::size_t, std::size_t) noexcept { std::free(p); }
  void* allocate_sync(std::size_t bytes, std::size_t) { return std::malloc(bytes); }
  void deallocate_sync(void* p, std::size_t, std::size_t) noexcept { std::free(p); }
  friend bool operator==(theirs const&, theirs const&) noexcept { return true; }
  friend constexpr void get_property(theirs const&, cuda::mr::host_accessible) noexcept {}
};

int main() { weir::from_cuda_mr const recipe(theirs{}); }
