#pragma once
// A file in memory with a path, for what reads files only by path.

#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace weir::test {

class memory_file {
 public:
  explicit memory_file(std::string_view content) : file_(::memfd_create("test", MFD_CLOEXEC)) {
    if (::write(file_, content.data(), content.size()) != static_cast<ssize_t>(content.size()))
      throw std::runtime_error("cannot write a file in memory");
  }
  ~memory_file() { ::close(file_); }
  memory_file(memory_file const&) = delete;
  memory_file& operator=(memory_file const&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

}  // namespace weir::test
