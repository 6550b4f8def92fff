#pragma once
// The record of what a program takes from the devices and gives back, as lines of JSON that `weir::read_trace` reads,
// internal.

#include "model/memory.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace weir::sim::detail {

/// Memory of the host, pinned and managed, is left out. Whoever calls has the runtime's lock.
class allocation_trace {
 public:
  explicit allocation_trace(std::string file) : name_(std::move(file)) {}

  void took(std::uintptr_t address, allocation const& a) { write("allocate", address, a); }
  void gave_back(std::uintptr_t address, allocation const& a) { write("free", address, a); }
  void refused(allocation const& a) { write("out_of_memory", 0, a); }

 private:
  struct closes {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  // Makes the file with the first line, since of the processes that a program starts most have nothing to say.
  bool is_open();
  void write(char const* action, std::uintptr_t address, allocation const& a);

  std::string name_;
  std::unique_ptr<std::FILE, closes> file_;
  bool tried_ = false;
  std::chrono::steady_clock::time_point began_;
};

}  // namespace weir::sim::detail
