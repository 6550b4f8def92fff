// Replays traces of allocations through weir's stacks and the peers, and says what each cost and held.
// `bench_replay --help` says how.

#include "../peers/peers.hpp"
#include "replaying.hpp"
#include "together.hpp"
#include "trace.hpp"

#include <weir/core/printable.hpp>
#include <weir/tools/text_numbers.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using bench::outcome;
using bench::trace;

constexpr char const* usage = R"usage(bench_replay [OPTION...] [TRACE...]

  TRACE: RMM's log format, lifetimes or a memory snapshot of PyTorch, gzip-ed or not; `-`: standard input. Without one,
  all traces in the folder that WEIR_TRACES names.

  --stack STACK     only this one (may be given again): a name that --list knows, or a stack's text as weir::parse
                    reads it: --stack "async | pool(initial=1GiB) | limit(60%)"
  --list            names the stacks that need no text
  --between RUNS    of two traces that differ in sizes only: RUNS runs at random places between them
  --seed N          for --between
  --steps N         runs each trace N times on the same stack
  --together        runs all traces at the same time, each on a pool of its own, and says what they hold together
  --repeat N        times each is replayed; default 3
  --device SIZE     memory that the device has, as 512MiB or 16GiB; default 1024GiB
  --max-bytes SIZE  the most that is read of a trace, unpacked; default 256MiB
  --csv FILE        adds the figures to a file, in bytes and nanoseconds
  --smallest        also finds the smallest device that the trace runs on, to 1 part in 1,000

`moved` is how many chunks were unmapped to be mapped elsewhere, `late` how many of those in the second half, `mapping`
what creating, mapping and unmapping chunks would take on an A100.

A trace is replayed in its order, each event on the stream and by the thread that it had (64 of each at most; more share
those). The times are of one call, the clock's own cost taken off.
Exit status: 0 if every trace ran whole on every stack, 1 if one ran out of memory, 2 for a wrong argument or trace,
or for what cannot be written.
)usage";

constexpr std::size_t whole_device = std::size_t{1} << 40;

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
  std::size_t steps = 1;
  std::size_t repeat = 3;
  std::size_t device = whole_device;
  std::size_t max_bytes = bench::most_trace_bytes;
  bool smallest = false;
  bool together = false;
  std::string csv;
};

/// Throws where what was printed has not got out: a disk may be full.
void finish_printing() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw std::runtime_error(std::string("standard output: ") + std::strerror(errno));
}

[[noreturn]] void wrong(std::string const& why) {
  std::fprintf(stderr, "bench_replay: %s\n", why.c_str());
  std::exit(2);
}

std::size_t size_of(std::string_view text) {
  try {
    if (std::size_t const bytes = weir::detail::bytes_in(text); bytes != 0) return bytes;
  } catch (std::invalid_argument const&) {
  }
  wrong("'" + std::string(text) + "' is no number above 0; sizes can end in KiB, MiB or GiB");
}

bool is_model(std::string const& name) { return name == "pytorch-model" || name == "pytorch-expandable-model"; }

/// Adds to `subjects` what is asked for as a text.
void offer_texts(std::vector<std::string> const& stacks, bench::subject_list& subjects) {
  for (std::string const& stack : stacks) {
    auto const has_name = [&](auto const& s) { return s.name == stack; };
    if (is_model(stack) || std::any_of(subjects.begin(), subjects.end(), has_name)) continue;
    try {
      bench::offer_text(subjects, stack);
    } catch (std::exception const& e) {
      wrong("--stack: " + std::string(e.what()) + "\nthe stacks that need no text: bench_replay --list");
    }
  }
}

/// All traces in a folder, by name.
std::vector<std::string> traces_in(std::string const& folder) {
  std::vector<std::string> found;
  std::error_code failed;
  for (auto const& file : std::filesystem::directory_iterator(folder, failed)) {
    std::string const path = file.path().string();
    std::string_view unpacked = path;
    if (unpacked.ends_with(".gz")) unpacked.remove_suffix(3);
    if (unpacked.ends_with(".csv") || unpacked.ends_with(".pickle")) found.push_back(path);
  }
  if (failed) wrong(folder + " (WEIR_TRACES): " + failed.message());
  if (found.empty()) wrong(folder + " (WEIR_TRACES) has no *.csv, *.pickle, *.csv.gz or *.pickle.gz");
  std::sort(found.begin(), found.end());
  return found;
}

arguments parse(int argc, char** argv, bench::subject_list& subjects) {
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
    else if (option == "--steps")
      a.steps = size_of(value());
    else if (option == "--repeat")
      a.repeat = size_of(value());
    else if (option == "--device")
      a.device = size_of(value());
    else if (option == "--max-bytes")
      a.max_bytes = size_of(value());
    else if (option == "--csv")
      a.csv = value();
    else if (option == "--smallest")
      a.smallest = true;
    else if (option == "--together")
      a.together = true;
    else if (option == "--help") {
      std::fputs(usage, stdout);
      finish_printing();
      std::exit(0);
    } else if (option == "--list") {
      for (auto const& s : subjects) std::printf("%s\n", s.name.c_str());
      std::puts("pytorch-model\npytorch-expandable-model");
      finish_printing();
      std::exit(0);
    } else if (option.starts_with("--"))
      wrong("no option '" + std::string(option) + "'; bench_replay --help says what there is");
    else
      a.traces.emplace_back(option);
  }
  if (a.traces.empty()) {
    char const* const folder = std::getenv("WEIR_TRACES");
    if (folder == nullptr) wrong("no trace given, and WEIR_TRACES names no folder with traces");
    a.traces = traces_in(folder);
  }
  if (a.between != 0 && a.traces.size() != 2) wrong("--between needs two traces");
  offer_texts(a.stacks, subjects);
  return a;
}

bool replay_all(trace const& t, bench::subject_list const& subjects, arguments const& a) {
  std::size_t const peak = t.peak();
  std::printf("\n%s: %zu operations, %zu blocks, %zu streams, %zu threads, peak requested %s MiB\n", t.name.c_str(),
              t.events.size(), t.sizes.size(), t.streams, t.threads, mebibytes(peak).c_str());
  int width = 28;
  for (std::string const& stack : a.stacks) width = std::max(width, static_cast<int>(stack.size()));
  std::printf("%-*s %8s %8s %10s %13s %7s %9s %11s %7s %7s %9s %s\n", width, "stack", "p50 ns", "p99 ns", "max ns",
              "reserved MiB", "ratio", "upstream", "CUDA calls", "moved", "late", "mapping",
              a.smallest ? "smallest device MiB" : "");
  bool whole = true;
  auto const print = [&](std::string const& name, outcome& o, std::optional<std::size_t> least) {
    auto const percentile = [&](double part) -> std::string {
      if (o.times.empty()) return "-";
      auto const at = o.times.begin() + static_cast<std::ptrdiff_t>(static_cast<double>(o.times.size() - 1) * part);
      std::nth_element(o.times.begin(), at, o.times.end());
      return std::to_string(*at);
    };
    std::printf("%-*s %8s %8s %10s %13s %7.3f %9llu %11llu %7llu %7llu %6.1f ms %s", width, name.c_str(),
                percentile(0.5).c_str(), percentile(0.99).c_str(), percentile(1).c_str(), mebibytes(o.reserved).c_str(),
                static_cast<double>(o.reserved) / static_cast<double>(std::max<std::size_t>(peak, 1)),
                static_cast<unsigned long long>(o.taken), static_cast<unsigned long long>(o.cuda_calls),
                static_cast<unsigned long long>(o.moved), static_cast<unsigned long long>(o.moved_late),
                o.mapping_us / 1000, least ? mebibytes(*least).c_str() : "");
    if (!o.whole) std::printf("  out of memory at operation %zu", o.events + 1);
    std::puts("");
    whole = whole && o.whole;
    if (a.csv.empty()) return;
    std::FILE* const csv = std::fopen(a.csv.c_str(), "a");
    if (csv == nullptr) wrong(a.csv + " cannot be written");
    std::fprintf(csv, "%s,%s,%s,%s,%s,%zu,%zu,%llu,%llu,%s,%d,%llu,%llu,%.0f\n", weir::csv_field(t.name).c_str(),
                 weir::csv_field(name).c_str(), percentile(0.5).c_str(), percentile(0.99).c_str(),
                 percentile(1).c_str(), peak, o.reserved, static_cast<unsigned long long>(o.taken),
                 static_cast<unsigned long long>(o.cuda_calls), least ? std::to_string(*least).c_str() : "", o.whole,
                 static_cast<unsigned long long>(o.moved), static_cast<unsigned long long>(o.moved_late), o.mapping_us);
    if (std::fclose(csv) != 0) wrong(a.csv + " cannot be written");
  };
  auto const wanted = [&](std::string const& name) {
    return a.stacks.empty() || std::find(a.stacks.begin(), a.stacks.end(), name) != a.stacks.end();
  };
  auto const least = [&](outcome const& o, auto runs) -> std::optional<std::size_t> {
    if (!a.smallest || !o.whole) return std::nullopt;
    return bench::smallest_device(peak == 0 ? 0 : peak - 1, o.reserved, a.device, runs);
  };
  for (auto const& s : subjects) {
    if (!wanted(s.name)) continue;
    outcome all = bench::replay_once(t, s, a.device, true);
    for (std::size_t i = 1; i < a.repeat; ++i) {
      outcome const more = bench::replay_once(t, s, a.device, true);
      all.times.insert(all.times.end(), more.times.begin(), more.times.end());
    }
    print(s.name, all,
          least(all, [&](std::size_t capacity) { return bench::replay_once(t, s, capacity, false).whole; }));
  }
  for (bool const expandable : {false, true}) {
    char const* const name = expandable ? "pytorch-expandable-model" : "pytorch-model";
    if (!wanted(name)) continue;
    outcome o = bench::replay_model(t, expandable, a.device);
    print(name, o, least(o, [&](std::size_t capacity) { return bench::replay_model(t, expandable, capacity).whole; }));
  }
  return whole;
}

/// All programs at once, on pools apart and on pools that share their chunks.
bool replay_joint(std::vector<trace> const& programs, std::size_t device) {
  auto const events = bench::merged(programs);
  std::size_t const peak = bench::joint_peak(programs, events);
  std::printf("\n%zu programs together: %zu operations, joint peak requested %s MiB\n", programs.size(), events.size(),
              mebibytes(peak).c_str());
  std::printf("%-28s %13s %7s\n", "pools", "reserved MiB", "ratio");
  bool whole = true;
  auto const print = [&](char const* name, bench::joint_outcome const& o) {
    std::printf("%-28s %13s %7.3f %s\n", name, mebibytes(o.reserved).c_str(),
                static_cast<double>(o.reserved) / static_cast<double>(std::max<std::size_t>(peak, 1)),
                o.events == events.size() ? "" : "out of memory");
    whole = whole && o.events == events.size();
  };
  print("of segments, apart", bench::replay_apart(programs, events, bench::pool(), device));
  print("that grow in place, apart", bench::replay_apart(programs, events, bench::growable(), device));
  print("that share their chunks", bench::replay_sharing(programs, events, device));
  return whole;
}

trace only_trace(std::string const& path, std::size_t max_bytes) {
  std::vector<trace> found = bench::read_traces(path, max_bytes);
  if (found.size() != 1)
    wrong(weir::printable(path) + " holds " + std::to_string(found.size()) + " traces; --between needs one");
  return std::move(found.front());
}

/// False if one ran out of memory.
bool replay_traces(arguments const& a, bench::subject_list const& subjects) {
  if (a.together) {
    std::vector<trace> programs;
    for (std::string const& path : a.traces)
      for (trace& t : bench::read_traces(path, a.max_bytes)) programs.push_back(std::move(t));
    return replay_joint(programs, a.device);
  }
  if (a.between != 0) {
    trace const first = only_trace(a.traces[0], a.max_bytes), second = only_trace(a.traces[1], a.max_bytes);
    return replay_all(bench::interpolate(first, second, a.between, a.seed), subjects, a);
  }
  bool whole = true;
  for (std::string const& path : a.traces)
    for (trace const& t : bench::read_traces(path, a.max_bytes))
      whole = replay_all(a.steps == 1 ? t : bench::interpolate(t, t, a.steps, a.seed), subjects, a) && whole;
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
  bool const whole = replay_traces(a, subjects);
  finish_printing();
  return whole ? 0 : 1;
} catch (std::exception const& e) {
  std::fprintf(stderr, "bench_replay: %s\n", e.what());
  return 2;
}
