#pragma once
// The record of what a program takes from the devices and gives back, as lines of JSON that `weir::read_trace` reads,
// internal.

#include "model/memory.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace weir::sim::detail {

/// Memory of the host, pinned and managed, is left out. Whoever calls has the runtime's lock.
class allocation_trace {
 public:
  explicit allocation_trace(std::string file) : name_(std::move(file)) {}
  ~allocation_trace();
  allocation_trace(allocation_trace const&) = delete;
  allocation_trace& operator=(allocation_trace const&) = delete;

  void took(std::uintptr_t address, allocation const& a) { write("allocate", address, a); }
  void gave_back(std::uintptr_t address, allocation const& a) { write("free", address, a); }
  void refused(allocation const& a) { write("out_of_memory", 0, a); }

 private:
  // Makes the file with the first line, since of the processes that a program starts most have nothing to say. False
  // where there is none, and in a forked child, whose memory is not its parent's.
  bool is_open();
  void write(char const* action, std::uintptr_t address, allocation const& a);
  /// Where it cannot be written whole the record ends, behind the last one that was.
  void add_line(char const* text, std::size_t bytes);

  std::string name_;
  int file_ = -1;
  std::size_t written_ = 0;  // bytes
  int process_ = 0;          // whose file it is
  bool tried_ = false;
  std::chrono::steady_clock::time_point began_;
};

}  // namespace weir::sim::detail
