#include "model/allocation_trace.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace weir::sim::detail {
namespace {

char const* call_of(memory_kind kind) {
  if (kind == memory_kind::async) return "cudaMallocAsync";
  return kind == memory_kind::mapped ? "cuMemCreate" : "cudaMalloc";
}

}  // namespace

allocation_trace::~allocation_trace() {
  if (file_ >= 0) ::close(file_);
}

bool allocation_trace::is_open() {
  if (tried_) return file_ >= 0 && ::getpid() == process_;
  tried_ = true;
  process_ = ::getpid();
  file_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file_ < 0) {
    std::fprintf(stderr, "weir::sim: what process %d allocates is not recorded in %s: %s\n", process_, name_.c_str(),
                 std::strerror(errno));
    return false;
  }
  began_ = std::chrono::steady_clock::now();
  char line[100];
  int const bytes = std::snprintf(
      line, sizeof line, "{\"weir_trace\":1,\"began\":%lld,\"layers\":[\"CUDA\"]}\n",
      static_cast<long long>(std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count()));
  add_line(line, static_cast<std::size_t>(bytes));
  return file_ >= 0;
}

// At once, so that the file is whole, however the program ends.
void allocation_trace::add_line(char const* text, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    ::ssize_t const n = ::write(file_, text + done, bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      std::fprintf(stderr, "weir::sim: the record of what process %d allocates ends early in %s: %s\n", process_,
                   name_.c_str(), std::strerror(n == 0 ? EIO : errno));
      static_cast<void>(!::ftruncate(file_, static_cast<::off_t>(written_)));
      ::close(std::exchange(file_, -1));
      return;
    }
    done += static_cast<std::size_t>(n);
  }
  written_ += bytes;
}

void allocation_trace::write(char const* action, std::uintptr_t address, allocation const& a) {
  if (a.on_host() || !is_open()) return;
  char line[200];
  int const bytes = std::snprintf(
      line, sizeof line,
      "{\"ns\":%lld,\"action\":\"%s\",\"device\":%d,\"address\":\"0x%llx\",\"bytes\":%zu,\"tag\":\"%s\"}\n",
      static_cast<long long>(std::chrono::nanoseconds(std::chrono::steady_clock::now() - began_).count()), action,
      a.device, static_cast<unsigned long long>(address), a.bytes, call_of(a.kind));
  add_line(line, static_cast<std::size_t>(bytes));
}

}  // namespace weir::sim::detail
