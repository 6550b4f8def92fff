#pragma once
// Says on a terminal how far something long is.

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>

namespace weir::memory_tool {

/// One line on the error output, which goes again when this does; nothing where that is no terminal, and nothing in the
/// first half second.
class progress {
 public:
  explicit progress(std::string what) : what_(std::move(what)), is_shown_(::isatty(STDERR_FILENO) == 1) {}
  ~progress() {
    if (last_ != clock::time_point()) std::fputs("\r\033[K", stderr);
  }
  progress(progress const&) = delete;
  progress& operator=(progress const&) = delete;

  /// `whole` 0: nobody knows how much it will be.
  void at(std::size_t done, std::size_t whole) {
    if (!is_shown_ || ++calls_ % 1024 != 1) return;
    auto const now = clock::now();
    if (now - began_ < std::chrono::milliseconds(500) || now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    if (whole == 0)
      std::fprintf(stderr, "\r%s: %zu MiB\033[K", what_.c_str(), done >> 20);
    else
      std::fprintf(stderr, "\r%s: %zu %%\033[K", what_.c_str(), done * 100 / whole);
  }

 private:
  using clock = std::chrono::steady_clock;
  std::string what_;
  bool is_shown_;
  std::size_t calls_ = 0;
  clock::time_point const began_ = clock::now();
  clock::time_point last_;
};

}  // namespace weir::memory_tool
