#pragma once
// weir's stacks, on streams that last and on streams that may end.

#include "streams.hpp"

#include <weir/adaptors/arena.hpp>
#include <weir/adaptors/binning.hpp>
#include <weir/adaptors/fixed_size.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/logging.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/adaptors/trace.hpp>
#include <weir/adaptors/tracking.hpp>
#include <weir/sources/async.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/virtual_memory.hpp>

#include <cstddef>

namespace bench {

inline weir::limit const ample{.max_bytes = std::size_t{1} << 40};

inline auto pool() { return weir::device{} | weir::pool{}; }
inline auto growable() { return weir::virtual_memory{} | weir::pool{}; }
inline auto arenas() { return weir::device{} | weir::arena{}; }
inline auto bins() { return pool() | weir::binning::powers_of_two(8, 20); }
inline auto chunks() { return weir::device{} | weir::fixed_size{.block_bytes = 1 << 20}; }
inline auto waiting() { return weir::device{} | weir::pool{.pending = weir::when_pending::wait}; }
inline auto limited() { return pool() | ample; }
inline auto counted() { return pool() | weir::statistics{}; }
inline auto counted_by_tag() { return pool() | weir::statistics{.by_tag = true}; }
inline auto traced() { return pool() | weir::trace{}; }
inline auto seen() { return pool() | weir::statistics{.by_tag = true} | weir::trace{}; }
inline auto tracked() { return pool() | weir::tracking{}; }
inline auto tracked_with_stacks() { return pool() | weir::tracking{.frames = 8}; }
inline auto both() { return pool() | ample | weir::statistics{}; }
inline auto logged() { return pool() | weir::logging{.path = "/dev/null"}; }
/// A service's budget and its statistics, and in them a tenant's budget: each request passes all five.
inline auto five_layers() { return weir::async{} | weir::pool{} | ample | weir::statistics{} | ample; }

template <auto Recipe, class Streams = persistent_streams>
class stack {
  using memory_type = weir::made_by<decltype(Recipe())>;

 public:
  static constexpr bool streams = true, threads = true;
  static constexpr std::size_t most_live = 1'000'000;
  void* allocate(std::size_t stream, std::size_t bytes) { return memory_.allocate(streams_[stream], bytes); }
  void deallocate(std::size_t stream, void* p, std::size_t bytes) { memory_.deallocate(streams_[stream], p, bytes); }

  /// Host memory that the bookkeeping takes, where the stack says so.
  std::size_t metadata_bytes() const requires requires(memory_type const& m) { m.snapshot().host_bytes; }
  { return memory_.snapshot().host_bytes; }

 private:
  Streams streams_;
  decltype(Recipe()) recipe_ = Recipe();
  memory_type memory_ = weir::make(recipe_);
};

struct weir_pool : stack<pool> {
  static constexpr char const* name = "weir pool";
};
struct weir_pool_waiting : stack<waiting> {};
struct weir_pool_growable : stack<growable> {};
struct weir_pool_plain_streams : stack<pool, plain_streams> {
  static constexpr char const* name = "weir pool, plain streams";
};
struct weir_arena : stack<arenas> {
  static constexpr char const* name = "weir arena";
};
struct weir_binning : stack<bins> {
  static constexpr char const* name = "weir pool | binning";
};
struct weir_fixed_size : stack<chunks> {
  static constexpr char const* name = "weir fixed_size(1 MiB)";
};
struct weir_limit : stack<limited> {
  static constexpr char const* name = "weir pool | limit";
};
struct weir_statistics : stack<counted> {
  static constexpr char const* name = "weir pool | statistics";
};
struct weir_counted_by_tag : stack<counted_by_tag> {
  static constexpr char const* name = "weir pool | statistics(by_tag)";
};
struct weir_trace : stack<traced> {
  static constexpr char const* name = "weir pool | trace";
};
struct weir_seen : stack<seen> {
  static constexpr char const* name = "weir pool | statistics(by_tag) | trace";
};
struct weir_tracking : stack<tracked> {
  static constexpr char const* name = "weir pool | tracking";
};
struct weir_tracking_with_stacks : stack<tracked_with_stacks> {
  static constexpr char const* name = "weir pool | tracking(frames=8)";
};
struct weir_both : stack<both> {
  static constexpr char const* name = "weir pool | limit | statistics";
};
struct weir_logging : stack<logged> {
  static constexpr char const* name = "weir pool | logging";
};
struct weir_five_layers : stack<five_layers> {
  static constexpr char const* name = "weir async | pool | limit | statistics | limit";
};

}  // namespace bench
