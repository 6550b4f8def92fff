#pragma once
// Random numbers for workloads.

#include <cstddef>
#include <cstdint>

namespace bench {

/// Fast, good enough, the same on every machine: splitmix64.
class random_numbers {
 public:
  explicit random_numbers(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  /// From 0 up to, without, `end`; both parts of one number serve.
  static std::size_t low(std::uint64_t random, std::size_t end) { return ((random & 0xffffffff) * end) >> 32; }
  static std::size_t high(std::uint64_t random, std::size_t end) { return ((random >> 32) * end) >> 32; }

 private:
  std::uint64_t state_;
};

}  // namespace bench
