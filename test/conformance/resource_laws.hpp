#pragma once
// The laws that every resource keeps (docs/concepts.md), as one check for all: `check_resource(recipe)`.
//
// A check is only worth what it can catch, so the laws return what they found broken as text, and
// laws_of_the_laws.cpp shows each of them a resource that breaks it. Runs on the simulated runtime, in both modes, and
// needs a stack that can hold 64 MiB (or what it is told) and owns all it stands on: the simulated runtime is reset
// between laws.

#include <weir/core/error.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/resource.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sim/sim.hpp>

#include <doctest/doctest.h>
#include <support/destroyable_stream.hpp>
#include <support/filled.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weir::laws {

using test::destroyable_stream;

inline constexpr std::size_t kib = 1024, mib = 1024 * kib;
inline std::size_t capacity = 64 * mib;                        ///< of each device and of the host, in the laws
inline constexpr std::size_t too_much = std::size_t{1} << 48;  ///< more than any address space has, but no overflow
inline constexpr std::size_t any_size = std::numeric_limits<std::size_t>::max();

/// What was found broken, each thing once, and no more than one can read.
class findings {
 public:
  /// Says where the next findings are from: a law, a mode.
  void enter(std::string law) { law_ = std::move(law); }
  void expect(bool holds, std::string const& otherwise) {
    if (holds || list_.size() == most) return;
    std::string text = law_ + ": " + otherwise;
    if (std::find(list_.begin(), list_.end(), text) == list_.end()) list_.push_back(std::move(text));
  }
  std::vector<std::string> const& list() const { return list_; }

 private:
  static constexpr std::size_t most = 25;
  std::string law_;
  std::vector<std::string> list_;
};

struct block {
  stream_ref stream;
  void* p = nullptr;
  std::size_t bytes = 0;
  std::size_t alignment = default_alignment;
};

/// What the laws know of a resource. Behind one type, so that they are compiled once and not for each stack.
class subject {
 public:
  virtual ~subject() = default;
  virtual void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) = 0;
  virtual void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept = 0;
  virtual report described() const = 0;

  bool device_accessible = false, host_accessible = false, host_ordered = false, describes_itself = false;
};

template <resource R>
class subject_of final : public subject {
 public:
  template <recipe F>
  explicit subject_of(F const& f) : held_(f()) {
    device_accessible = weir::device_accessible<R>;
    host_accessible = weir::host_accessible<R>;
    host_ordered = weir::host_ordered<R>;
    describes_itself = requires(R const& r, report& out) { r.describe(out); };
  }
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment) override {
    return held_.allocate(stream, bytes, alignment);
  }
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment) noexcept override {
    held_.deallocate(stream, p, bytes, alignment);
  }
  report described() const override { return report_of(held_); }

 private:
  R held_;
};

/// Makes the resource that is judged, again for each law.
using maker = std::function<std::unique_ptr<subject>()>;

inline block take(subject& memory, stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
  return {stream, memory.allocate(stream, bytes, alignment), bytes, alignment};
}
inline void give_back(subject& memory, block const& b) { memory.deallocate(b.stream, b.p, b.bytes, b.alignment); }

/// Fills a block as its user would: queued on its stream, or by the host if the device cannot reach it.
inline void fill(subject const& memory, block const& b, int value) {
  if (memory.device_accessible) {
    // In host order any stream may use the memory at once, and is waited for before the memory goes back.
    destroyable_stream const other;
    cudaStream_t const stream = b.stream.is_host_order() ? other.get() : b.stream.get();
    detail::check(cudaMemsetAsync(b.p, value, b.bytes, stream), "cudaMemsetAsync");
    if (b.stream.is_host_order()) detail::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  } else {
    detail::check(cudaStreamSynchronize(b.stream.get()), "cudaStreamSynchronize");
    std::memset(b.p, value, b.bytes);
  }
}

/// True if the whole block holds `value` once the work on its stream is done. The simulated runtime's memory is the
/// host's.
inline bool holds(block const& b, int value) {
  detail::check(cudaStreamSynchronize(b.stream.get()), "cudaStreamSynchronize");
  return test::is_filled(b.p, b.bytes, static_cast<unsigned char>(value));
}

struct world_state {
  std::size_t allocations = sim::live_allocations();
  std::size_t bytes = sim::live_bytes(0) + sim::live_bytes(1);
};

inline void begin_world(sim::mode mode) {
  sim::reset();
  sim::set_mode(mode);
  for (int device : {0, 1}) sim::set_capacity(device, capacity);
  sim::set_host_capacity(capacity);
  static_cast<void>(cudaGetLastError());
}

/// Runs `body(memory, a, b)` on a new resource in a fresh simulated runtime, in both modes; then all must have gone
/// back.
template <class Body>
void for_each_mode(maker const& f, findings& found, std::string const& law, Body body) {
  for (auto const mode : {sim::mode::immediate, sim::mode::lazy}) {
    found.enter(law + (mode == sim::mode::lazy ? " (lazy)" : ""));
    begin_world(mode);
    try {
      destroyable_stream const a, b;
      auto const memory = f();
      body(*memory, a, b);
      sim::run_all();
    } catch (std::exception const& error) {
      found.expect(false, std::string("threw unexpectedly: ") + error.what());
    }
    sim::run_all();
    found.expect(sim::live_allocations() == 0, "not every byte went back upstream at destruction");
    found.expect(cudaPeekAtLastError() == cudaSuccess, "the thread's last error was left behind");
  }
}

/// A request that must be refused as out of memory, and change nothing.
inline void expect_refused(subject& memory, findings& found, stream_ref stream, std::size_t bytes,
                           std::size_t alignment) {
  std::string const which = std::to_string(bytes) + " B aligned to " + std::to_string(alignment);
  world_state const before;
  try {
    block const b = take(memory, stream, bytes, alignment);
    found.expect(false, "a request of " + which + " was not refused");
    give_back(memory, b);
    return;
  } catch (out_of_memory const& error) {
    found.expect(error.bytes() == bytes,
                 "the error for " + which + " speaks of " + std::to_string(error.bytes()) + " B");
    found.expect(std::string(error.what()).find(error.refused_by()) != std::string::npos,
                 "the report does not name the layer that refused");
    found.expect(*error.hint() != '\0', "the report does not say what to do");
  } catch (std::exception const& error) {
    found.expect(false, "a request of " + which + " failed with something else than out_of_memory: " + error.what());
  }
  world_state const after;
  found.expect(after.allocations <= before.allocations && after.bytes <= before.bytes,
               "an out of memory kept memory from upstream");
  found.expect(cudaPeekAtLastError() == cudaSuccess, "an out of memory left the thread's last error behind");
}

inline void alignment_law(maker const& f, findings& found) {
  for_each_mode(f, found, "alignment", [&](subject& memory, destroyable_stream const& a, destroyable_stream const&) {
    std::vector<block> live;
    for (stream_ref const stream : {stream_ref(a), stream_ref(host_order)})
      for (std::size_t alignment = 1; alignment <= max_alignment; alignment *= 2)
        for (std::size_t const bytes : {std::size_t{1}, std::size_t{1000}, std::size_t{70'000}}) {
          live.push_back(take(memory, stream, bytes, alignment));
          found.expect(reinterpret_cast<std::uintptr_t>(live.back().p) % alignment == 0,
                       "an alignment of " + std::to_string(alignment) + " B was not honoured");
        }
    for (std::size_t i = 0; i < live.size(); i += 2) give_back(memory, live[i]);
    for (std::size_t i = 1; i < live.size(); i += 2) give_back(memory, live[i]);

    for (std::size_t const bad : {std::size_t{0}, std::size_t{3}, std::size_t{24}, std::size_t{257}, 2 * max_alignment,
                                  any_size, any_size / 2 + 1}) {
      std::string const which = "a bad alignment of " + std::to_string(bad) + " B ";
      world_state const before;
      try {
        block const b = take(memory, a, 64, bad);
        found.expect(false, which + "was not refused");
        give_back(memory, b);
      } catch (std::invalid_argument const&) {
      } catch (std::exception const& error) {
        found.expect(false, which + "was not refused as an invalid_argument but: " + error.what());
      }
      found.expect(world_state().bytes <= before.bytes, which + "took memory");
    }
  });
}

/// Random requests and frees on several streams: no live blocks overlap, and nobody else writes into one.
inline void no_overlap_law(maker const& f, findings& found) {
  for_each_mode(f, found, "no overlap", [&](subject& memory, destroyable_stream const& a, destroyable_stream const& b) {
    weir::stream const lasting;
    stream_ref const streams[] = {a, b, lasting, host_order};
    std::uint32_t seed = 12345;
    auto const random = [&seed](std::uint32_t below) {
      seed = seed * 1664525 + 1013904223;
      return static_cast<std::uint32_t>((std::uint64_t{seed} * below) >> 32);
    };
    std::map<std::uintptr_t, std::pair<block, int>> live;
    auto const free_at = [&](auto position) {
      auto const [b_, value] = position->second;
      found.expect(holds(b_, value), "the contents of a live block changed");
      live.erase(position);
      give_back(memory, b_);
    };
    for (int step = 0; step < 400; ++step) {
      if (live.size() > 40 || (!live.empty() && random(5) < 2)) {
        free_at(std::next(live.begin(), random(static_cast<std::uint32_t>(live.size()))));
        continue;
      }
      std::size_t const bytes = 1 + random(random(8) == 0 ? 512 * 1024 : 8 * 1024);
      block const b_ = take(memory, streams[random(4)], bytes, std::size_t{1} << random(13));
      auto const address = reinterpret_cast<std::uintptr_t>(b_.p);
      auto const above = live.lower_bound(address);
      bool const clear =
          (above == live.end() || address + bytes <= above->first) &&
          (above == live.begin() || std::prev(above)->first + std::prev(above)->second.first.bytes <= address);
      found.expect(clear, "two live blocks overlap");
      if (!clear) continue;  // giving both back would tell the resource a lie
      fill(memory, b_, step);
      live.emplace(address, std::pair(b_, step));
    }
    while (!live.empty()) free_at(live.begin());
  });
}

inline void zero_bytes_law(maker const& f, findings& found) {
  for_each_mode(f, found, "zero bytes", [&](subject& memory, destroyable_stream const& a, destroyable_stream const&) {
    for (stream_ref const stream : {stream_ref(a), stream_ref(host_order), stream_ref()}) {
      world_state const before;
      auto const calls = sim::calls();
      void* const p = memory.allocate(stream, 0, default_alignment);
      found.expect(p == nullptr, "an allocation of nothing is not nullptr");
      memory.deallocate(stream, p, 0, default_alignment);
      memory.deallocate(stream, nullptr, 0, default_alignment);
      found.expect(sim::calls() == calls, "an allocation of nothing called CUDA");
      found.expect(world_state().allocations == before.allocations, "an allocation of nothing took memory");
    }
  });
}

/// What is freed can be had again, for ever: many times the capacity goes through.
inline void reuse_law(maker const& f, findings& found) {
  for_each_mode(f, found, "reuse", [&](subject& memory, destroyable_stream const& a, destroyable_stream const& b) {
    for (int round = 0; round < 200; ++round) give_back(memory, take(memory, a, mib));
    for (int round = 0; round < 200; ++round)
      give_back(memory, take(memory, round % 2 == 0 ? stream_ref(a) : stream_ref(b), mib));
    for (int round = 0; round < 200; ++round) give_back(memory, take(memory, host_order, mib));
  });
}

/// Work queued before a free is done before the memory's next owner works on it, whatever streams the two use.
inline void stream_order_law(maker const& f, findings& found) {
  for_each_mode(f, found, "stream order",
                [&](subject& memory, destroyable_stream const& a, destroyable_stream const& b) {
                  weir::stream const lasting;
                  stream_ref const orders[] = {a, b, lasting, cudaStreamLegacy, cudaStreamPerThread, host_order};
                  for (stream_ref const from : orders)
                    for (stream_ref const to : orders)
                      for (std::size_t const bytes : {4 * kib, 300 * kib}) {
                        block const first = take(memory, from, bytes);
                        fill(memory, first, 1);
                        give_back(memory, first);
                        block const second = take(memory, to, bytes);
                        fill(memory, second, 2);
                        found.expect(holds(second, 2), "the contents of a new block are not what its owner wrote");
                        sim::run_all();
                        found.expect(holds(second, 2),
                                     "the owner before still wrote to a block after it was given to another stream");
                        give_back(memory, second);
                      }
                });
}

/// A stream may be destroyed once the memory allocated on it is freed, also before its work is done.
inline void dead_streams_law(maker const& f, findings& found) {
  for_each_mode(f, found, "dead streams", [&](subject& memory, destroyable_stream const& a, destroyable_stream const&) {
    for (int round = 0; round < 20; ++round) {
      {
        destroyable_stream const passing;
        block const b = take(memory, passing, 64 * kib);
        fill(memory, b, 1);
        give_back(memory, b);
      }
      destroyable_stream const next;  // may get the handle of the one that died
      block const same = take(memory, next, 64 * kib);
      block const other = take(memory, a, 64 * kib);
      fill(memory, same, 2);
      fill(memory, other, 3);
      found.expect(holds(same, 2) && holds(other, 3), "the contents of a new block are not what its owner wrote");
      sim::run_all();
      found.expect(holds(same, 2) && holds(other, 3), "work of a destroyed stream wrote to a block's next owner");
      give_back(memory, same);
      give_back(memory, other);
    }
  });
}

inline void overflow_law(maker const& f, findings& found) {
  for_each_mode(f, found, "overflow", [&](subject& memory, destroyable_stream const& a, destroyable_stream const&) {
    for (stream_ref const stream : {stream_ref(a), stream_ref(host_order)})
      for (std::size_t const below :
           {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{15}, std::size_t{63}, std::size_t{127},
            std::size_t{254}, std::size_t{255}, std::size_t{256}, std::size_t{257}, std::size_t{511}, std::size_t{512},
            std::size_t{4095}, std::size_t{65535}, mib, 2 * mib - 1, 2 * mib, any_size / 2, any_size / 2 + 1})
        for (std::size_t const alignment : {std::size_t{1}, default_alignment, std::size_t{4096}, max_alignment})
          expect_refused(memory, found, stream, any_size - below, alignment);
    give_back(memory, take(memory, a, 1000));
  });
}

/// How many blocks of 1 MiB can be had at once, up to 100. All are given back.
inline std::size_t room(subject& memory, findings& found, stream_ref stream) {
  std::vector<block> live;
  try {
    while (live.size() < 100) live.push_back(take(memory, stream, mib));
  } catch (out_of_memory const&) {
    found.expect(cudaPeekAtLastError() == cudaSuccess, "an out of memory left the thread's last error behind");
    if (!live.empty()) {
      give_back(memory, live.back());
      live.back() = take(memory, stream, mib);  // what was just given back is there again
    }
  }
  for (block const& b : live) give_back(memory, b);
  return live.size();
}

inline void out_of_memory_law(maker const& f, findings& found) {
  for_each_mode(
      f, found, "out of memory", [&](subject& memory, destroyable_stream const& a, destroyable_stream const&) {
        for (stream_ref const stream : {stream_ref(a), stream_ref(host_order)}) {
          std::size_t const before = room(memory, found, stream);
          found.expect(before != 0, "not even 1 MiB could be had");
          for (int round = 0; round < 5; ++round) {
            expect_refused(memory, found, stream, too_much, default_alignment);
            give_back(memory, take(memory, stream, 1000));
          }
          found.expect(room(memory, found, stream) >= before, "after an out of memory there is less room than before");
        }
      });
}

/// Allocates; if that throws one of the errors a resource may throw, once more, which must succeed.
inline block take_stubbornly(subject& memory, findings& found, stream_ref stream, std::size_t bytes,
                             std::size_t alignment) {
  std::string why;
  for (int attempt = 0; attempt < 2; ++attempt) try {
      return take(memory, stream, bytes, alignment);
    } catch (std::bad_alloc const& error) {
      why = error.what();
    } catch (cuda_error const& error) {
      why = error.what();
    } catch (std::exception const& error) {
      found.expect(false, std::string("threw something else than cuda_error or bad_alloc: ") + error.what());
    }
  found.expect(false, "a request did not succeed when it was repeated after the failure: " + why);
  return {stream, nullptr, 0, alignment};
}

/// One use of a resource that reaches all its corners: both orders, large alignment, growth, a change of streams.
inline void use(subject& memory, findings& found, stream_ref a, stream_ref b) {
  block const small = take_stubbornly(memory, found, a, 1000, default_alignment);
  block const medium = take_stubbornly(memory, found, a, 70'000, default_alignment);
  block const synced = take_stubbornly(memory, found, host_order, 300, default_alignment);
  block const aligned = take_stubbornly(memory, found, b, 5000, 4096);
  give_back(memory, small);
  block const stolen = take_stubbornly(memory, found, b, 1000, default_alignment);
  block const large = take_stubbornly(memory, found, a, 3 * mib, default_alignment);
  give_back(memory, medium);
  give_back(memory, aligned);
  give_back(memory, stolen);
  give_back(memory, large);
  block const crossing = take_stubbornly(memory, found, b, 3 * mib, max_alignment);
  block const synced_large = take_stubbornly(memory, found, host_order, 2 * mib, default_alignment);
  give_back(memory, synced);
  give_back(memory, crossing);
  give_back(memory, synced_large);
}

inline std::uint64_t calls_of(std::initializer_list<char const*> names) {
  std::uint64_t sum = 0;
  for (char const* name : names) sum += sim::calls(name);
  return sum;
}

/// Fails the k-th CUDA call of a life, or none for k = 0. Returns how many calls there were.
inline std::uint64_t live_with_failure(maker const& f, findings& found, sim::mode mode, std::uint64_t k,
                                       cudaError_t code) {
  begin_world(mode);
  destroyable_stream const a, b;
  sim::reset_counters();
  if (k != 0) sim::fail_call(k, code);
  std::string why;
  for (int attempt = 0; attempt < 2; ++attempt) try {
      why.clear();
      auto const memory = f();
      use(*memory, found, a, b);
      break;
    } catch (std::bad_alloc const& error) {
      why = error.what();
    } catch (cuda_error const& error) {
      why = error.what();
    } catch (std::exception const& error) {
      why = std::string("with something else than cuda_error or bad_alloc: ") + error.what();
      found.expect(false, "making it failed " + why);
    }
  found.expect(why.empty(), "making it again did not succeed: " + why);
  std::uint64_t const calls = sim::calls();
  auto const taken =
      calls_of({"cudaMalloc", "cudaMallocManaged", "cudaHostAlloc", "cudaMallocAsync", "cudaMallocFromPoolAsync"});
  auto const freed = calls_of({"cudaFree", "cudaFreeHost", "cudaFreeAsync"});
  sim::clear_failure();
  sim::run_all();
  // If the failing call is itself what frees a block, that block is lost, and no resource can help it. It shows in
  // that as many frees were called as allocations.
  found.expect(sim::live_allocations() == 0 || (sim::live_allocations() == 1 && freed >= taken && k != 0),
               "memory leaked when a CUDA call failed");
  found.expect(cudaPeekAtLastError() == cudaSuccess, "the thread's last error was left behind");
  return calls;
}

inline void failing_calls_law(maker const& f, findings& found) {
  for (auto const mode : {sim::mode::immediate, sim::mode::lazy}) {
    std::string const where = mode == sim::mode::lazy ? "failing calls (lazy)" : "failing calls";
    found.enter(where);
    std::size_t const before = found.list().size();
    std::uint64_t const calls = live_with_failure(f, found, mode, 0, cudaSuccess);
    if (found.list().size() != before) continue;  // it does not even work when nothing fails
    for (cudaError_t const code : {cudaErrorMemoryAllocation, cudaErrorUnknown})
      for (std::uint64_t k = 1; k <= calls; ++k) {
        found.enter(where + ", " + cudaGetErrorName(code) + " from call " + std::to_string(k) + " of " +
                    std::to_string(calls));
        live_with_failure(f, found, mode, k, code);
      }
  }
}

inline void facts_law(maker const& f, findings& found) {
  for_each_mode(f, found, "facts", [&](subject& memory, destroyable_stream const& a, destroyable_stream const&) {
    found.expect(memory.device_accessible || memory.host_accessible, "nobody can reach this memory");
    found.expect(memory.host_ordered, "it does not understand host_order");
    found.expect(!memory.describes_itself || !memory.described().chain().empty(), "its description names no layer");
    block const b = take(memory, host_order, 1000);
    if (memory.host_accessible) {
      std::memset(b.p, 7, b.bytes);
      found.expect(holds(b, 7), "the host's writes were lost");
    }
    if (memory.device_accessible) {
      sim::touch(a.get(), b.p, b.bytes, sim::access::write);
      found.expect(cudaStreamSynchronize(a.get()) == cudaSuccess, "a kernel could not write");
    }
    give_back(memory, b);
  });
}

inline std::vector<std::string> misuse_heard;

/// Everything that the resources of `f` break; empty if they keep the laws.
template <recipe F>
std::vector<std::string> broken_laws(F const& recipe) {
  maker const f = [&] { return std::make_unique<subject_of<made_by<F>>>(recipe); };
  misuse_heard.clear();
  misuse_handler const before = set_misuse_handler(+[](char const* what) noexcept { misuse_heard.emplace_back(what); });
  findings found;
  facts_law(f, found);
  alignment_law(f, found);
  no_overlap_law(f, found);
  zero_bytes_law(f, found);
  reuse_law(f, found);
  stream_order_law(f, found);
  dead_streams_law(f, found);
  overflow_law(f, found);
  out_of_memory_law(f, found);
  failing_calls_law(f, found);
  sim::reset();
  set_misuse_handler(before);
  found.enter("misuse");
  for (std::string const& what : misuse_heard) found.expect(false, "a right call was reported as wrong: " + what);
  return found.list();
}

/// Fails the running test case once for each thing that is broken. `room`: for resources that round small blocks up to
/// so much that they need more.
template <recipe F>
void check_resource(F const& recipe, std::size_t room = 64 * mib) {
  capacity = room;
  auto const broken = broken_laws(recipe);
  CHECK(broken.size() == 0);
  for (std::string const& what : broken) FAIL_CHECK(what);
}

}  // namespace weir::laws
