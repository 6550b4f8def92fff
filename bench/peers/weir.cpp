// weir's pool and arena on `device`, on streams that last and on streams that may end, and with layers on top.

#include "peers/peers.hpp"
#include "suite.hpp"

#include <weir/adaptors/arena.hpp>
#include <weir/adaptors/binning.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>

#include <array>

namespace bench {
namespace {

auto pool() { return weir::device{} | weir::pool{}; }
auto arenas() { return weir::device{} | weir::arena{}; }
auto bins() { return pool() | weir::binning::powers_of_two(8, 20); }
auto waiting() { return weir::device{} | weir::pool{.pending = weir::when_pending::wait}; }
auto limited() { return pool() | weir::limit{.max_bytes = std::size_t{1} << 40}; }
auto counted() { return pool() | weir::statistics{}; }
auto both() { return pool() | weir::limit{.max_bytes = std::size_t{1} << 40} | weir::statistics{}; }

/// The default stream and seven `weir::stream`s, which a pool recognises without a call.
class lasting_streams {
 public:
  weir::stream_ref operator[](std::size_t i) const { return refs_[i]; }

 private:
  std::array<weir::stream, most_streams - 1> made_;
  std::array<weir::stream_ref, most_streams> refs_{weir::stream_ref(), made_[0], made_[1], made_[2],
                                                   made_[3],           made_[4], made_[5], made_[6]};
};

/// Streams that the program makes and ends itself.
class plain_streams {
 public:
  plain_streams() {
    for (cudaStream_t& s : made_) cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
  }
  ~plain_streams() {
    for (cudaStream_t s : made_) cudaStreamDestroy(s);
  }
  plain_streams(plain_streams const&) = delete;
  plain_streams& operator=(plain_streams const&) = delete;
  weir::stream_ref operator[](std::size_t i) const { return made_[i]; }

 private:
  std::array<cudaStream_t, most_streams> made_{};
};

template <auto Recipe, class Streams = lasting_streams>
class stack {
 public:
  static constexpr bool streams = true, threads = true;
  static constexpr std::size_t most_live = 1'000'000;
  void* allocate(std::size_t stream, std::size_t bytes) { return memory_.allocate(streams_[stream], bytes); }
  void deallocate(std::size_t stream, void* p, std::size_t bytes) { memory_.deallocate(streams_[stream], p, bytes); }

 private:
  Streams streams_;
  decltype(Recipe()) recipe_ = Recipe();
  weir::made_by<decltype(Recipe())> memory_ = weir::make(recipe_);
};

struct weir_pool : stack<pool> {
  static constexpr char const* name = "weir pool";
};
struct weir_pool_waiting : stack<waiting> {};
struct weir_pool_plain_streams : stack<pool, plain_streams> {
  static constexpr char const* name = "weir pool, plain streams";
};
struct weir_arena : stack<arenas> {
  static constexpr char const* name = "weir arena";
};
struct weir_binning : stack<bins> {
  static constexpr char const* name = "weir pool | binning";
};
struct weir_limit : stack<limited> {
  static constexpr char const* name = "weir pool | limit";
};
struct weir_statistics : stack<counted> {
  static constexpr char const* name = "weir pool | statistics";
};
struct weir_both : stack<both> {
  static constexpr char const* name = "weir pool | limit | statistics";
};

}  // namespace

void add_weir() {
  add_peer<weir_pool>();
  add_peer<weir_pool_plain_streams>();
  add_peer<weir_arena>();
  add_peer<weir_binning>();
  add_pairs<weir_limit>();
  add_pairs<weir_statistics>();
  add_pairs<weir_both>();
}
void offer_weir(subject_list& list) {
  offer<weir_pool>(list, "weir-pool");
  offer<weir_pool_waiting>(list, "weir-pool-waiting");
  offer<weir_pool_plain_streams>(list, "weir-pool-plain-streams");
  offer<weir_arena>(list, "weir-arena");
  offer<weir_binning>(list, "weir-pool-binning");
  offer<weir_both>(list, "weir-pool-limit-statistics");
}

}  // namespace bench
