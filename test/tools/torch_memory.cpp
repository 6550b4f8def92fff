#include <weir/tools/torch_memory.hpp>

#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/trace.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/virtual_memory.hpp>
#include <weir/tools/read_trace.hpp>
#include <weir/tools/snapshot.hpp>
#include <weir/tools/trace_of.hpp>

#include <doctest/doctest.h>
#include <support/python.hpp>
#include <support/sim_fixture.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

using namespace weir;
using namespace weir::literals;
using weir::test::fresh_world;
using weir::test::python;

namespace {

/// What PyTorch's viewer needs of a file, as its script goes through it: from the segments and live blocks at the end
/// back to the first event. Prints the actions and the most bytes that were live at once, or what is wrong.
char const* const viewer = R"(
data = pickle.loads(BYTES)
segments, live, most, now, wrong = {}, {}, 0, 0, []
for s in data['segments']:
    assert s['device'] == 0 and s['total_size'] == sum(b['size'] for b in s['blocks']), s
    at = s['address']
    for b in s['blocks']:
        assert b['address'] == at and b['requested_size'] <= b['size'], b
        at += b['size']
        if b['state'] == 'active_allocated':
            live[b['address']] = b['size']
    segments[s['address']] = s['total_size']
def merged():
    out = []
    for a, n in sorted(segments.items()):
        if out and out[-1][0] + out[-1][1] == a: out[-1][1] += n
        else: out.append([a, n])
    segments.clear()
    segments.update({a: n for a, n in out})
def inside(a, n): return any(s <= a and a + n <= s + m for s, m in segments.items())
merged()
events = data['device_traces'][0]
for e in reversed(events):
    assert isinstance(e['frames'], list) and e['time_us'] > 0
    a, n, what = e.get('addr'), e['size'], e['action']
    if what == 'oom':
        assert e['device_free'] >= 0
    elif what == 'free_completed':
        live[a] = n
    elif what == 'free_requested':
        assert a in live, 'a free of nothing'
    elif what == 'alloc':
        live.pop(a, None)
        if not inside(a, n): wrong.append(f'alloc outside of segments: {a:x}')
    elif what in ('segment_free', 'segment_unmap'):
        assert not inside(a, n)
        segments[a] = n
        merged()
    else:
        if not inside(a, n): wrong.append(f'{what} of nothing')
        for s, m in list(segments.items()):
            if s <= a and a + n <= s + m:
                del segments[s]
                if s < a: segments[s] = a - s
                if a + n < s + m: segments[a + n] = s + m - a - n
    if any(not inside(b, 1) for b in live): wrong.append('a live block outside of segments after ' + what)
for e in events:
    if e['action'] == 'alloc': now += e['size']
    if e['action'] == 'free_completed': now -= e['size']
    most = max(most, now)
print(wrong[0] if wrong else f"{' '.join(e['action'] for e in events) if len(events) < 20 else len(events)}; {most}")
)";

template <class Memory>
std::string seen(Memory& memory) {
  recorded_trace const trace = trace_of(memory);
  return python(viewer, torch_memory(trace, snapshot(memory)));
}

}  // namespace

TEST_CASE("what PyTorch has no word for is left out, whichever layer it is of") {
  recorded_trace trace{.began = 1'000'000, .layers = {"top", "trace"}};
  trace.events = {{.address = 4096, .bytes = 4096, .layer = 1, .action = trace_action::map},
                  {.address = 4096, .bytes = 1024, .layer = 0},
                  {.address = 4096, .bytes = 1024, .layer = 0, .action = trace_action::spill},
                  {.address = 4096, .bytes = 4096, .layer = 1, .action = trace_action::move},
                  {.address = 4096, .bytes = 1024, .layer = 0, .action = trace_action::free},
                  {.address = 4096, .bytes = 4096, .layer = 1, .action = trace_action::unmap}};
  CHECK(python(viewer, torch_memory(trace)) == "segment_map alloc free_requested free_completed segment_unmap; 1024");
}

TEST_CASE("requests that contradict earlier ones are left out") {
  recorded_trace trace{.began = 1'000'000, .layers = {"trace"}};
  auto const allocate = trace_action::allocate, free = trace_action::free;
  trace.events = {{.address = 4096, .bytes = 1024, .action = free},  // of before the trace began
                  {.address = 4096, .bytes = 1024, .action = free},  // again, and ignored
                  {.address = 4096, .bytes = 1024, .action = allocate},
                  {.address = 4096, .bytes = 512, .action = free},  // so are those of a wrong size
                  {.address = 4096, .bytes = 1024, .action = free},
                  {.address = 4096, .bytes = 1024, .action = free},
                  {.address = 8192, .bytes = 256, .action = allocate},
                  {.address = 8192, .bytes = 512, .action = allocate},  // its thread wrote it before another's free
                  {.address = 8192, .bytes = 256, .action = free}};
  std::string const file = torch_memory(trace);
  CHECK(python(viewer, file) ==
        "free_requested free_completed alloc free_requested free_completed alloc free_requested free_completed; 0");
  CHECK(read_trace(file).events.size() == 6);  // the first one's block, too, was allocated
}

TEST_CASE("the times of a trace that does not know when it began come back") {
  recorded_trace trace{.layers = {"log"}};
  trace.events = {{.address = 4096, .bytes = 1024},
                  {.nanoseconds = 2'000'000, .address = 8192, .bytes = 1024},
                  {.nanoseconds = 5'000'000, .address = 8192, .bytes = 1024, .action = trace_action::free}};
  recorded_trace const back = read_trace(torch_memory(trace));
  REQUIRE(back.events.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(back.events[i].nanoseconds == trace.events[i].nanoseconds);
}

TEST_CASE("what a pool was refused is no refusal of the program's") {
  recorded_trace trace{.began = 1'000'000, .layers = {"top", "trace"}};
  auto const refused = trace_action::out_of_memory;
  trace.events = {{.bytes = 8192, .layer = 1, .action = refused},
                  {.address = 4096, .bytes = 4096, .layer = 1, .action = trace_action::grow},
                  {.address = 4096, .bytes = 2048, .action = trace_action::allocate},
                  {.bytes = 16384, .layer = 1, .action = refused},
                  {.bytes = 16384, .action = refused}};
  std::string const shown = python(viewer, torch_memory(trace));
  CHECK(shown.find("oom") != std::string::npos);
  CHECK(shown.find("oom") == shown.rfind("oom"));
}

TEST_CASE("events of no bytes are left out, but for refusals") {
  recorded_trace trace{.began = 1'000'000, .layers = {"top", "trace"}};
  auto const allocate = trace_action::allocate, free = trace_action::free;
  trace.events = {{.address = 4096, .bytes = 4096, .layer = 1, .action = trace_action::map},
                  {.address = 5120, .bytes = 0, .layer = 1, .action = trace_action::map},
                  {.address = 4096, .bytes = 0, .action = free},
                  {.address = 4096, .bytes = 2048, .action = allocate},
                  {.address = 4096, .bytes = 2048, .action = free},
                  {.address = 4096, .bytes = 0, .action = allocate},
                  {.bytes = 0, .action = trace_action::out_of_memory},
                  {.address = 4096, .bytes = 4096, .layer = 1, .action = trace_action::unmap}};
  CHECK(python(viewer, torch_memory(trace)) ==
        "segment_map alloc free_requested free_completed oom segment_unmap; 2048");
  trace.events = {{.address = 4096, .bytes = 4096, .action = allocate},
                  {.address = 4096, .bytes = 4096, .action = free},
                  {.address = 4096, .bytes = 0, .action = allocate}};  // in a segment that nobody showed
  CHECK(python(viewer, torch_memory(trace)) == "alloc free_requested free_completed; 4096");
}

TEST_CASE_FIXTURE(fresh_world, "a pool's growth, requests and refusals are shown, and what is live at the end") {
  stream const a;
  auto memory = make(device{} | trace{} | pool{.max_bytes = 4_MiB, .growth_bytes = 2_MiB} | trace{});
  void* const p = memory.allocate(a, 1000);
  void* const q = memory.allocate(a, 2_MiB);
  memory.deallocate(a, p, 1000);
  CHECK_THROWS_AS(static_cast<void>(memory.allocate(a, 1_GiB)), out_of_memory);
  CHECK(seen(memory) ==
        "segment_alloc alloc segment_alloc alloc free_requested free_completed segment_free oom; 2098152");
  memory.deallocate(a, q, 2_MiB);
}

TEST_CASE_FIXTURE(fresh_world, "tags are categories, and call stacks are frames") {
  stream const a;
  auto memory = make(device{} | pool{} | trace{.frames = 3});
  tag const scope{"decoder\xff"};
  void* const p = memory.allocate(a, 1000);
  std::string const bytes = torch_memory(trace_of(memory), snapshot(memory));
  CHECK(python("d = pickle.loads(BYTES)\ne = d['device_traces'][0][0]\n"
               "b = [b for s in d['segments'] for b in s['blocks'] if b['state'] == 'active_allocated']\n"
               "print(ascii(e['category']), ascii(b[0]['category']), len(e['frames']) > 0,\n"
               "      [sorted(f) for f in e['frames']][0], d['segments'][0]['segment_pool_id'])",
               bytes) == R"('decoder\ufffd' 'decoder\ufffd' True ['filename', 'line', 'name'] (0, 0))");
  memory.deallocate(a, p, 1000);
}

TEST_CASE_FIXTURE(fresh_world, "whatever a program did, and however little a trace remembers, the viewer can go back") {
  auto const run = [](auto recipe) {
    stream const a, b;
    auto memory = make(recipe);
    struct block {
      void* p;
      std::size_t bytes;
    };
    std::vector<block> live;
    std::mt19937 random(1);
    for (int i = 0; i < 500; ++i) {
      stream_ref const where = random() % 2 == 0 ? stream_ref(a) : stream_ref(b);
      if (live.size() > 20 || (!live.empty() && random() % 3 == 0)) {
        std::size_t const which = random() % live.size();
        memory.deallocate(where, live[which].p, live[which].bytes);
        live[which] = live.back();
        live.pop_back();
      } else {
        std::size_t const bytes = 1 + random() % 3_MiB;
        live.push_back({memory.allocate(where, bytes), bytes});
      }
      if (i % 100 == 99) synchronize(memory), trim(memory);
    }
    std::string const what = seen(memory);
    CHECK_MESSAGE(what.find("; ") != std::string::npos, what);
    recorded_trace const trace = trace_of(memory);
    std::string const alone = python(viewer, torch_memory(trace));
    CHECK_MESSAGE(alone.find("; ") != std::string::npos, alone);
    std::size_t left_out = 0;
    for (memory_snapshot const& end : {snapshot(memory), memory_snapshot{}})
      left_out += detail::torch_devices(trace, end)[0].left_out();
    if (trace.lost == 0) CHECK(left_out == 0);
    for (block const& each : live) memory.deallocate(a, each.p, each.bytes);
  };
  SUBCASE("a pool") { run(device{} | trace{} | pool{.growth_bytes = 2_MiB} | trace{}); }
  SUBCASE("a pool whose growth is forgotten in part") { run(device{} | trace{.events = 20} | pool{} | trace{}); }
  SUBCASE("a pool whose requests are forgotten in part") { run(device{} | trace{} | pool{} | trace{.events = 50}); }
  SUBCASE("a pool whose growth nobody saw") { run(device{} | pool{.growth_bytes = 2_MiB} | trace{}); }
  SUBCASE("a growable range") { run(virtual_memory{} | trace{} | pool{} | trace{}); }
  SUBCASE("no pool") { run(device{} | trace{}); }
  SUBCASE("a pool on a pool") { run(device{} | pool{} | trace{} | pool{.growth_bytes = 4_MiB} | trace{}); }
}

TEST_CASE("each device has the list of its own events and its own segments") {
  recorded_trace trace{.began = 1'000'000, .layers = {"trace"}};
  trace.events = {{.address = 4096, .bytes = 1024, .device = 2},
                  {.address = 4096, .bytes = 512, .device = -1},  // the host's memory is shown as device 0's
                  {.address = 4096, .bytes = 1024, .device = 2, .action = trace_action::free}};
  memory_snapshot const end{
      .segments = {{.address = 65536, .bytes = 256, .device = 3, .blocks = {{.address = 65536, .bytes = 256}}}}};
  CHECK(python("d = pickle.loads(BYTES)\nprint([len(t) for t in d['device_traces']], "
               "[(s['device'], s['total_size']) for s in d['segments']])",
               torch_memory(trace, end)) == "[1, 0, 3, 0] [(0, 512), (2, 1024), (3, 256)]");
}

TEST_CASE("the events of many devices are looked at once") {
  recorded_trace trace{.began = 1'000'000, .layers = {"trace"}};
  for (std::uint64_t i = 0; i < 1'500'000; ++i)  // all of them for each device would take minutes
    trace.events.push_back({.address = 4096 * i,
                            .bytes = 4096,
                            .device = static_cast<std::int32_t>(i % 4096),
                            .action = trace_action::move});  // of which nothing is written
  trace.events.push_back({.address = 4096, .bytes = 4096, .device = 4095});
  recorded_trace const read = read_trace(torch_memory(trace));
  REQUIRE(read.events.size() == 1);
  CHECK(read.events[0].device == 4095);
}

TEST_CASE("a device that no machine has is refused, and not filled up to") {
  for (std::int32_t const device : {4096, 1'000'000, 0x7fff'ffff}) {
    std::string const why = "weir: there is a device " + std::to_string(device) + "; a snapshot has a list for each";
    recorded_trace const trace{.events = {{.address = 4096, .bytes = 1024, .device = device}}, .layers = {"trace"}};
    CHECK_THROWS_WITH_AS(torch_memory(trace), doctest::Contains(why.c_str()), std::invalid_argument);
    memory_snapshot const end{.segments = {{.address = 4096, .bytes = 1024, .device = device}}};
    CHECK_THROWS_WITH_AS(torch_memory({}, end), doctest::Contains(why.c_str()), std::invalid_argument);
  }
}

TEST_CASE_FIXTURE(fresh_world, "a trace without a snapshot is shown with segments made for its blocks") {
  stream const a;
  auto memory = make(device{} | pool{} | trace{});
  void* const p = memory.allocate(a, 1000);
  void* const q = memory.allocate(a, 3000);
  memory.deallocate(a, p, 1000);
  CHECK(python(viewer, torch_memory(trace_of(memory))) == "alloc alloc free_requested free_completed; 4000");
  memory.deallocate(a, q, 3000);
  CHECK(python(viewer, torch_memory({})) == "; 0");
}
