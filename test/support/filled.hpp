#pragma once
// Looks at what is in memory. By the C library, since the tests look at gigabytes in programs that are not optimised.

#include <cstddef>
#include <cstring>

namespace weir::test {

/// True if each of the bytes at `p` is `value`: the first is, and each of the others is as the one before it.
inline bool is_filled(void const* p, std::size_t bytes, unsigned char value) noexcept {
  auto const* const first = static_cast<unsigned char const*>(p);
  return bytes == 0 || (*first == value && std::memcmp(first + 1, first, bytes - 1) == 0);
}

}  // namespace weir::test
