#pragma once
// Files of traces, gzip-ed or not, read whole and up to a limit.

#include "progress.hpp"

#include <weir/core/printable.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#ifdef WEIR_MEMORY_ZLIB
#include <unistd.h>
#include <zlib.h>
#endif

namespace weir::memory_tool {

/// The most bytes of a file that are read unless the caller says otherwise: a gzip file can unpack to a thousand times
/// its size, and reading takes up to ten times the bytes in memory, or fifty where somebody made the file up.
inline constexpr std::size_t most_bytes = std::size_t{1} << 30;

/// The bytes of a file, unpacked; `-` is the standard input. Throws `std::runtime_error` if it cannot be read or has
/// more than `max_bytes`; what that says is safe to print.
inline std::string read_file(std::string const& path, std::size_t max_bytes) {
  auto const fail = [&](std::string const& why) { throw std::runtime_error(printable(path) + ": " + printable(why)); };
  progress shown("reading " + printable(path));
  std::string bytes;
  char block[1 << 16];
  auto const append = [&](std::size_t n) {
    if (n > max_bytes - bytes.size())
      fail("has, unpacked, more than the " + std::to_string(max_bytes) +
           " bytes that are read; if you trust it, read more with --max-bytes");
    bytes.append(block, n);
    shown.at(bytes.size(), 0);
  };
#ifdef WEIR_MEMORY_ZLIB
  auto const close = [](gzFile_s* f) { gzclose(f); };
  std::unique_ptr<gzFile_s, decltype(close)> const file(
      path == "-" ? gzdopen(::dup(STDIN_FILENO), "rb") : gzopen(path.c_str(), "rb"), close);
  if (!file) fail(std::string("cannot be opened: ") + std::strerror(errno));
  int got = 0;
  while ((got = gzread(file.get(), block, sizeof block)) > 0) append(static_cast<std::size_t>(got));
  int code = Z_OK;
  char const* const why = gzerror(file.get(), &code);
  if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) fail(std::string("cannot be read: ") + why);
#else
  auto const close = [](std::FILE* f) { std::fclose(f); };
  std::unique_ptr<std::FILE, decltype(close)> const file(
      path == "-" ? std::fopen("/dev/stdin", "rb") : std::fopen(path.c_str(), "rb"), close);
  if (!file) fail(std::string("cannot be opened: ") + std::strerror(errno));
  while (std::size_t const got = std::fread(block, 1, sizeof block, file.get())) append(got);
  if (std::ferror(file.get())) fail("cannot be read");
  if (bytes.starts_with("\x1f\x8b"))
    fail("is gzip-ed, and this was built without zlib; try gzip -dc FILE | weir-memory ... -");
#endif
  return bytes;
}

}  // namespace weir::memory_tool
