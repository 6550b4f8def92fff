#include <weir/tools/report_page.hpp>

#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/trace.hpp>
#include <weir/core/recipe.hpp>
#include <weir/sources/host.hpp>

#include <doctest/doctest.h>
#include <support/temporary_folder.hpp>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

namespace {

std::size_t count(std::string const& text, std::string const& part) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}
bool has(std::string const& text, std::string const& part) { return count(text, part) != 0; }

weir::recorded_trace small() {
  weir::recorded_trace trace{.began = 1'700'000'000'000'000'000, .layers = {"program", "source"}, .tags = {"", "kv"}};
  trace.events = {
      {.nanoseconds = 5, .address = 4096, .bytes = 2048, .layer = 1, .action = weir::trace_action::grow},
      {.nanoseconds = 9, .address = 4352, .bytes = 100, .stream = 7, .tag = 1},
      {.nanoseconds = 8, .bytes = 4000, .layer = 1, .action = weir::trace_action::out_of_memory},
      {.nanoseconds = 10, .bytes = 5000, .tag = 1, .action = weir::trace_action::out_of_memory, .report = 1}};
  trace.reports.emplace_back("full </pre>");
  return trace;
}

}  // namespace

TEST_CASE("a page holds the data of its runs, in columns") {
  std::string const page = weir::report_page({{"first", small(), {}}, {"second", {}, {}}});
  CHECK(has(page, "\"name\":\"first\",\"began\":1700000000000,"));
  CHECK(has(page, "\"name\":\"second\""));
  CHECK(has(page, "\"base\":\"4096\""));
  CHECK(has(page,
            "\"blocks\":{\"address\":[256],\"bytes\":[100],\"stream\":[0],\"tag\":[1],\"from\":[2],\"freed\":[5],"
            "\"done\":[5]}"));
  CHECK(has(page, "\"mapped\":[[0,2048,1,5]]"));
  CHECK(has(page, "\"streams\":[\"0x7\",\"0x0\"]"));
}

TEST_CASE("a page says whether the memory at the end is known") {
  CHECK(has(weir::report_page({{"", small(), {}}}), "\"hasEnd\":false"));
  CHECK(has(weir::report_page({{"", small(), {.taken = 1}}}), "\"hasEnd\":true"));
}

TEST_CASE("times never go back, whatever the events say") {
  CHECK(has(weir::report_page({{"", small(), {}}}), "\"time\":[5,9,9,10]"));
}

TEST_CASE("what a source refuses is not refused to the program") {
  std::string const page = weir::report_page({{"", small(), {}}});
  CHECK(has(page, "{\"moment\":3,\"action\":\"no_segment\",\"bytes\":4000"));
  CHECK(has(page, "{\"moment\":4,\"action\":\"out_of_memory\",\"bytes\":5000"));
  CHECK(has(page, "\"report\":\"full \\u003c/pre>\"}"));
  CHECK(count(page, "\"report\":") == 1);
}

TEST_CASE("no name ends the script that holds the data") {
  std::string const plain = weir::report_page({{"", small(), {}}});
  weir::recorded_trace trace = small();
  trace.tags[1] = "</script><!--<script>@@DATA@@";
  trace.layers[0] = "</SCRIPT >";
  std::string const page = weir::report_page({{"</script><b>", trace, {}}});
  for (char const* const part : {"</script", "<script", "<!--", "</SCRIPT", "<b>"})
    CHECK(count(page, part) == count(plain, part));
  CHECK(has(page, "\\u003c/script>\\u003c!--\\u003cscript>@@DATA@@"));
}

TEST_CASE("a page asks nothing of the network") {
  std::string const page = weir::report_page({});
  CHECK(has(page, "default-src 'none'"));
  for (char const* const part : {"http:", "https:", " src=", "@import", "url(", "fetch(", "XMLHttpRequest", "import("})
    CHECK_FALSE(has(page, part));
}

TEST_CASE("a stack's page is written with what its traces saw") {
  weir::test::temporary_folder const folder;
  std::string const path = folder / "memory.html";
  auto memory = weir::make(weir::host{} | weir::trace{.name = "source"} | weir::pool{} | weir::trace{});
  void* const p = memory.allocate(weir::host_order, 1000);
  weir::write_report(memory, path, "service");
  memory.deallocate(weir::host_order, p, 1000);
  std::ifstream file(path);
  std::string const page((std::istreambuf_iterator<char>(file)), {});
  CHECK(has(page, "\"name\":\"service\""));
  CHECK(has(page, "\"bytes\":[1000]"));
  CHECK(has(page, "\"action\":\"grow\""));
  CHECK(has(page, "\"layer\":\"pool\",\"range\":false,\"known\":true"));
}

TEST_CASE("a file that cannot be written is an error that names it") {
  try {
    weir::write_report({}, "/nowhere/memory\x1b.html");
    FAIL("it was written");
  } catch (std::system_error const& e) {
    CHECK(has(e.what(), "report '/nowhere/memory\\x1b.html' cannot be written"));
    CHECK(e.code().value() == ENOENT);
  }
}
