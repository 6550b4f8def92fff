// needs: tsan
#include <weir/adaptors/detail/log_line.hpp>

#include <doctest/doctest.h>

#include <unistd.h>

#include <cstdint>
#include <string>
#include <thread>

using weir::stream_ref;
using weir::detail::log_line;

namespace {

void* const somewhere = reinterpret_cast<void*>(std::uintptr_t{0x7f00a0});

std::string text_of(log_line const& line) { return std::string(std::string_view(line)); }

/// What comes after thread and time.
std::string tail_of(std::string const& line) { return line.substr(line.find(',', line.find(',') + 1) + 1); }

std::string stream_field(stream_ref stream) {
  std::string const line = text_of(log_line("free", somewhere, 1, stream));
  std::size_t const tag = line.rfind(',');
  return line.substr(line.rfind(',', tag - 1) + 1);
}

}  // namespace

TEST_CASE("a line has thread, time, action, pointer, size, stream and no tag") {
  stream_ref const stream(reinterpret_cast<cudaStream_t>(std::uintptr_t{0x55d0}));
  std::string line = text_of(log_line("allocate", somewhere, 1000, stream));
  CHECK(tail_of(line) == "allocate,0x7f00a0,1000,0x55d0,\n");
  CHECK(line.substr(0, line.find(',')) == std::to_string(::gettid()));
  std::string time = line.substr(line.find(',') + 1, 15);
  for (char& c : time)
    if (c >= '0' && c <= '9') c = '0';
  CHECK(time == "00:00:00.000000");
}

TEST_CASE("the legacy default stream and the host's order are 0, the per-thread default stream is 0x2") {
  CHECK(stream_field(stream_ref(cudaStreamLegacy)) == "0,\n");
  CHECK(stream_field(weir::host_order) == "0,\n");
  CHECK(stream_field(stream_ref(cudaStreamPerThread)) == "0x2,\n");
}

TEST_CASE("the last field is the thread's tag, as CSV has it") {
  weir::tag const outer{"decoder"};
  CHECK(tail_of(text_of(log_line("free", somewhere, 7, weir::host_order))) == "free,0x7f00a0,7,0,decoder\n");
  weir::tag const odd{"a,b\n"};
  CHECK(tail_of(text_of(log_line("free", somewhere, 7, weir::host_order))) == "free,0x7f00a0,7,0,\"a,b\\n\"\n");
}

TEST_CASE("the largest numbers fit, with the largest tag") {
  weir::tag const scope{std::string(64, '\1')};
  std::string shown;
  for (int i = 0; i < 64; ++i) shown += "\\x01";
  stream_ref const stream(reinterpret_cast<cudaStream_t>(UINTPTR_MAX));
  void* const p = reinterpret_cast<void*>(UINTPTR_MAX);
  CHECK(tail_of(text_of(log_line("allocate failure", p, SIZE_MAX, stream))) ==
        "allocate failure,0xffffffffffffffff,18446744073709551615,0xffffffffffffffff," + shown + "\n");
}

TEST_CASE("each thread has its own number") {
  std::string const mine = text_of(log_line("free", somewhere, 1, weir::host_order));
  std::string theirs;
  std::thread([&] { theirs = text_of(log_line("free", somewhere, 1, weir::host_order)); }).join();
  CHECK(mine.substr(0, mine.find(',')) != theirs.substr(0, theirs.find(',')));
}
