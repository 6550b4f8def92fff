// One workload on weir's pool, for callgrind to count instructions in: `bench/check-instructions` runs it.
//
//   bench_instructions WORKLOAD|--list

#include "../support/null_runtime.hpp"
#include "../support/random_numbers.hpp"

#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/statistics.hpp>
#include <weir/adaptors/trace.hpp>
#include <weir/core/tag.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>

#include <array>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t steps = 50'000;  // each two operations; the script knows

auto plain() { return weir::device{} | weir::pool{}; }
auto limited() { return plain() | weir::limit{.max_bytes = std::size_t{1} << 40}; }
auto counted() { return plain() | weir::statistics{}; }
auto traced() { return plain() | weir::trace{}; }
auto layered() { return limited() | weir::statistics{}; }
auto seen() { return plain() | weir::statistics{.by_tag = true} | weir::trace{}; }

/// Callgrind counts what happens in here and in what it calls.
template <class Work>
[[gnu::noinline]] void measured_work(Work work) {
  for (std::size_t i = 0; i < steps; ++i) work();
}

template <class Recipe>
void pairs(Recipe const& recipe) {
  auto memory = weir::make(recipe);
  weir::stream const s;
  weir::stream_ref const stream = s;
  memory.deallocate(stream, memory.allocate(stream, 4096), 4096);
  measured_work([&] {
    void* const p = memory.allocate(stream, 4096);
    memory.deallocate(stream, p, 4096);
  });
}

void churn(std::size_t live, std::size_t most_bytes, std::size_t streams) {
  struct block {
    void* address = nullptr;
    std::size_t bytes = 0;
    std::size_t stream = 0;
  };
  auto memory = weir::make(plain());
  std::array<weir::stream, 4> made;
  std::array<weir::stream_ref, 4> const refs{made[0], made[1], made[2], made[3]};
  std::vector<block> blocks(live);
  bench::random_numbers random(1);
  auto const fill = [&](block& b, std::uint64_t r) {
    b.stream = r % streams;
    b.bytes = bench::random_numbers::low(r, most_bytes) + 1;
    b.address = memory.allocate(refs[b.stream], b.bytes);
  };
  auto const step = [&]() __attribute__((always_inline)) {  // else that is left to chance
    std::uint64_t const r = random.next();
    block& b = blocks[bench::random_numbers::high(r, live)];
    memory.deallocate(refs[b.stream], b.address, b.bytes);
    fill(b, r);
  };
  for (block& b : blocks) fill(b, random.next());
  for (std::size_t i = 0; i < 2 * live; ++i) step();
  measured_work(step);
  for (block& b : blocks) memory.deallocate(refs[b.stream], b.address, b.bytes);
}

/// One stream allocates, another frees, oldest first.
void hand_over() {
  auto memory = weir::make(plain());
  weir::stream const from, to;
  std::array<std::pair<void*, std::size_t>, 100> ring;
  for (auto& [p, bytes] : ring) p = memory.allocate(from, bytes = 4096);
  bench::random_numbers random(1);
  std::size_t at = 0;
  auto const step = [&]() __attribute__((always_inline)) {  // else that is left to chance
    auto& [p, bytes] = ring[at];
    at = at + 1 == ring.size() ? 0 : at + 1;
    memory.deallocate(to, p, bytes);
    bytes = bench::random_numbers::low(random.next(), 64 << 10) + 1;
    p = memory.allocate(from, bytes);
  };
  for (std::size_t i = 0; i < 2000; ++i) step();
  measured_work(step);
  for (auto const& [p, bytes] : ring) memory.deallocate(to, p, bytes);
}

struct workload {
  std::string_view name;
  void (*run)();
};
constexpr std::array workloads{
    workload{"pair-4KiB", [] { pairs(plain()); }},
    workload{"pair-4KiB-limit", [] { pairs(limited()); }},
    workload{"pair-4KiB-statistics", [] { pairs(counted()); }},
    workload{"pair-4KiB-limit-statistics", [] { pairs(layered()); }},
    workload{"pair-4KiB-trace", [] { pairs(traced()); }},
    workload{"pair-4KiB-statistics-by-tag-trace",
             [] {
               weir::tag const scope{"bench"};
               pairs(seen());
             }},
    workload{"random-4KiB-20-live", [] { churn(20, 4 << 10, 1); }},
    workload{"random-1MiB-1000-live", [] { churn(1000, 1 << 20, 1); }},
    workload{"random-4MiB-1000-live", [] { churn(1000, 4 << 20, 1); }},
    workload{"random-64MiB-200-live", [] { churn(200, 64 << 20, 1); }},
    workload{"random-64KiB-100000-live", [] { churn(100'000, 64 << 10, 1); }},
    workload{"random-64KiB-1000-live-4-streams", [] { churn(1000, 64 << 10, 4); }},
    workload{"random-64KiB-handed-over", [] { hand_over(); }},
};

}  // namespace

int main(int argc, char** argv) {
  std::string_view const wanted = argc == 2 ? argv[1] : "";
  for (auto const& [name, run] : workloads) {
    if (wanted == "--list") std::printf("%s\n", name.data());
    if (wanted != name) continue;
    run();
    std::printf("%zu operations\n", 2 * steps);
    return 0;
  }
  if (wanted == "--list") return 0;
  std::fprintf(stderr, "bench_instructions: no workload '%s'; --list names them\n", argc == 2 ? argv[1] : "");
  return 2;
}
