// Files read as traces. What is read is a possible program, and is read again alike when it is written as a log; what
// is refused is refused at one of its lines or bytes.
#include "target.hpp"

#include "../../bench/replay/trace.hpp"

#include <support/memory_file.hpp>

#include <algorithm>
#include <charconv>
#include <map>

using bench::trace;
using fuzz::require;
using weir::test::memory_file;

namespace {

void check(trace const& t) {
  require(t.streams >= 1 || t.events.empty(), "there is a stream");
  std::vector<int> state(t.sizes.size());  // 1: live, 2: freed
  std::size_t now = 0, most = 0;
  for (trace::event const& e : t.events) {
    require(e.block < t.sizes.size(), "a block has a size");
    require(e.stream < t.streams && e.thread < t.threads, "streams and threads are counted");
    require(state[e.block] == (e.allocates ? 0 : 1), "a block is allocated once, then freed at most once");
    ++state[e.block];
    e.allocates ? now += t.sizes[e.block] : now -= t.sizes[e.block];
    most = std::max(most, now);
  }
  for (std::size_t const bytes : t.sizes) require(bytes != 0, "no block is empty");
  for (int const s : state) require(s != 0, "every block is allocated");
  require(t.peak() == most, "peak");
}

/// As RMM writes it. Each block has an address of its own.
std::string as_log(trace const& t) {
  std::string out = "Thread,Time,Action,Pointer,Size,Stream\n";
  for (trace::event const& e : t.events) {
    char pointer[20] = {};
    std::to_chars(pointer, pointer + sizeof pointer, (std::uint64_t{e.block} + 1) << 8, 16);
    out += std::to_string(e.thread) + ",now," + (e.allocates ? "allocate" : "free") + ",0x" + pointer + ',' +
           std::to_string(t.sizes[e.block]) + ',' + std::to_string(e.stream) + '\n';
  }
  return out;
}

void check_written_anew(trace const& t) {
  memory_file const copy(as_log(t));
  auto const all = bench::read_traces(copy.path());
  require(all.size() == 1, "a log is one trace");
  trace const& again = all[0];
  require(again.events.size() == t.events.size(), "written anew it has as many events");
  std::map<std::uint32_t, std::uint32_t> blocks;  // numbers of theirs may differ, one for one
  for (std::size_t i = 0; i < t.events.size(); ++i) {
    trace::event const &a = t.events[i], &b = again.events[i];
    require(a.allocates == b.allocates && t.sizes[a.block] == again.sizes[b.block] && a.stream == b.stream &&
                a.thread == b.thread && blocks.emplace(a.block, b.block).first->second == b.block,
            "written anew it is read alike");
  }
  require(t.streams == again.streams && t.threads == again.threads, "streams and threads are counted again");
}

/// `PATH:LINE: why`, or `PATH: byte N: why`.
void check_refusal(std::string_view what, std::string const& path, std::string_view content) {
  require(what.starts_with(path + ":"), "a refusal says the file");
  what.remove_prefix(path.size() + 1);
  bool const by_byte = what.starts_with(" byte ");
  if (by_byte) what.remove_prefix(6);
  std::size_t number = 0;
  require(std::from_chars(what.data(), what.data() + what.size(), number).ec == std::errc(), "a refusal says where");
  auto const lines = static_cast<std::size_t>(std::count(content.begin(), content.end(), '\n')) + 1;
  require(by_byte ? number <= content.size() : number >= 1 && number <= lines, "a refusal points into the file");
}

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  std::string_view const content(reinterpret_cast<char const*>(data), size);
  if (content.starts_with("\x1f\x8b")) return 0;  // gzip-ed: zlib's business
  memory_file const file(content);
  try {
    for (trace const& t : bench::read_traces(file.path())) {
      check(t);
      if (!content.starts_with('\x80')) check_written_anew(t);
    }
  } catch (bench::damaged_trace const& refused) {
    check_refusal(refused.what(), file.path(), content);
  }
  return 0;
}
