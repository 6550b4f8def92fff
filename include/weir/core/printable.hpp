#pragma once
// Text that came from outside (paths, names, tags), made safe to write into reports and CSV files.

#include <weir/version.hpp>

#include <string>
#include <string_view>

namespace weir {

namespace detail {

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

}  // namespace detail

/// `text` in one line: control bytes become `\n`, `\r`, `\t` or `\x1b`, a backslash `\\`, and each byte of a control
/// character of UTF-8 or one that turns the direction of text `\x` and its number. Other bytes are kept, so UTF-8 stays
/// readable. Nothing in the result can start a line of its own, steer a terminal that reads UTF-8, or be shown in
/// another order.
inline std::string printable(std::string_view text) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  std::size_t steering = 0;  // bytes from here on that must not be shown as they are
  for (; !text.empty(); text.remove_prefix(1)) {
    char const c = text.front();
    if (steering == 0) steering = detail::steering_bytes(text);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\\') {
      out += "\\\\";
    } else if (steering > 0) {
      auto const byte = static_cast<unsigned char>(c);
      out += "\\x";
      out += digits[byte >> 4];
      out += digits[byte & 15];
    } else {
      out += c;
    }
    if (steering > 0) --steering;
  }
  return out;
}

/// `text` as one field of a CSV line. Control characters are written as in `printable`, so a record is always one line;
/// the field is quoted where it holds a separator, a quote or an outer space. What begins, spaces aside, with `=`, `+`,
/// `-` or `@` gets a `'` before it, so that no spreadsheet takes it for a formula, and so does what begins with `'`: to
/// have the text, a reader takes one `'` from the front, if there is one, and undoes `printable`. When not to use it:
/// for numbers, a `-1` would become text.
inline std::string csv_field(std::string_view text) {
  std::string plain = printable(text);
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
