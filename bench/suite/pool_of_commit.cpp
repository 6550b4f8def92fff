// The pool of one commit, for `bench/run --against`: compiled once with the headers of each commit, to shared libraries
// that the suite loads side by side. Of weir it uses the public API only, so that it compiles with either.
//
// BENCH_COMMIT is the peer's name in the table, "weir@0f0ef50".

#include "../peers/subject.hpp"
#include "suite.hpp"

#include <weir/adaptors/pool.hpp>
#include <weir/core/recipe.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>

#include <array>
#include <cstddef>

namespace bench {
namespace {

using streams_made = std::array<weir::stream, most_streams - 1>;

class pool_of_commit {
 public:
  static constexpr char const* name = BENCH_COMMIT;
  static constexpr bool streams = true, threads = true;
  static constexpr std::size_t most_live = 1'000'000;

  pool_of_commit() {
    static auto const* const made = new streams_made;  // they outlive every pool
    for (std::size_t i = 1; i < most_streams; ++i) streams_[i] = (*made)[i - 1];
  }
  void* allocate(std::size_t stream, std::size_t bytes) { return memory_.allocate(streams_[stream], bytes); }
  void deallocate(std::size_t stream, void* p, std::size_t bytes) { memory_.deallocate(streams_[stream], p, bytes); }

 private:
  std::array<weir::stream_ref, most_streams> streams_{};  // number 0 is the default stream
  weir::made_by<decltype(weir::device{} | weir::pool{})> memory_ = weir::make(weir::device{} | weir::pool{});
};

}  // namespace
}  // namespace bench

/// Registers the benches of this commit's pool; the suite finds it by its name.
extern "C" [[gnu::visibility("default")]] void bench_add_pool_of_commit() { bench::add_peer<bench::pool_of_commit>(); }
