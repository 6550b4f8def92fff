// Replays traces of allocations through weir's stacks and the peers, and says what each cost and held.
//
//   bench_replay [OPTION...] [TRACE...]     TRACE: RMM's log format or lifetimes, gzip-ed or not; `-`: standard input
//     --stack NAME      only this one (may be given again); --list names them
//     --between RUNS    of two traces that differ in sizes only: RUNS runs at random places between them
//     --seed N          for --between
//     --repeat N        times each is replayed; default 3
//     --device SIZE     memory that the device has, as 512MiB or 16GiB
//     --csv FILE        adds the figures to a file, in bytes and nanoseconds
//     --smallest        also finds the smallest device that the trace runs on, to 1 part in 1,000
//
// Without a TRACE, all of the folder that WEIR_TRACES names. A trace is replayed by one thread, in its order, on its
// streams (eight at most; more share those). The times are of one call, the clock's own cost taken off.
// Exit status: 0 if every trace ran whole on every stack, 1 if one ran out of memory, 2 for a wrong argument or trace.

#include "null_runtime.hpp"
#include "peers/peers.hpp"
#include "torch_model.hpp"
#include "trace.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

using bench::trace;
using clock_type = std::chrono::steady_clock;

using bench::most_streams;
constexpr std::size_t whole_device = std::size_t{1} << 40;

struct outcome {
  bool whole = false;
  std::size_t events = 0;  // that ran
  std::size_t reserved = 0;
  std::uint64_t taken = 0;             // calls that took memory from the device
  std::uint64_t cuda_calls = 0;        // all
  std::vector<std::uint32_t> times{};  // ns
};

std::uint32_t clock_cost() {
  std::vector<std::uint32_t> times(10'000);
  for (std::uint32_t& t : times) {
    auto const a = clock_type::now();
    auto const b = clock_type::now();
    t = static_cast<std::uint32_t>((b - a).count());
  }
  std::nth_element(times.begin(), times.begin() + 5'000, times.end());
  return times[5'000];
}

/// Gives a trace to anything with `allocate` and `deallocate` of handles; frees at the end what the trace leaves.
template <class Handle, class Allocate, class Deallocate>
std::size_t replay(trace const& t, Allocate allocate, Deallocate deallocate) {
  std::vector<Handle> live(t.sizes.size());
  std::vector<std::uint8_t> is_live(t.sizes.size());
  std::size_t done = 0;
  try {
    for (trace::event const& e : t.events) {
      if (e.allocates)
        live[e.block] = allocate(e.stream % most_streams, t.sizes[e.block]);
      else
        deallocate(e.stream % most_streams, live[e.block], t.sizes[e.block]);
      is_live[e.block] = e.allocates;
      ++done;
    }
  } catch (std::bad_alloc const&) {
  }
  for (std::size_t block = 0; block < live.size(); ++block)
    if (is_live[block] != 0) deallocate(0, live[block], t.sizes[block]);
  return done;
}

outcome replay_once(trace const& t, bench::offered_subject const& offered, std::size_t capacity, bool timed) {
  static std::uint32_t const overhead = clock_cost();
  bench::set_device_capacity(capacity);
  bench::call_counts const before = bench::cuda_calls();
  outcome o;
  try {
    auto const subject = offered.make();
    if (timed) o.times.reserve(t.events.size() + t.sizes.size());
    auto const clocked = [&](auto work) {
      auto const a = clock_type::now();
      work();
      auto const ns = (clock_type::now() - a).count();
      o.times.push_back(static_cast<std::uint32_t>(std::max<long>(0, ns - overhead)));
    };
    o.events = replay<void*>(
        t,
        [&](std::size_t stream, std::size_t bytes) {
          void* p = nullptr;
          timed ? clocked([&] { p = subject->allocate(stream, bytes); }) : void(p = subject->allocate(stream, bytes));
          if (p == nullptr) throw std::bad_alloc();
          return p;
        },
        [&](std::size_t stream, void* p, std::size_t bytes) {
          timed ? clocked([&] { subject->deallocate(stream, p, bytes); }) : subject->deallocate(stream, p, bytes);
        });
    bench::call_counts const made = bench::cuda_calls() - before;
    using enum bench::call_kind;
    for (auto const kind : {allocate, allocate_async}) o.taken += made.by_kind[static_cast<std::size_t>(kind)];
    o.cuda_calls = made.total();
  } catch (std::bad_alloc const&) {
    // not even its first memory was to be had
  }
  o.whole = o.events == t.events.size();
  o.reserved = bench::device_bytes_peak();
  return o;
}

outcome replay_model(trace const& t, bool expandable, std::size_t capacity) {
  bench::torch_model model(expandable, capacity);
  outcome o;
  o.events = replay<std::uint64_t>(
      t, [&](std::size_t stream, std::size_t bytes) { return model.allocate(stream, bytes); },
      [&](std::size_t, std::uint64_t p, std::size_t) { model.deallocate(p); });
  o.whole = o.events == t.events.size();
  o.reserved = model.peak_reserved();
  o.taken = o.cuda_calls = model.device_calls();
  return o;
}

std::string mebibytes(std::size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", static_cast<double>(bytes) / (1 << 20));
  return text;
}

struct arguments {
  std::vector<std::string> stacks;
  std::vector<std::string> traces;
  std::size_t between = 0;
  std::size_t seed = 1;
  std::size_t repeat = 3;
  std::size_t device = whole_device;
  bool smallest = false;
  std::string csv;
};

[[noreturn]] void wrong(std::string const& why) {
  std::fprintf(stderr, "bench_replay: %s\n", why.c_str());
  std::exit(2);
}

std::size_t size_of(std::string_view text) {
  std::size_t n = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  std::string_view const unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  unsigned const shift = unit.empty() ? 0 : unit == "KiB" ? 10 : unit == "MiB" ? 20 : unit == "GiB" ? 30 : 64;
  if (error != std::errc() || n == 0 || shift == 64 || n > (~std::size_t{0} >> shift))
    wrong("'" + std::string(text) + "' is no number above 0; sizes can end in KiB, MiB or GiB");
  return n << shift;
}

arguments parse(int argc, char** argv, bench::subject_list const& subjects) {
  arguments a;
  for (int i = 1; i < argc; ++i) {
    std::string_view const option = argv[i];
    auto const value = [&]() -> char const* {
      if (i + 1 == argc) wrong(std::string(option) + " needs a value");
      return argv[++i];
    };
    if (option == "--stack")
      a.stacks.emplace_back(value());
    else if (option == "--between")
      a.between = size_of(value());
    else if (option == "--seed")
      a.seed = size_of(value());
    else if (option == "--repeat")
      a.repeat = size_of(value());
    else if (option == "--device")
      a.device = size_of(value());
    else if (option == "--csv")
      a.csv = value();
    else if (option == "--smallest")
      a.smallest = true;
    else if (option == "--list") {
      for (auto const& s : subjects) std::printf("%s\n", s.name.c_str());
      std::puts("pytorch-model\npytorch-expandable-model");
      std::exit(0);
    } else if (option.starts_with("--"))
      wrong("no option '" + std::string(option) + "'; the first lines of bench/replay.cpp say what there is");
    else
      a.traces.emplace_back(option);
  }
  if (a.traces.empty()) {
    char const* const folder = std::getenv("WEIR_TRACES");
    if (folder == nullptr) wrong("no trace given, and WEIR_TRACES names no folder with traces");
    std::error_code failed;
    for (auto const& file : std::filesystem::directory_iterator(folder, failed)) {
      std::string const path = file.path().string();
      if (path.ends_with(".csv") || path.ends_with(".csv.gz")) a.traces.push_back(path);
    }
    if (a.traces.empty()) wrong(std::string(folder) + " (WEIR_TRACES) has no *.csv or *.csv.gz");
    std::sort(a.traces.begin(), a.traces.end());
  }
  if (a.between != 0 && a.traces.size() != 2) wrong("--between needs two traces");
  for (std::string const& name : a.stacks)
    if (name != "pytorch-model" && name != "pytorch-expandable-model" &&
        std::none_of(subjects.begin(), subjects.end(), [&](auto const& s) { return s.name == name; }))
      wrong("no stack '" + name + "'; --list names them");
  return a;
}

/// The least capacity at which `runs(capacity)`; `enough` is known to do.
template <class Runs>
std::size_t smallest_device(std::size_t too_small, std::size_t enough, Runs runs) {
  while (enough - too_small > enough / 1000) {
    std::size_t const middle = too_small + (enough - too_small) / 2;
    (runs(middle) ? enough : too_small) = middle;
  }
  return enough;
}

bool replay_all(trace const& t, bench::subject_list const& subjects, arguments const& a) {
  std::size_t const peak = t.peak();
  std::printf("\n%s: %zu operations, %zu blocks, %zu streams, %zu threads, peak requested %s MiB\n", t.name.c_str(),
              t.events.size(), t.sizes.size(), t.streams, t.threads, mebibytes(peak).c_str());
  std::printf("%-28s %8s %8s %10s %13s %7s %9s %11s %s\n", "stack", "p50 ns", "p99 ns", "max ns", "reserved MiB",
              "ratio", "upstream", "CUDA calls", a.smallest ? "smallest device MiB" : "");
  bool whole = true;
  auto const print = [&](std::string const& name, outcome& o, std::optional<std::size_t> least) {
    auto const percentile = [&](double part) -> std::string {
      if (o.times.empty()) return "-";
      auto const at = o.times.begin() + static_cast<std::ptrdiff_t>(static_cast<double>(o.times.size() - 1) * part);
      std::nth_element(o.times.begin(), at, o.times.end());
      return std::to_string(*at);
    };
    std::printf("%-28s %8s %8s %10s %13s %7.3f %9llu %11llu %s", name.c_str(), percentile(0.5).c_str(),
                percentile(0.99).c_str(), percentile(1).c_str(), mebibytes(o.reserved).c_str(),
                static_cast<double>(o.reserved) / static_cast<double>(std::max<std::size_t>(peak, 1)),
                static_cast<unsigned long long>(o.taken), static_cast<unsigned long long>(o.cuda_calls),
                least ? mebibytes(*least).c_str() : "");
    if (!o.whole) std::printf("  out of memory at operation %zu", o.events + 1);
    std::puts("");
    whole = whole && o.whole;
    if (a.csv.empty()) return;
    std::FILE* const csv = std::fopen(a.csv.c_str(), "a");
    if (csv == nullptr) wrong(a.csv + " cannot be written");
    std::fprintf(csv, "\"%s\",%s,%s,%s,%s,%zu,%zu,%llu,%llu,%s,%d\n", t.name.c_str(), name.c_str(),
                 percentile(0.5).c_str(), percentile(0.99).c_str(), percentile(1).c_str(), peak, o.reserved,
                 static_cast<unsigned long long>(o.taken), static_cast<unsigned long long>(o.cuda_calls),
                 least ? std::to_string(*least).c_str() : "", o.whole);
    std::fclose(csv);
  };
  auto const wanted = [&](std::string const& name) {
    return a.stacks.empty() || std::find(a.stacks.begin(), a.stacks.end(), name) != a.stacks.end();
  };
  auto const least = [&](outcome const& o, auto runs) -> std::optional<std::size_t> {
    if (!a.smallest || !o.whole) return std::nullopt;
    return smallest_device(peak == 0 ? 0 : peak - 1, o.reserved, runs);
  };
  for (auto const& s : subjects) {
    if (!wanted(s.name)) continue;
    outcome all = replay_once(t, s, a.device, true);
    for (std::size_t i = 1; i < a.repeat; ++i) {
      outcome const more = replay_once(t, s, a.device, true);
      all.times.insert(all.times.end(), more.times.begin(), more.times.end());
    }
    print(s.name, all, least(all, [&](std::size_t capacity) { return replay_once(t, s, capacity, false).whole; }));
  }
  for (bool const expandable : {false, true}) {
    char const* const name = expandable ? "pytorch-expandable-model" : "pytorch-model";
    if (!wanted(name)) continue;
    outcome o = replay_model(t, expandable, a.device);
    print(name, o, least(o, [&](std::size_t capacity) { return replay_model(t, expandable, capacity).whole; }));
  }
  return whole;
}

}  // namespace

int main(int argc, char** argv) try {
  bench::subject_list subjects;
  bench::offer_weir(subjects);
#ifdef BENCH_RMM
  bench::offer_rmm(subjects);
#endif
  bench::offer_others(subjects);
  arguments const a = parse(argc, argv, subjects);
  bool whole = true;
  if (a.between != 0) {
    whole = replay_all(
        bench::interpolate(bench::read_trace(a.traces[0]), bench::read_trace(a.traces[1]), a.between, a.seed), subjects,
        a);
  } else {
    for (std::string const& path : a.traces) whole = replay_all(bench::read_trace(path), subjects, a) && whole;
  }
  return whole ? 0 : 1;
} catch (std::exception const& e) {
  std::fprintf(stderr, "bench_replay: %s\n", e.what());
  return 2;
}
