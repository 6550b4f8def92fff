#pragma once
// What the fuzz targets share: numbers out of bytes, and what happens where a property does not hold.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

/// A target: libFuzzer calls it with bytes, `replay_main.cpp` does too. It returns 0 and keeps nothing.
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

namespace fuzz {

/// Ends the program. Both libFuzzer and the replay then say which input did it.
[[noreturn]] inline void fail(std::string const& what) {
  std::fprintf(stderr, "does not hold: %s\n", what.c_str());
  std::abort();
}
inline void require(bool holds, char const* what) {
  if (!holds) fail(what);
}

/// The bytes of an input, taken from the front. After the end come zeros, so that every input means something.
class input {
 public:
  input(std::uint8_t const* data, std::size_t size) : left_(reinterpret_cast<char const*>(data), size) {}

  bool empty() const { return left_.empty(); }
  std::string_view rest() const { return left_; }

  /// Little-endian.
  template <std::unsigned_integral T>
  T take() {
    T number = 0;
    for (std::size_t i = 0; i < sizeof(T) && !left_.empty(); ++i) {
      number = static_cast<T>(number | static_cast<T>(static_cast<T>(static_cast<unsigned char>(left_[0])) << 8 * i));
      left_.remove_prefix(1);
    }
    return number;
  }
  unsigned byte() { return take<std::uint8_t>(); }
  /// As many of the next bytes as there are, at most `most`.
  std::string_view text(std::size_t most) {
    std::string_view const taken = left_.substr(0, most);
    left_.remove_prefix(taken.size());
    return taken;
  }

 private:
  std::string_view left_;
};

}  // namespace fuzz
