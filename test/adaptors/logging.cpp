// needs: tsan
#include <weir/adaptors/logging.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/core/resource_ref.hpp>

#include <doctest/doctest.h>

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "support/temporary_folder.hpp"
#include "support/test_source.hpp"

using namespace weir;
using namespace weir::test;

/// In place of the C library's, which asks the kernel whether the program has more rights than its user.
static bool is_privileged = false;
extern "C" char* secure_getenv(char const* name) noexcept { return is_privileged ? nullptr : std::getenv(name); }

namespace {

stream_ref const legacy;
using logged = logging_resource<source_resource>;
static_assert(resource<logged>);
static_assert(device_accessible<logged> && host_accessible<logged> && host_ordered<logged>);

std::string refusal(logging const& options) {
  source_state state;
  return message_of<std::invalid_argument>([&] { [[maybe_unused]] auto memory = make(source{&state} | options); });
}

std::string hex(void const* p) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(p)));
  return text;
}

/// Each digit as a 0.
std::string shape_of(std::string text) {
  for (char& c : text)
    if (c >= '0' && c <= '9') c = '0';
  return text;
}

int seconds_of_day(std::string const& time) {
  return std::stoi(time.substr(0, 2)) * 3600 + std::stoi(time.substr(3, 2)) * 60 + std::stoi(time.substr(6, 2));
}

int local_seconds_of_day() {
  // `time` may still be in the second before: it reads a coarser clock than the one that log lines have.
  ::time_t const now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  struct ::tm local {};
  ::localtime_r(&now, &local);
  return local.tm_hour * 3600 + local.tm_min * 60 + local.tm_sec;
}

/// Sets WEIR_LOG_FILE for a test and takes it away again.
struct log_variable {
  explicit log_variable(std::string const& value) { ::setenv("WEIR_LOG_FILE", value.c_str(), 1); }
  ~log_variable() { ::unsetenv("WEIR_LOG_FILE"); }
};

}  // namespace

TEST_CASE("wrong options are refused") {
  ::unsetenv("WEIR_LOG_FILE");
  CHECK(contains(refusal({}), "WEIR_LOG_FILE"));
  CHECK(contains(refusal({.path = "x", .mode = 01777}), "mode is 01777; it must be at most 0777"));
  CHECK(contains(refusal({.path = "x", .buffer_bytes = SIZE_MAX}), "buffer_bytes"));
  CHECK(contains(refusal({.path = std::string("x\0y", 3)}), "zero byte"));
  CHECK(logging{.path = "x"}.valid());
}

TEST_CASE("a program with more rights than its user does not let the user name the file") {
  log_variable const variable("/dev/null");
  CHECK(logging{}.resolved_path() == "/dev/null");
  is_privileged = true;
  CHECK(contains(refusal({}), "path is empty"));
  CHECK(logging{.path = "x"}.valid());
  is_privileged = false;
}

TEST_CASE("a file that cannot be opened is an error when the resource is made, and the upstream is closed again") {
  source_state state;
  auto const make_one = [&] {
    [[maybe_unused]] auto memory = make(source{&state} | logging{.path = "/nowhere/log.csv"});
  };
  std::string const what = message_of<std::system_error>(make_one);
  CHECK(contains(what, "\"/nowhere/log.csv\""));
  CHECK(contains(what, "No such file or directory"));
}

TEST_CASE("the file has RMM's columns, the tag behind them, and a line for each event") {
  temporary_folder const folder;
  std::string const path = folder / "log.csv";
  source_state state;
  int const earliest = local_seconds_of_day();
  void *a = nullptr, *b = nullptr;
  {
    auto memory = make(source{&state} | logging{.path = path});
    a = memory.allocate(stream_ref(cudaStreamLegacy), 1000);
    tag const scope{"decoder"};
    b = memory.allocate(stream_ref(cudaStreamPerThread), 7);
    memory.deallocate(stream_ref(reinterpret_cast<cudaStream_t>(std::uintptr_t{0x55d0})), b, 7);
    memory.deallocate(host_order, a, 1000);
  }
  int const latest = local_seconds_of_day();
  auto const records = records_of(path);
  using fields = std::vector<std::string>;
  REQUIRE(records.size() == 5);
  CHECK(records[0] == fields{"Thread", "Time", "Action", "Pointer", "Size", "Stream", "Tag"});
  std::string const me = std::to_string(::gettid());
  auto const expect = [&](std::size_t i, char const* action, void* p, char const* size, char const* on,
                          char const* tag) {
    auto const& record = records[i];
    REQUIRE(record.size() == 7);
    CHECK(record[0] == me);
    CHECK(shape_of(record[1]) == "00:00:00.000000");
    int const time = seconds_of_day(record[1]);
    CHECK((earliest <= latest ? earliest <= time && time <= latest : earliest <= time || time <= latest));  // midnight
    CHECK(record[2] == action);
    CHECK(record[3] == hex(p));
    CHECK(record[4] == size);
    CHECK(record[5] == on);
    CHECK(record[6] == tag);
  };
  expect(1, "allocate", a, "1000", "0", "");
  expect(2, "allocate", b, "7", "0x2", "decoder");
  expect(3, "free", b, "7", "0x55d0", "decoder");
  expect(4, "free", a, "1000", "0", "decoder");
}

TEST_CASE("a free is logged before the upstream has the memory back, and an allocation after it was given") {
  temporary_folder const folder;
  std::string const path = folder / "log.csv";
  source_state state;
  auto memory = make(source{&state} | logging{.path = path, .buffer_bytes = 0});
  std::size_t seen = 0;
  state.on_deallocate = [&] { seen = records_of(path).size(); };
  void* const p = memory.allocate(legacy, 1);
  CHECK(records_of(path).at(1)[3] == hex(p));
  memory.deallocate(legacy, p, 1);
  CHECK(seen == 3);
}

TEST_CASE("a wrong free that was ignored is followed by the allocation of what is live still, and of nothing else") {
  temporary_folder const folder;
  std::string const path = folder / "log.csv";
  source_state state;
  auto memory = make(source{&state} | pool{} | logging{.path = path});
  void* const p = memory.allocate(legacy, 1000);
  caught_misuse const misuse;
  memory.deallocate(legacy, p, 999);
  memory.deallocate_after(legacy, p, 1000, {}, 512);
  memory.deallocate(legacy, p, 1000);
  memory.deallocate(legacy, p, 1000);  // twice
  CHECK(misuse.count() == 3);
  memory.flush();
  std::vector<std::string> lines;
  for (auto const& record : records_of(path)) lines.push_back(record[2] + " " + record[4]);
  CHECK(lines == std::vector<std::string>{"Action Size", "allocate 1000", "free 999", "allocate 1000", "free 1000",
                                          "allocate 1000", "free 1000", "free 1000"});
}

TEST_CASE("a failure is logged and in the file, with all before it, when the caller sees it") {
  temporary_folder const folder;
  std::string const path = folder / "log.csv";
  source_state state;
  auto memory = make(source{&state} | logging{.path = path});
  void* const p = memory.allocate(legacy, 1);
  CHECK(records_of(path).size() == 1);  // buffered
  state.fail = failing::out_of_memory;
  std::string const what = message_of<out_of_memory>([&] { memory.allocate(legacy, 5_GiB); });
  auto records = records_of(path);
  REQUIRE(records.size() == 3);
  CHECK(records[1][2] == "allocate");
  CHECK(records[2][2] == "allocate failure");
  CHECK(records[2][3] == "0x0");
  CHECK(records[2][4] == "5368709120");
  CHECK(contains(what, "refused by source; chain: logging > source"));
  CHECK(contains(what, "logging    to \"" + path + "\""));
  state.fail = failing::other;
  CHECK_THROWS_AS(memory.allocate(legacy, 2), std::logic_error);
  CHECK(records_of(path).size() == 4);
  memory.deallocate(legacy, p, 1);
}

TEST_CASE("zero bytes are nothing") {
  temporary_folder const folder;
  source_state state;
  auto memory = make(source{&state} | logging{.path = folder / "log.csv"});
  CHECK(memory.allocate(legacy, 0) == nullptr);
  memory.deallocate(legacy, nullptr, 0);
  memory.flush();
  CHECK(records_of(memory.path()).size() == 1);
  CHECK(state.calls == 0);
}

TEST_CASE("without a path the environment names the file, and %p in a name is the process") {
  temporary_folder const folder;
  source_state state;
  log_variable const variable(folder / "log.%p.csv");
  auto memory = make(source{&state} | logging{});
  CHECK(memory.path() == folder / "log." + std::to_string(::getpid()) + ".csv");
  CHECK(records_of(memory.path()).size() == 1);
  auto other = make(source{&state} | logging{.path = folder / "mine.csv"});
  CHECK(other.path() == folder / "mine.csv");
}

TEST_CASE("layers of one file share it") {
  temporary_folder const folder;
  std::string const path = folder / "log.csv";
  source_state state;
  {
    auto first = make(source{&state} | logging{.path = path});
    void* const p = first.allocate(legacy, 1);
    auto second = make(source{&state} | logging{.path = path});
    second.deallocate(legacy, second.allocate(legacy, 2), 2);
    first.deallocate(legacy, p, 1);
  }
  auto const records = records_of(path);
  REQUIRE(records.size() == 5);
  std::string sizes;
  for (std::size_t i = 1; i < 5; ++i) sizes += records[i][4];
  CHECK(sizes == "1221");
}

TEST_CASE("a path is described in one line") {
  temporary_folder const folder;
  source_state state;
  auto memory = make(source{&state} | logging{.path = folder / "a\nb"});
  CHECK(contains(report_of(memory).lines(), "a\\nb\""));
  CHECK(memory.lost() == 0);
}

TEST_CASE("eight threads: lines are whole and each pointer's are in the order of its life") {
  temporary_folder const folder;
  std::string const path = folder / "log.csv";
  source_state state;
  constexpr int threads = 8, rounds = 300;
  {
    auto memory = make(source{&state} | logging{.path = path, .buffer_bytes = 1000});
    std::mutex mutex;
    std::vector<void*> shared;  // freed by another thread than the one that allocated it
    std::vector<std::thread> running;
    for (int t = 0; t < threads; ++t)
      running.emplace_back([&] {
        for (int i = 0; i < rounds; ++i) {
          void* p = memory.allocate(legacy, 64);
          {
            std::lock_guard const lock(mutex);
            shared.push_back(p);
            std::swap(shared.front(), shared.back());
            if (shared.size() < 4) continue;
            p = shared.back();
            shared.pop_back();
          }
          memory.deallocate(legacy, p, 64);
        }
      });
    for (auto& thread : running) thread.join();
    for (void* const p : shared) memory.deallocate(legacy, p, 64);
  }
  auto const records = records_of(path);
  CHECK(records.size() == 1 + 2 * threads * rounds);
  std::map<std::string, bool> live;
  std::set<std::string> names;
  for (std::size_t i = 1; i < records.size(); ++i) {
    REQUIRE(records[i].size() == 7);
    names.insert(records[i][0]);
    bool& is_live = live[records[i][3]];
    REQUIRE(records[i][2] == (is_live ? "free" : "allocate"));
    is_live = !is_live;
  }
  for (auto const& [pointer, is_live] : live) CHECK_FALSE(is_live);
  CHECK(names.size() >= threads);
}
