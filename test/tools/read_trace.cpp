#include <weir/tools/read_trace.hpp>

#include <weir/tools/torch_memory.hpp>
#include <weir/tools/trace_text.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <vector>

using namespace weir;

namespace {

recorded_trace sample() {
  recorded_trace trace{.began = 1'700'000'000'123'456'000,
                       .lost = 3,
                       .layers = {"top: trace", "trace"},
                       .tags = {"", "a,\"b\"\n"},
                       .call_stacks = {{}, {"program(run()+0x1)", "program(main+0x2)"}},
                       .reports = {"", "weir: out of memory\n  hint <b>"}};
  trace.events = {
      {.address = 0x7f00, .bytes = 2048, .layer = 1, .device = 0, .action = trace_action::grow},
      {.nanoseconds = 2000,
       .address = 0x7f00,
       .bytes = 1000,
       .stream = 0x55d0,
       .thread = 7,
       .tag = 1,
       .call_stack = 1,
       .device = 0},
      {.nanoseconds = 3000,
       .bytes = 5000,
       .stream = 1,
       .thread = 8,
       .device = -1,
       .action = trace_action::out_of_memory,
       .report = 1},
      {.nanoseconds = 4000, .address = 0x7f00, .bytes = 1000, .thread = 7, .device = 0, .action = trace_action::free},
      {.nanoseconds = 5000, .address = 0x7f00, .bytes = 64, .layer = 1, .device = 0, .action = trace_action::move},
      {.nanoseconds = 6000, .address = 0x7f00, .bytes = 64, .layer = 1, .device = 0, .action = trace_action::unspill}};
  return trace;
}

std::string refusal(std::string const& bytes) {
  try {
    read_trace(bytes, "file");
    return {};
  } catch (damaged_trace const& damaged) {
    return damaged.what();
  }
}

}  // namespace

TEST_CASE("JSON lines are read back as they were") {
  CHECK(read_trace(trace_json_lines(sample())) == sample());
  CHECK(read_trace(trace_json_lines({})).events.empty());
  recorded_trace told = sample();
  told.below = {1};
  CHECK(read_trace(trace_json_lines(told)) == told);
  told.below = {1, 7};  // which is none
  CHECK(read_trace(trace_json_lines(told)).below == std::vector<std::uint32_t>{1});
}

TEST_CASE("members that nobody knows are left out, and what is missing is as by default") {
  recorded_trace const trace =
      read_trace("{\"weir_trace\":1,\"later\":[\"x\"]}\n\n{\"action\":\"free\",\"later\":true,\"bytes\":5}\n");
  REQUIRE(trace.events.size() == 1);
  CHECK(trace.events[0].bytes == 5);
  CHECK(trace.events[0].device == -1);
  CHECK(trace.layers.size() == 1);
}

TEST_CASE("where no bytes were allocated, or came or went, nothing happened") {
  std::string lines = "{\"weir_trace\":1}\n";
  for (unsigned i = 0; i < trace_actions; ++i)
    lines += R"({"address":"0x1000","action":")" + std::string(name_of(static_cast<trace_action>(i))) + "\"}\n";
  std::string read;
  for (trace_event const& e : read_trace(lines).events) read += std::string(name_of(e.action)) + " ";
  CHECK(read == "free out_of_memory move spill unspill ");  // a free can be wrong
}

TEST_CASE("a log is read back but for what it does not hold") {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  recorded_trace const trace = read_trace(trace_csv(sample()));
  REQUIRE(trace.events.size() == 3);
  CHECK(trace.tags == sample().tags);
  CHECK(trace.events[0] == trace_event{.address = 0x7f00, .bytes = 1000, .stream = 0x55d0, .thread = 7, .tag = 1});
  CHECK(trace.events[1].action == trace_action::out_of_memory);
  CHECK(trace.events[1].stream == 1);
  CHECK(trace.events[2].nanoseconds == 2000);
  CHECK(trace.events[2].action == trace_action::free);
}

TEST_CASE("the mark of UTF-8 that editors put ahead of a text is passed over") {
  std::string const mark = "\xef\xbb\xbf";
  CHECK(read_trace(mark + trace_csv(sample())) == read_trace(trace_csv(sample())));
  CHECK(read_trace(mark + trace_json_lines(sample())) == sample());
}

TEST_CASE("times of a log go on after midnight, and lines may be a little out of order") {
  recorded_trace const trace = read_trace(
      "Thread,Time,Action,Pointer,Size,Stream\n"
      "1,23:59:59.000000,allocate,0x1,1,0\n"
      "1,23:59:59.500000,allocate,0x2,1,0\n"
      "1,23:59:59.400000,allocate,0x3,1,0\n"
      "1,00:00:01.000000,allocate,0x4,1,0\n"
      "1,whenever,allocate,0x5,1,0\n");
  REQUIRE(trace.events.size() == 5);
  CHECK(trace.events[1].nanoseconds == 500'000'000);
  CHECK(trace.events[2].nanoseconds == 500'000'000);
  CHECK(trace.events[3].nanoseconds == 2'000'000'000);
  CHECK(trace.events[4].nanoseconds == 2'000'000'000);
}

TEST_CASE("a snapshot for PyTorch is read back to its requests, refusals and segments") {
  memory_snapshot const end{
      .segments = {{.address = 0x7f00, .bytes = 2048, .device = 0, .blocks = {{.address = 0x7f00, .bytes = 2048}}}}};
  recorded_memory const memory = read_memory(torch_memory(sample(), end));
  recorded_trace const& trace = memory.trace;
  REQUIRE(trace.events.size() == 4);
  CHECK(trace.layers == std::vector<std::string>{"PyTorch", "PyTorch: segments"});
  CHECK(trace.events[0].action == trace_action::grow);
  CHECK(trace.events[0].bytes == 2048);
  CHECK(trace.events[0].layer == 1);
  CHECK(trace.events[1].action == trace_action::allocate);
  CHECK(trace.events[1].address == 0x7f00);
  CHECK(trace.events[1].bytes == 1000);
  CHECK(trace.events[1].layer == 0);
  CHECK(trace.tags.at(trace.events[1].tag) == "a,\"b\"\n");
  CHECK(trace.events[2].action == trace_action::out_of_memory);
  CHECK(trace.events[2].bytes == 5000);
  CHECK(trace.reports.at(trace.events[2].report) == sample().reports[1]);
  CHECK(trace.events[3].nanoseconds == 4000);
  CHECK(trace.events[3].device == 0);
  REQUIRE(memory.snapshot.segments.size() == 1);
  CHECK(memory.snapshot.segments[0].address == 0x7f00);
  CHECK(memory.snapshot.segments[0].bytes == 2048);
  CHECK(memory.snapshot.segments[0].blocks.at(0).state == memory_state::free);
}

TEST_CASE("what happened on several devices of PyTorch's is in one order, and what was there before comes first") {
  recorded_trace const trace{
      .began = 1'700'000'000'000'000'000,
      .events = {{.nanoseconds = 2000, .address = 0x1000, .bytes = 10, .device = 0},
                 {.nanoseconds = 6000, .address = 0x1000, .bytes = 10, .device = 0, .action = trace_action::free},
                 {.nanoseconds = 1000, .address = 0x2000, .bytes = 20, .device = 1},
                 {.nanoseconds = 4000, .address = 0x3000, .bytes = 30, .device = 1, .action = trace_action::free},
                 {.nanoseconds = 5000, .address = 0x2000, .bytes = 20, .device = 1, .action = trace_action::free}},
      .layers = {"trace"}};
  recorded_trace const read = read_trace(torch_memory(trace));
  CHECK(read.began == trace.began + 1000);
  std::string order;
  for (trace_event const& e : read.events)
    order += std::string(name_of(e.action)) + " " + std::to_string(e.bytes) + " at " + std::to_string(e.nanoseconds) +
             " on " + std::to_string(e.device) + "; ";
  CHECK(order ==
        "allocate 30 at 0 on 1; allocate 20 at 0 on 1; allocate 10 at 1000 on 0; free 30 at 3000 on 1; "
        "free 20 at 4000 on 1; free 10 at 5000 on 0; ");
}

TEST_CASE("a long category of many of a snapshot's entries is read once") {
  auto const text = [](std::string const& s) { return "U" + std::string(1, static_cast<char>(s.size())) + s; };
  std::string const category(8'000'000, 'x');  // reading it for each of the entries would take minutes
  auto const entry = [&](std::string const& action, std::string const& its_category) {
    return "(" + text("action") + text(action) + text("addr") + "K\1" + text("size") + "K\1" + text("stream") + "K\1" +
           text("category") + its_category + "d";
  };
  std::string bytes = "\x80\x02(" + text("device_traces") + "((";
  bytes += entry("alloc", std::string("X\0\x12\x7a\0", 5) + category + "q\1") + "q\2";
  bytes += entry("free_requested", "h\1") + "q\3";
  std::size_t const pairs = 200'000;
  for (std::size_t i = 1; i < pairs; ++i) bytes += "h\2h\3";
  recorded_trace const trace = read_trace(bytes + "lld.");
  REQUIRE(trace.events.size() == 2 * pairs);
  CHECK(trace.events[2 * pairs - 2].tag == 1);
  CHECK(trace.tags == std::vector<std::string>{"", category});
}

TEST_CASE("a log and JSON lines say nothing of the segments at the end") {
  CHECK(read_memory(trace_csv(sample())).snapshot == memory_snapshot{});
  CHECK(read_memory(trace_json_lines(sample())).snapshot == memory_snapshot{});
}

TEST_CASE("what is no trace is refused with the place") {
  CHECK(refusal("") == "file:1: is empty; a trace without events has a first line, too");
  CHECK(refusal("hello\n").starts_with("file:1: is neither"));
  CHECK(refusal("\x80").starts_with("file: byte 0: "));
  CHECK(refusal("{\"weir_trace\":2}\n") == "file:1: is no trace of version 1: \"weir_trace\" is not 1");
  std::string const header = "{\"weir_trace\":1}\n";
  CHECK(refusal(header + "{\"bytes\":1}") == "file:2: has no 'action'");
  CHECK(refusal(header + "{\"action\":\"fly\"}") == "file:2: action is 'fly'; no event is called so");
  CHECK(refusal(header + "{\"action\":\"free\",\"bytes\":\"many\"}") == "file:2: bytes is 'many', which is no number");
  CHECK(refusal(header + "{\"action\":\"free\",\"device\":4294967295}") ==
        "file:2: device is 4294967295; no machine has so many");
  CHECK(refusal(header + "{\"action\":\"free\",\"device\":4096}") == "file:2: device is 4096; no machine has so many");
  CHECK(refusal(header + "{\"action\":\"free\",\"device\":4095}").empty());
  CHECK(refusal("Thread,Time,Action,Pointer,Size,Stream\n1,now\n").starts_with("file:2: has 2 fields"));
}
