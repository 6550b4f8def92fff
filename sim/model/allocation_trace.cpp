#include "model/allocation_trace.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace weir::sim::detail {
namespace {

char const* call_of(memory_kind kind) {
  if (kind == memory_kind::async) return "cudaMallocAsync";
  return kind == memory_kind::mapped ? "cuMemCreate" : "cudaMalloc";
}

}  // namespace

bool allocation_trace::is_open() {
  if (tried_) return file_ != nullptr;
  tried_ = true;
  file_.reset(std::fopen(name_.c_str(), "wx"));
  if (file_ == nullptr) {
    std::fprintf(stderr, "weir::sim: what process %d allocates is not recorded in %s: %s\n", static_cast<int>(getpid()),
                 name_.c_str(), std::strerror(errno));
    return false;
  }
  std::setvbuf(file_.get(), nullptr, _IOLBF, BUFSIZ);  // so that it is whole, however the program ends
  began_ = std::chrono::steady_clock::now();
  std::fprintf(
      file_.get(), "{\"weir_trace\":1,\"began\":%lld,\"layers\":[\"CUDA\"]}\n",
      static_cast<long long>(std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count()));
  return true;
}

void allocation_trace::write(char const* action, std::uintptr_t address, allocation const& a) {
  if (a.on_host() || !is_open()) return;
  std::fprintf(file_.get(),
               "{\"ns\":%lld,\"action\":\"%s\",\"device\":%d,\"address\":\"0x%llx\",\"bytes\":%zu,\"tag\":\"%s\"}\n",
               static_cast<long long>(std::chrono::nanoseconds(std::chrono::steady_clock::now() - began_).count()),
               action, a.device, static_cast<unsigned long long>(address), a.bytes, call_of(a.kind));
}

}  // namespace weir::sim::detail
