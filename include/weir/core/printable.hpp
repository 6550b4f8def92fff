#pragma once
// Text that came from outside (paths, names, tags), made safe to write into reports and CSV files.

#include <weir/version.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace weir {

namespace detail {

/// How many bytes at the start of `text`, which is not empty, are one character of UTF-8; 0 if they are none: a byte
/// that stands alone, a form that is too long, half of a pair of UTF-16, or a number above U+10FFFF.
inline std::size_t utf8_bytes(std::string_view text) noexcept {
  auto const byte = [text](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  auto const within = [](unsigned value, unsigned first, unsigned last) { return value >= first && value <= last; };
  auto const follows = [&](std::size_t i) { return within(byte(i), 0x80, 0xbf); };
  unsigned const first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (within(first, 0xc2, 0xdf)) return follows(1) ? 2 : 0;
  if (within(first, 0xe0, 0xef)) {
    bool const valid = within(second, first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf);
    return valid && follows(2) ? 3 : 0;
  }
  if (!within(first, 0xf0, 0xf4)) return 0;
  bool const valid = within(second, first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf);
  return valid && follows(2) && follows(3) ? 4 : 0;
}

/// How many bytes at the start of `text`, which is not empty, steer what shows them: 1 for a control byte; all bytes of
/// a character of UTF-8 that is a control (U+0080 to U+009F), breaks a line (U+2028, U+2029) or turns the direction of
/// what follows (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069); else 0.
inline std::size_t steering_bytes(std::string_view text) {
  auto const byte = [text](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  auto const within = [byte](std::size_t i, unsigned first, unsigned last) {
    return byte(i) >= first && byte(i) <= last;
  };
  if (byte(0) < 0x20 || byte(0) == 0x7f) return 1;
  if (byte(0) == 0xc2 && within(1, 0x80, 0x9f)) return 2;
  if (byte(0) == 0xd8 && byte(1) == 0x9c) return 2;
  if (byte(0) != 0xe2) return 0;
  if (byte(1) == 0x80 && (within(2, 0x8e, 0x8f) || within(2, 0xa8, 0xae))) return 3;
  return byte(1) == 0x81 && within(2, 0xa6, 0xa9) ? 3 : 0;
}

inline void add_escaped(std::string& out, char c) {
  static constexpr char digits[] = "0123456789abcdef";
  auto const byte = static_cast<unsigned char>(c);
  out += "\\x";
  out += digits[byte >> 4];
  out += digits[byte & 15];
}

/// What becomes of bytes that are no UTF-8.
enum class stray_bytes { kept, escaped };

/// `weir::printable`.
inline std::string in_one_line(std::string_view text, stray_bytes strays) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    std::size_t const bytes = detail::utf8_bytes(text);
    bool const is_escaped = detail::steering_bytes(text) != 0 || (bytes == 0 && strays == stray_bytes::escaped);
    for (char const c : text.substr(0, bytes == 0 ? 1 : bytes)) {
      if (c == '\n')
        out += "\\n";
      else if (c == '\r')
        out += "\\r";
      else if (c == '\t')
        out += "\\t";
      else if (c == '\\')
        out += "\\\\";
      else if (is_escaped)
        detail::add_escaped(out, c);
      else
        out += c;
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return out;
}

}  // namespace detail

/// `text` in one line: control bytes become `\n`, `\r`, `\t` or `\x1b`, a backslash `\\`, and each byte of a control
/// character of UTF-8 or one that turns the direction of text `\x` and its number. Other bytes are kept, so UTF-8 stays
/// readable. Nothing in the result can start a line of its own, steer a terminal that reads UTF-8, or be shown in
/// another order.
inline std::string printable(std::string_view text) { return detail::in_one_line(text, detail::stray_bytes::kept); }

/// `text` as one field of a CSV line. Control characters are written as in `printable`, so a record is always one line,
/// and so are bytes that are no UTF-8, so that a file is UTF-8 whatever its names hold; the field is quoted where it
/// holds a separator, a quote or an outer space. What begins, spaces aside, with `=`, `+`, `-` or `@` gets a `'` before
/// it, so that no spreadsheet takes it for a formula, and so does what begins with `'`: to have the text, a reader
/// takes one `'` from the front, if there is one, and undoes `printable`. When not to use it: for numbers, a `-1` would
/// become text.
inline std::string csv_field(std::string_view text) {
  std::string plain = detail::in_one_line(text, detail::stray_bytes::escaped);
  if (plain.empty()) return plain;
  // A reader may trim the field first, so look at its first character that is not a space.
  std::size_t const first = plain.find_first_not_of(' ');
  if (first != std::string::npos && std::string_view("=+-@'").find(plain[first]) != std::string_view::npos)
    plain.insert(plain.begin(), '\'');
  if (plain.find_first_of(",;\"'") == std::string::npos && plain.front() != ' ' && plain.back() != ' ') return plain;

  std::string quoted = "\"";
  for (char const c : plain) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace weir
