#pragma once
// The stacks that random programs run on: some that people would write, and any number that are made from a number.

#include <random/hoarding.hpp>
#include <random/open_stack.hpp>
#include <random/program.hpp>

#include <weir/adaptors/aligned.hpp>
#include <weir/adaptors/arena.hpp>
#include <weir/adaptors/binning.hpp>
#include <weir/adaptors/fallback.hpp>
#include <weir/adaptors/fixed_size.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/logging.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/prefetch.hpp>
#include <weir/adaptors/scrub.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/adaptors/trace.hpp>
#include <weir/adaptors/tracking.hpp>
#include <weir/adaptors/wait_for_memory.hpp>
#include <weir/bridges/cuda_mr.hpp>
#include <weir/core/resource_ref.hpp>
#include <weir/sources.hpp>
#include <weir/sources/callback.hpp>
#include <weir/sources/virtual_memory.hpp>
#include <weir/testing/checked.hpp>

#include <support/somebodys_mr.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace random_program {

using namespace weir::literals;

struct candidate {
  std::string name;
  std::function<stack()> make;
  bool streams_end = true;
  std::size_t most_bytes = 3_MiB;
};

template <class F>
candidate of(char const* name, F const& recipe, bool streams_end = true, std::size_t most_bytes = 3_MiB) {
  return {name, [recipe] { return make_stack(recipe); }, streams_end, most_bytes};
}

inline constexpr weir::checked above{"the top"};
inline constexpr weir::checked below{"the pool's upstream"};

/// A tenant that owns what it rents from: its layers stand on a handle to a stack of its own.
struct rented {
  static constexpr bool device_accessible = true, host_accessible = false, host_ordered = true;
  using base_type = weir::made_by<decltype(weir::device{} | below | weir::pool{})>;
  using middle_type = weir::made_by<decltype(std::declval<weir::resource_ref<base_type>>() | weir::limit{})>;
  using top_type =
      weir::made_by<decltype(std::declval<weir::resource_ref<middle_type>>() | weir::pool{} | weir::statistics{})>;

  void* allocate(weir::stream_ref s, std::size_t n, std::size_t a) { return top.allocate(s, n, a); }
  void deallocate(weir::stream_ref s, void* p, std::size_t n, std::size_t a) noexcept { top.deallocate(s, p, n, a); }
  /// So that a free counts also where CUDA fails in it and the memory is kept for good.
  void deallocate_after(weir::stream_ref s, void* p, std::size_t n, weir::stream_list others, std::size_t a) noexcept {
    weir::deallocate_after(top, s, p, n, others, a);
  }
  void describe(weir::report& out) const { weir::describe(top, out); }
  std::size_t taken(std::size_t n, std::size_t a) const { return weir::taken(top, n, a); }
  bool holds_captured(std::uint64_t capture) const { return weir::holds_captured(top, capture); }
  auto numbers() const { return top.numbers(); }
  void trim(std::size_t keep) { find<weir::pool_resource>(top).trim(keep), base.trim(keep); }
  void release_captured(std::uint64_t capture) { find<weir::pool_resource>(top).release_captured(capture); }

  explicit rented(int device) : base(weir::make(weir::device{.device = device} | below | weir::pool{})) {}
  int device() const { return weir::device_of(base); }

  base_type base;
  middle_type middle = weir::make(weir::share(base) | weir::limit{.max_bytes = 14_MiB});
  top_type top = weir::make(weir::share(middle) | weir::pool{.growth_bytes = 1_MiB} | weir::statistics{});
};
struct renting {
  int device = -1;
  rented operator()() const { return rented(device); }
};

/// Two pools on one set of chunks; requests go to one or the other by their size.
struct shared_pages {
  static constexpr bool device_accessible = true, host_accessible = false, host_ordered = true;
  using pool_type =
      weir::made_by<decltype(std::declval<weir::resource_ref<weir::virtual_memory_resource>>() | weir::pool{})>;

  void* allocate(weir::stream_ref s, std::size_t n, std::size_t a) { return of(n).allocate(s, n, a); }
  void deallocate(weir::stream_ref s, void* p, std::size_t n, std::size_t a) noexcept { of(n).deallocate(s, p, n, a); }
  void describe(weir::report& out) const { weir::describe(small, out); }
  std::size_t taken(std::size_t n, std::size_t a) const { return weir::taken(small, n, a); }
  bool holds_captured(std::uint64_t capture) const {
    return small.holds_captured(capture) || large.holds_captured(capture);
  }
  void trim(std::size_t keep) { small.trim(keep), large.trim(keep); }
  std::size_t release_captured(std::uint64_t capture) {
    return small.release_captured(capture) + large.release_captured(capture);
  }
  int device() const { return pages.device(); }

  explicit shared_pages(int device) : pages({.device = device, .max_bytes = 8_MiB, .scrub = true}) {}
  pool_type& of(std::size_t n) { return n <= 64_KiB ? small : large; }

  weir::virtual_memory_resource pages;
  pool_type small = weir::make(weir::share(pages) | weir::pool{.min_bytes = 2_MiB});
  pool_type large = weir::make(weir::share(pages) | weir::pool{.max_waste = 0});
};
struct sharing_pages {
  int device = -1;
  shared_pages operator()() const { return shared_pages(device); }
};

/// A pool that is parked and unparked when the program has waited for the device.
struct sleeper {
  static constexpr bool device_accessible = true, host_accessible = false, host_ordered = true;
  using pool_type = weir::made_by<decltype(weir::virtual_memory{} | weir::pool{})>;

  void* allocate(weir::stream_ref s, std::size_t n, std::size_t a) { return memory.allocate(s, n, a); }
  void deallocate(weir::stream_ref s, void* p, std::size_t n, std::size_t a) noexcept { memory.deallocate(s, p, n, a); }
  void deallocate_after(weir::stream_ref s, void* p, std::size_t n, weir::stream_list others, std::size_t a) noexcept {
    memory.deallocate_after(s, p, n, others, a);
  }
  void describe(weir::report& out) const { weir::describe(memory, out); }
  std::size_t taken(std::size_t n, std::size_t a) const { return weir::taken(memory, n, a); }
  bool holds_captured(std::uint64_t capture) const { return memory.holds_captured(capture); }
  auto numbers() const { return memory.numbers(); }
  void release_captured(std::uint64_t capture) { memory.release_captured(capture); }
  int device() const { return weir::device_of(memory); }
  /// After a wait for the device.
  void sleep() {
    try {
      memory.park(weir::share(contents));
    } catch (std::exception const&) {  // one of the calls failed, or a capture uses what was freed
    }
    for (int again = 0; memory.is_parked() && again < 4; ++again) try {
        memory.unpark();
      } catch (std::exception const&) {  // it stays parked
      }
  }

  explicit sleeper(int device) : memory(weir::make(weir::virtual_memory{.device = device} | weir::pool{})) {}
  weir::host_resource contents;
  pool_type memory;
};
struct sleeping {
  int device = -1;
  sleeper operator()() const { return sleeper(device); }
};

/// Functions that take CUDA's memory, and know streams or do not.
inline weir::callback calling(int device, weir::callback_order order) {
  bool const in_order = order == weir::callback_order::stream;
  return {.allocate = [in_order](weir::stream_ref s, std::size_t n, std::size_t a) -> void* {
            void* p = nullptr;
            if (a > 256) throw std::bad_alloc();
            bool const works = (in_order ? cudaMallocAsync(&p, n, s.get()) : cudaMalloc(&p, n)) == cudaSuccess;
            if (!works) static_cast<void>(cudaGetLastError());
            return works ? p : nullptr;
          },
          .deallocate =
              [in_order](weir::stream_ref s, void* p, std::size_t, std::size_t) {
                if ((in_order ? cudaFreeAsync(p, s.get()) : cudaFree(p)) != cudaSuccess)
                  static_cast<void>(cudaGetLastError());
              },
          .order = order,
          .device = device};
}

// ---- stacks from a number

/// Draws the layers and options of a stack.
class drawing {
 public:
  /// A stack on device memory is for `device`.
  drawing(std::uint64_t number, int device) : random_(number), device_(device) {}

  stack made() {
    stack s;
    anything top = source(s);
    top = anything(top | weir::checked{"the source"});
    std::uint64_t const layers = 1 + random_() % 4;
    for (std::uint64_t i = 0; i < layers; ++i) {
      top = layer(s, top);
      constexpr char const* levels[] = {"layer 1", "layer 2", "layer 3", "layer 4"};
      if (i + 1 != layers && !one_in(2)) continue;
      top = anything(top | weir::checked{levels[i]});
    }
    s.allocate = [top](weir::stream_ref st, std::size_t n, std::size_t a) { return top.allocate(st, n, a); };
    s.deallocate = [top](weir::stream_ref st, void* p, std::size_t n, std::size_t a) { top.deallocate(st, p, n, a); };
    s.deallocate_after = [top](weir::stream_ref st, void* p, std::size_t n, weir::stream_list others, std::size_t a) {
      top.deallocate_after(st, p, n, others, a);
    };
    s.find_block = [top](void const* p) { return weir::find_block(top, p); };
    s.taken = [top](std::size_t n, std::size_t a) { return weir::taken(top, n, a); };
    s.device = top.device();
    s.describe = [top] { return weir::report_of(top).chain(); };
    return s;
  }

 private:
  bool one_in(std::uint64_t n) { return random_() % n == 0; }
  template <class T>
  T one_of(std::initializer_list<T> all) {
    return all.begin()[random_() % all.size()];
  }

  template <class F>
  anything add(stack& s, F const& recipe) {
    return anything(recipe | exposed{&s});
  }

  anything source(stack& s) {
    switch (random_() % 8) {
      case 0:
        return add(s, weir::device{.device = device_});
      case 1:
        return add(s, weir::managed{.device = device_});
      case 2:
        return add(s, weir::pinned{.device = device_});
      case 3:
        return add(s, weir::host{});
      case 4:
        return add(s, weir::async{.device = device_,
                                  .release_threshold = one_of<std::size_t>({0, 4_MiB}),
                                  .handle_type = one_of({weir::memory_handle::none, weir::memory_handle::posix_fd})});
#if CUDART_VERSION >= 13000
      case 5:
        return add(s, weir::async_managed{.device = device_});
      case 6:
        return add(s, weir::async_pinned{.device = device_});
#endif
      default:
        return add(s, weir::async{.device = device_});
    }
  }

  weir::pool a_pool() {
    return {.initial_bytes = one_of<std::size_t>({0, 0, 1_MiB}),
            .max_bytes = one_of<std::size_t>({0, 0, 6_MiB, 12_MiB}),
            .growth_bytes = one_of<std::size_t>({0, 256_KiB, 1_MiB, 4_MiB}),
            .max_split_bytes = one_of<std::size_t>({0, 0, 2_MiB}),
            .release_threshold = one_of({std::numeric_limits<std::size_t>::max(), std::size_t{0}, std::size_t{2_MiB}}),
            .pending = one_of({weir::when_pending::grow, weir::when_pending::wait}),
            .synchronize = !one_in(4)};
  }

  anything layer(stack& s, anything const& up) {
    switch (random_() % 16) {
      case 0:
        return add(s, up | weir::limit{.max_bytes = one_of<std::size_t>({4_MiB, 12_MiB})});
      case 1:
        return add(s, up | weir::statistics{.by_tag = one_in(2)});
      case 2:
        return add(s, up | weir::logging{.path = "/dev/null", .buffer_bytes = one_of<std::size_t>({0, 4096})});
      case 3:
      case 4:
        return add(s, up | weir::arena{.max_bytes = one_of<std::size_t>({0, 12_MiB}),
                                       .growth_bytes = one_of<std::size_t>({0, 1_MiB}),
                                       .per = one_of({weir::arena::owner::thread, weir::arena::owner::stream}),
                                       .max_arenas = one_of<std::size_t>({1, 3, 64}),
                                       .pending = one_of({weir::when_pending::grow, weir::when_pending::wait}),
                                       .synchronize = !one_in(4)});
      case 5:
        return add(s, up | weir::binning::powers_of_two(static_cast<unsigned>(8 + random_() % 4),
                                                        static_cast<unsigned>(12 + random_() % 6)));
      case 6:
        return add(s,
                   up | weir::binning{{weir::bin{4_KiB, weir::fixed_size{.block_bytes = 4_KiB, .blocks_per_chunk = 8}},
                                       weir::bin{64_KiB, a_pool()}, weir::bin{1_MiB, weir::arena{}}}});
      case 7:
        return add(s, up | weir::limit{.max_bytes = 4_MiB} | weir::fallback{weir::host{} | a_pool()});
      case 8:
        return add(s, up | weir::aligned{.alignment = one_of<std::size_t>({512, 4_KiB, 2_MiB}),
                                         .from_bytes = one_of<std::size_t>({0, 4_KiB, 1_MiB})});
      case 10:
        return add(s, up | weir::tracking{.frames = one_of<std::size_t>({0, 0, 3})});
      case 11:
        return add(s, up | weir::trace{.events = one_of<std::size_t>({1, 100})});
      case 9:
        return add(s, up | weir::prefetch{.read_mostly = one_in(2)});
      default:
        return add(s, up | a_pool());
    }
  }

  std::mt19937_64 random_;
  int device_;
};

inline candidate drawn(std::uint64_t number, int device) {
  return {"number " + std::to_string(number), [=] { return drawing(number, device).made(); }};
}

// ---- stacks that people would write

/// Those on device memory are for device `d`.
inline std::vector<candidate> candidates(int d) {
  using namespace weir;
  return {
      of("async", async{.device = d} | above),
      of("device", device{.device = d} | above),
      of("pinned", pinned{.device = d} | above),
      of("pool on device", device{.device = d} | below | pool{} | above),
      of("pool on async", async{.device = d} | below | pool{} | above),
      of("pool that waits",
         async{.device = d} | below | pool{.initial_bytes = 4_MiB, .pending = when_pending::wait} | above),
      of("pool with a bound",
         device{.device = d} | below | pool{.max_bytes = 12_MiB, .growth_bytes = 1_MiB, .synchronize = false} | above),
      of("pool with caches for threads", device{.device = d} | below | pool{.thread_caches = true} | above),
      of("pool with caches that is small",
         async{.device = d} | below |
             pool{.max_bytes = 8_MiB, .growth_bytes = 1_MiB, .synchronize = false, .thread_caches = true} | above),
      of("pool that gives back early", device{.device = d} | below | pool{.release_threshold = 2_MiB} | above),
      of("pool that gives back at once",
         async{.device = d} | below | pool{.growth_bytes = 256_KiB, .release_threshold = 0} | above),
      of("pool that keeps large blocks whole", device{.device = d} | below | pool{.max_split_bytes = 1_MiB} | above),
      of("pool whose streams last",
         device{.device = d} | below | pool{.streams = stream_lifetime::outlives_pool} | above, false),
      of("pool whose streams last, that waits",
         async{.device = d} | below | pool{.streams = stream_lifetime::outlives_pool, .pending = when_pending::wait} |
             above,
         false),
      of("pool on a pool", async{.device = d} | below | pool{.growth_bytes = 8_MiB} | checked{"between"} |
                               pool{.growth_bytes = 1_MiB, .release_threshold = 1_MiB} | above),
      of("pool on pinned memory", pinned{.device = d} | below | pool{} | above),
      of("pool on host memory", host{} | below | pool{} | above),
      of("pool on system memory",
         [d] {
           weir::sim::set_pageable_access(true);
           return make(weir::system{.device = d} | below | pool{} | above);
         }),
      of("limited pool", device{.device = d} | below | pool{} | limit{.max_bytes = 10_MiB} | statistics{} | above),
      of("aligned source", async{.device = d} | below | aligned{.alignment = 64_KiB, .from_bytes = 4_KiB} | above),
      of("aligned pool", device{.device = d} | below | pool{} | aligned{} | limit{.max_bytes = 10_MiB} | above),
      of("scrubbed pool", device{.device = d} | below | pool{} | above | scrub{} | limit{.max_bytes = 10_MiB}),
      of("tracked", device{.device = d} | below | tracking{} | pool{} | tracking{} | above),
      of("traced", device{.device = d} | below | trace{.events = 7} | pool{} | trace{.events = 100} | above),
      of("pool that grows in place, traced",
         virtual_memory{.device = d} | trace{.events = 7} | pool{.max_waste = 0} | trace{.events = 100} | above),
      of("counted by tag", async{.device = d} | below | pool{} | statistics{.by_tag = true} | above),
      of("arena", device{.device = d} | below | arena{} | above),
      of("arena for each stream",
         async{.device = d} | below |
             arena{.max_bytes = 20_MiB, .growth_bytes = 1_MiB, .per = arena::owner::stream, .max_arenas = 3} | above),
      of("fixed size", async{.device = d} | below | fixed_size{.block_bytes = 64_KiB, .blocks_per_chunk = 16} | above,
         true, 64_KiB),
      of("fixed size with a bound",
         device{.device = d} | below | fixed_size{.block_bytes = 300, .blocks_per_chunk = 8, .max_bytes = 8_KiB} |
             above,
         true, 300),
      of("bins",
         device{.device = d} | below | pool{} | checked{"the bins' upstream"} | binning::powers_of_two(8, 16) | above),
      of("bins of stacks",
         async{.device = d} | below |
             binning{{bin{64_KiB, pool{}}, bin{1_MiB, [](auto up) { return up | pool{} | limit{8_MiB}; }}}} | above),
      of("managed memory in an arena",
         managed{.device = d} | below | arena{.growth_bytes = 2_MiB} | prefetch{.accessed_by = true} | above),
      of("an erased stack", [d] { return any_resource{async{.device = d} | below | pool{}}; } | above),
      of("a tenant in a tenant", renting{.device = d} | above),
      of("pool on functions", calling(d, callback_order::stream) | below | pool{} | above),
      of("pool on functions that know no streams", calling(d, callback_order::host) | below | pool{} | above),
      of("pool on a cuda::mr resource", from_cuda_mr(somebody::pool_mr{{}, d}, d) | below | pool{} | above),
      of("cuda::mr resource without streams", from_cuda_mr(somebody::plain_mr{{}, d}, d) | above),
      of("virtual memory", virtual_memory{.device = d} | above),
      of("pool that grows in place", virtual_memory{.device = d} | pool{} | above),
      of("pool that moves rather than grows",
         virtual_memory{.device = d, .max_bytes = 6_MiB} | pool{.max_waste = 0, .pending = when_pending::wait} | above),
      of("pool that grows in place under budgets",
         virtual_memory{.device = d} | limit{8_MiB} | tracking{.report_leaks = false} | statistics{.by_tag = true} |
             limit{6_MiB} | logging{.path = "/dev/null"} | pool{.max_waste = 0} | above),
      of("pool that moves what is pending",
         virtual_memory{.device = d, .max_bytes = 6_MiB} | pool{.max_waste = 0, .move_pending = true} | above),
      // Not `on_free`: to the checks above, what is freed is used when it is zeroed on its way out.
      of("pool that grows in place on scrubbed memory", virtual_memory{.device = d, .max_bytes = 6_MiB} |
                                                            scrub{.on_free = false, .on_allocation = true} |
                                                            pool{.max_waste = 0, .move_pending = true} | above),
      of("pool that grows in place and gives back",
         virtual_memory{.device = d} | pool{.release_threshold = 2_MiB} | above),
      of("arenas that grow in place",
         virtual_memory{.device = d} | arena{.max_bytes = 6_MiB, .per = arena::owner::stream, .max_arenas = 3} | above),
      of("pools that share pages", sharing_pages{.device = d} | above),
      of("a pool that sleeps", sleeping{.device = d} | above),
      of("a tenant with a reserve", [d] { return any_resource{device{.device = d} | below | pool{} | limit{12_MiB}}; } |
                                        limit{.max_bytes = 12_MiB, .soft_bytes = 2_MiB, .reserve_bytes = 4_MiB} |
                                        above),
      of("pool with a hoard", open_stack::hoarding{device{.device = d} | below | pool{.max_bytes = 12_MiB}, 8} | above),
      of("pool that falls back on another",
         device{.device = d} | below | pool{.max_bytes = 4_MiB} |
             fallback{managed{.device = d} | checked{"the second's upstream"} | pool{.growth_bytes = 1_MiB}} | above),
      of("pool that waits for memory, in vain",
         device{.device = d} | below | pool{.max_bytes = 10_MiB} | wait_for_memory{1} | above),
      of("everything", async{.device = d} | below | limit{.max_bytes = 14_MiB} | pool{} | checked{"between"} | arena{} |
                           statistics{} | logging{.path = "/dev/null"} | binning::powers_of_two(10, 14) | above),
  };
}

/// By its name. Throws if there is none.
inline candidate find_candidate(std::string const& name, int device) {
  for (candidate& c : candidates(device))
    if (c.name == name) return c;
  if (name.rfind("number ", 0) == 0) return drawn(std::stoull(name.substr(7)), device);
  throw std::invalid_argument("there is no stack \"" + name + '"');
}

}  // namespace random_program
