#include <weir/tools/trace_text.hpp>

#include <doctest/doctest.h>
#include <support/python.hpp>

#include <cstdlib>
#include <string>

using namespace weir;
using weir::test::python;

namespace {

/// One of each kind of event.
recorded_trace sample() {
  recorded_trace trace{.began = 1'700'000'000'123'456'789,
                       .lost = 3,
                       .layers = {"top: trace", "trace"},
                       .tags = {"", "a,\"b\"\n", "=1+1\xff"},
                       .call_stacks = {{}, {"program(run()+0x1)", "program(main+0x2)"}},
                       .reports = {"", "weir: out of memory\n  hint <b>"}};
  trace.events = {
      {.nanoseconds = 10, .address = 0x7f00, .bytes = 2048, .layer = 1, .device = 0, .action = trace_action::grow},
      {.nanoseconds = 2'000'000,
       .address = 0xffff'ffff'ffff'ff00,
       .bytes = 1000,
       .stream = 0x55d0,
       .thread = 7,
       .layer = 0,
       .tag = 1,
       .call_stack = 1,
       .device = 0},
      {.nanoseconds = 2'000'001,
       .bytes = 5000,
       .stream = 1,
       .thread = 8,
       .tag = 2,
       .action = trace_action::out_of_memory,
       .report = 1},
      {.nanoseconds = 3'000'000'000,
       .address = 0xffff'ffff'ffff'ff00,
       .bytes = 1000,
       .thread = 7,
       .device = 0,
       .action = trace_action::free},
      {.nanoseconds = 3'000'000'001, .address = 0x7f00, .bytes = 64, .layer = 1, .action = trace_action::move}};
  return trace;
}

}  // namespace

TEST_CASE("a log has the requests at the outermost layer, as RMM writes them") {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  CHECK(trace_csv(sample()) ==
        "Thread,Time,Action,Pointer,Size,Stream,Tag\n"
        "7,22:13:20.125456,allocate,0xffffffffffffff00,1000,0x55d0,\"a,\"\"b\"\"\\n\"\n"
        "8,22:13:20.125456,allocate failure,0x0,5000,0,\"'=1+1\\xff\"\n"
        "7,22:13:23.123456,free,0xffffffffffffff00,1000,0x0,\n");
  CHECK(trace_csv({}) == "Thread,Time,Action,Pointer,Size,Stream,Tag\n");
}

TEST_CASE("Python reads each line of JSON") {
  CHECK(python("lines = [json.loads(line) for line in BYTES.decode().splitlines()]\n"
               "print(lines[0])\nprint(lines[2])\nprint(ascii([l.get('tag') for l in lines]),\n"
               "[l.get('action') for l in lines], lines[3]['report'])",
               trace_json_lines(sample())) ==
        "{'weir_trace': 1, 'began': 1700000000123456789, 'lost': 3, 'layers': ['top: trace', 'trace']}\n"
        "{'ns': 2000000, 'action': 'allocate', 'layer': 'top: trace', 'device': 0, 'address': '0xffffffffffffff00', "
        "'bytes': 1000, 'stream': '0x55d0', 'thread': 7, 'tag': 'a,\"b\"\\n', "
        "'frames': ['program(run()+0x1)', 'program(main+0x2)']}\n"
        "[None, None, 'a,\"b\"\\n', '=1+1\\ufffd', None, None] [None, 'grow', 'allocate', 'out_of_memory', 'free', "
        "'move'] "
        "weir: out of memory\n  hint <b>");
}

TEST_CASE("Python reads a snapshot") {
  memory_snapshot const snapshot{
      .taken = 5,
      .segments = {{.address = 0x1000,
                    .bytes = 512,
                    .device = 1,
                    .is_range = true,
                    .layer = "pool",
                    .blocks = {{.address = 0x1000,
                                .bytes = 256,
                                .requested = 200,
                                .stream = 0x51,
                                .thread = 9,
                                .state = memory_state::live,
                                .tag = "</script>"},
                               {.address = 0x1100, .bytes = 256, .state = memory_state::unmapped}}},
                   {.address = 0x9000}}};
  std::string const text = snapshot_json(snapshot);
  CHECK(text.find("</") == std::string::npos);  // it may stand in a page
  CHECK(python("print(json.loads(BYTES))", text) ==
        "{'weir_snapshot': 1, 'taken': 5, 'segments': [{'address': '0x1000', 'bytes': 512, 'device': 1, "
        "'is_range': True, 'layer': 'pool', 'blocks': [{'address': '0x1000', 'bytes': 256, 'state': 'live', "
        "'requested': 200, 'stream': '0x51', 'thread': 9, 'tag': '</script>'}, {'address': '0x1100', 'bytes': 256, "
        "'state': 'unmapped'}]}, {'address': '0x9000', 'bytes': 0, 'device': None, 'is_range': False, 'layer': '', "
        "'blocks': []}]}");
}
