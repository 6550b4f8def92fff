// weir-memory: says what a recorded trace comes to, compares two, converts them, draws their page, and replays them on
// other stacks. `weir-memory --help` says how.

#include "figures.hpp"
#include "input.hpp"
#include "progress.hpp"
#include "replay.hpp"

#include <weir/adaptors/logging.hpp>
#include <weir/core/bytes.hpp>
#include <weir/core/printable.hpp>
#include <weir/tools/config_text.hpp>
#include <weir/tools/memory_timeline.hpp>
#include <weir/tools/read_trace.hpp>
#include <weir/tools/report_page.hpp>
#include <weir/tools/text_numbers.hpp>
#include <weir/tools/torch_memory.hpp>
#include <weir/tools/trace_text.hpp>

#include <getopt.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace {

using namespace weir::memory_tool;

constexpr char const* usage = R"usage(weir-memory COMMAND [OPTION...] TRACE...

  summary TRACE...           the peak, who held it, what was left at the end
  compare TRACE TRACE        both beside each other, and by how much the second differs
  page TRACE [TRACE]         a page to look at, one HTML file that loads nothing: --output, default memory.html
  convert TRACE --to FORMAT  csv (RMM's log), json (JSON lines) or torch (what PyTorch's memory viewer opens)
  replay TRACE...            runs the trace on a stack, on a simulated device of this size: what would it hold?

  TRACE: RMM's log (weir::logging writes it), JSON lines, or a memory snapshot of PyTorch or weir, gzip-ed or not; its
  beginning says which. `-`: standard input.

  -o, --output FILE    where `page` and `convert` write; `-`, and `convert` without it: standard output
      --to FORMAT      csv, json or torch
  -s, --stack TEXT     for `replay`, as weir::parse reads it; may be given again. Default: "async | pool"
  -d, --device SIZE    memory that the device has, as 512MiB or 16GiB; default 1024GiB. As much is there for managed
                       and pinned memory
      --smallest       also finds the smallest device that the trace runs on, to 1 part in 1,000
      --max-bytes SIZE the most that is read of a trace, unpacked; default 1GiB
  -h, --help
      --version

A trace is replayed in its order, by one thread, on as many streams as it had, 64 at most.
Exit status: 0; 1 if a replay ran out of memory; 2 for a wrong argument, a damaged trace, or what cannot be written.
)usage";

/// Something the caller got wrong.
struct wrong_argument : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct arguments {
  std::string command;
  std::vector<std::string> traces;
  std::string output;
  std::string to;
  std::vector<std::string> stacks;
  std::size_t device = std::size_t{1} << 40;
  std::size_t max_bytes = most_bytes;
  bool smallest = false;
  std::vector<std::string> of_some;  // the options given that not all commands take
};

std::size_t size_of(std::string_view text) {
  try {
    if (std::size_t const bytes = weir::detail::bytes_in(text); bytes != 0) return bytes;
  } catch (std::invalid_argument const&) {
  }
  throw wrong_argument("'" + weir::printable(text) +
                       "' is no number above 0 of bytes that can be addressed; it can end in KiB, MiB, GiB or TiB");
}

/// None where `--help` or `--version` was asked for, which it prints.
std::optional<arguments> parse_arguments(int argc, char** argv) {
  enum : int { to = 256, smallest, max_bytes, version };
  option const options[] = {{"output", required_argument, nullptr, 'o'},
                            {"to", required_argument, nullptr, to},
                            {"stack", required_argument, nullptr, 's'},
                            {"device", required_argument, nullptr, 'd'},
                            {"smallest", no_argument, nullptr, smallest},
                            {"max-bytes", required_argument, nullptr, max_bytes},
                            {"help", no_argument, nullptr, 'h'},
                            {"version", no_argument, nullptr, version},
                            {}};
  arguments a;
  for (int c = 0; (c = getopt_long(argc, argv, "o:s:d:h", options, nullptr)) != -1;) switch (c) {
      case 'o':
        a.output = optarg;
        a.of_some.emplace_back("--output");
        break;
      case to:
        a.to = optarg;
        a.of_some.emplace_back("--to");
        break;
      case 's':
        a.stacks.emplace_back(optarg);
        a.of_some.emplace_back("--stack");
        break;
      case 'd':
        a.device = size_of(optarg);
        a.of_some.emplace_back("--device");
        break;
      case smallest:
        a.smallest = true;
        a.of_some.emplace_back("--smallest");
        break;
      case max_bytes:
        a.max_bytes = size_of(optarg);
        break;
      case 'h':
        std::fputs(usage, stdout);
        return std::nullopt;
      case version:
        std::puts("weir-memory " WEIR_VERSION_STRING);
        return std::nullopt;
      default:
        throw wrong_argument("weir-memory --help says what there is");  // getopt has said what is wrong
    }
  if (optind == argc) throw wrong_argument("no command; there are summary, compare, page, convert and replay");
  a.command = argv[optind];
  a.traces.assign(argv + optind + 1, argv + argc);
  return a;
}

std::string name_of_file(std::string const& path) {
  return path == "-" ? "standard input" : path.substr(path.rfind('/') + 1);
}
weir::recorded_memory read_all(std::string const& path, arguments const& a) {
  return weir::read_memory(read_file(path, a.max_bytes), path);
}
weir::recorded_trace read(std::string const& path, arguments const& a) { return read_all(path, a).trace; }
/// `taken`: the command's options, but for those that all take.
void require(arguments const& a, std::size_t least, std::size_t most, std::vector<std::string> const& taken) {
  for (std::string const& given : a.of_some)
    if (std::find(taken.begin(), taken.end(), given) == taken.end())
      throw wrong_argument(a.command + " does not take " + given);
  if (a.traces.size() < least)
    throw wrong_argument(a.command + " needs " + (least == 1 ? "a trace" : std::to_string(least) + " traces"));
  if (std::count(a.traces.begin(), a.traces.end(), "-") > 1)
    throw wrong_argument("the standard input, '-', can be read only once");
  if (a.traces.size() > most) throw wrong_argument(a.command + " takes at most " + std::to_string(most) + " of them");
}

/// What is written would take the place of what is read.
void require_other_output(arguments const& a, std::string const& output) {
  std::error_code none;
  for (std::string const& path : a.traces)
    if (path != "-" && std::filesystem::equivalent(output, path, none))
      throw wrong_argument(weir::printable(output) + " is what is read; name another file with --output");
}

/// A stack that logs empties the file that it names: where that is there, it is what somebody recorded. Throws what
/// `parse` throws.
void require_new_logs(std::string const& stack) {
  for (weir::detail::config_layer& layer : weir::detail::config_reader(stack).layers()) {
    if (layer.name() != weir::logging::layer_name) continue;
    weir::logging options;
    layer.take_options(options);
    std::error_code none;
    if (std::filesystem::is_regular_file(options.resolved_path(), none))
      throw wrong_argument("the stack's logging would empty " + weir::printable(options.resolved_path()) +
                           ", which is there; leave logging out of --stack, or name a new file");
  }
}

int summarize(arguments const& a) {
  require(a, 1, 1000, {});
  for (std::string const& path : a.traces)
    std::fputs(summary_text(name_of_file(path), figures_of(read(path, a))).c_str(), stdout);
  return 0;
}

int compare(arguments const& a) {
  require(a, 2, 2, {});
  figures const first = figures_of(read(a.traces[0], a)), second = figures_of(read(a.traces[1], a));
  std::fputs(comparison_text(name_of_file(a.traces[0]), first, name_of_file(a.traces[1]), second).c_str(), stdout);
  return 0;
}

/// To the standard output where there is no path, or `-`.
void write(std::string const& path, std::string const& bytes) {
  if (path.empty() || path == "-") {
    std::fwrite(bytes.data(), 1, bytes.size(), stdout);
    return;
  }
  auto const fail = [&] { throw std::runtime_error(weir::printable(path) + ": " + std::strerror(errno)); };
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) fail();
  bool const written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if (std::fclose(file) != 0 || !written) fail();
}

int draw(arguments const& a) {
  require(a, 1, 2, {"--output"});
  std::vector<weir::report_run> runs;
  for (std::string const& path : a.traces) {
    weir::recorded_memory memory = read_all(path, a);
    runs.push_back({name_of_file(path), std::move(memory.trace), std::move(memory.snapshot)});
  }
  std::string const output = a.output.empty() ? "memory.html" : a.output;
  if (output == "-") {
    write(output, weir::report_page(runs));
    return 0;
  }
  require_other_output(a, output);
  weir::write_report(runs, output);
  std::printf("%s\n", weir::printable(output).c_str());
  return 0;
}

/// Throws where what was printed has not got out: a disk may be full.
void finish_printing() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw std::runtime_error(std::string("standard output: ") + std::strerror(errno));
}

/// For PyTorch's viewer; says on the error output if it could not show everything.
std::string for_torch(weir::recorded_trace const& trace, weir::memory_snapshot const& snapshot) {
  std::vector<weir::detail::torch_device> const devices = weir::detail::torch_devices(trace, snapshot);
  std::size_t left_out = 0;
  for (weir::detail::torch_device const& device : devices) left_out += device.left_out();
  if (left_out != 0)
    std::fprintf(stderr,
                 "weir-memory: left out %s at which PyTorch's viewer would stop: what contradicts others, or lies in "
                 "memory that was not there then\n",
                 counted(left_out, "event").c_str());
  return weir::detail::torch_writer(trace).write(devices);
}

int convert(arguments const& a) {
  require(a, 1, 1, {"--output", "--to"});
  if (a.to != "csv" && a.to != "json" && a.to != "torch")
    throw wrong_argument(a.to.empty() ? "convert needs --to csv, json or torch"
                                      : "--to is '" + weir::printable(a.to) + "'; it can be csv, json or torch");
  if (!a.output.empty()) require_other_output(a, a.output);
  auto const [trace, snapshot] = read_all(a.traces[0], a);
  write(a.output, a.to == "csv"    ? weir::trace_csv(trace)
                  : a.to == "json" ? weir::trace_json_lines(trace)
                                   : for_torch(trace, snapshot));
  return 0;
}

int replay_all(arguments const& a) {
  require(a, 1, 1000, {"--stack", "--device", "--smallest"});
  std::vector<std::string> const stacks = a.stacks.empty() ? std::vector<std::string>{"async | pool"} : a.stacks;
  for (std::string const& stack : stacks) require_new_logs(stack);
  bool is_whole = true;
  for (std::string const& path : a.traces) {
    weir::memory_timeline const timeline = weir::timeline_of(read(path, a));
    auto const steps = steps_of(timeline);
    std::size_t const peak = weir::peak_of(timeline).bytes;
    std::printf("%s: %zu blocks, peak in use %s\n", weir::printable(name_of_file(path)).c_str(), timeline.blocks.size(),
                weir::format_bytes(peak).c_str());
    for (std::string const& stack : stacks) {
      progress shown("replaying on " + weir::printable(stack));
      replay_outcome const done = replay(timeline, steps, stack, a.device, shown);
      is_whole = is_whole && done.is_whole;
      std::printf("  %s\n    held %s, %.3f of the peak; %llu CUDA calls\n", weir::printable(stack).c_str(),
                  weir::format_bytes(done.held).c_str(),
                  peak == 0 ? 0 : static_cast<double>(done.held) / static_cast<double>(peak),
                  static_cast<unsigned long long>(done.cuda_calls));
      if (!done.is_whole)
        std::printf("    out of memory at event %zu of %zu:\n%s\n", done.stopped_at, timeline.moments,
                    done.report.c_str());
      else if (a.smallest)
        std::printf("    smallest device %s\n",
                    weir::format_bytes(smallest_device(timeline, steps, stack, done.held, a.device, shown)).c_str());
    }
  }
  return is_whole ? 0 : 1;
}

int run(arguments const& a) {
  if (a.command == "summary") return summarize(a);
  if (a.command == "compare") return compare(a);
  if (a.command == "page") return draw(a);
  if (a.command == "convert") return convert(a);
  if (a.command == "replay") return replay_all(a);
  throw wrong_argument("there is no command '" + weir::printable(a.command) +
                       "'; there are summary, compare, page, convert and replay");
}

}  // namespace

int main(int argc, char** argv) try {
  auto const a = parse_arguments(argc, argv);
  int const status = a ? run(*a) : 0;
  finish_printing();
  return status;
} catch (std::exception const& e) {
  std::fprintf(stderr, "weir-memory: %s\n", e.what());
  return 2;
}
