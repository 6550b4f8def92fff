// What no pool here can be faster than: the loops themselves, and the least that a free by address has to do.

#include "../suite/suite.hpp"
#include "peers.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace bench {
namespace {

struct nothing {
  static constexpr char const* name = "(empty loop)";
  static constexpr bool streams = true, threads = false;
  static constexpr std::size_t most_live = 1'000'000;
  void* allocate(std::size_t, std::size_t bytes) {
    benchmark::DoNotOptimize(bytes);
    return this;
  }
  void deallocate(std::size_t, void* p, std::size_t) { benchmark::DoNotOptimize(p); }
};

/// Hands out what was freed last, whatever its size and stream. A free is told an address, and the block's own memory
/// must not be touched: so it reads something of the block's from a table, four bytes at the least, and where many are
/// live that is a cache miss which nothing can begin earlier. Fifty instructions a call, half of what the pool takes
/// for a pair, stand for the rest: the more there are, the fewer such misses a processor waits for at a time.
class floor_of_pools {
 public:
  static constexpr char const* name = "floor (4 B a block, 50 instructions a call)";
  static constexpr bool streams = true, threads = false;
  static constexpr std::size_t most_live = 1'000'000;

  floor_of_pools() : next_(most_live + 1) { std::iota(next_.begin(), next_.end(), 1); }

  void* allocate(std::size_t, std::size_t) {
    instructions();
    std::uint32_t const block = first_;
    first_ = next_[block];
    next_[block] = live;
    return reinterpret_cast<void*>((block + std::uintptr_t{1}) * block_bytes);
  }
  void deallocate(std::size_t, void* p, std::size_t) {
    instructions();
    auto const block = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(p) / block_bytes - 1);
    if (next_[block] != live) std::abort();
    next_[block] = first_;
    first_ = block;
  }

 private:
  static constexpr std::size_t block_bytes = 256;
  static constexpr std::uint32_t live = ~std::uint32_t{0};
  static void instructions() { asm volatile(".rept 40\n\tnop\n\t.endr"); }  // some ten are its own

  std::uint32_t first_ = 0;
  std::vector<std::uint32_t> next_;  // of a free block
};

}  // namespace

void add_floors() {
  add_peer<nothing>();
  add_peer<floor_of_pools>();
}

}  // namespace bench
