#pragma once
// Text that came from outside (paths, names, tags), made safe to write into reports and CSV files.

#include <string>
#include <string_view>

namespace weir {

/// `text` in one line: control bytes become `\n`, `\r`, `\t` or `\x1b`, and a backslash `\\`. Other bytes are kept, so
/// UTF-8 stays readable. Nothing in the result can start a line of its own or steer a terminal.
inline std::string printable(std::string_view text) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  for (char const c : text) {
    auto const byte = static_cast<unsigned char>(c);
    switch (c) {
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\\':
        out += "\\\\";
        break;
      default:
        if (byte >= 0x20 && byte != 0x7f) {
          out += c;
        } else {
          out += "\\x";
          out += digits[byte >> 4];
          out += digits[byte & 15];
        }
    }
  }
  return out;
}

/// `text` as one field of a CSV line. Control bytes are written as in `printable`, so a record is always one line; the
/// field is quoted where it holds a separator, a quote or an outer space; and a leading `=`, `+`, `-` or `@` gets a `'`
/// before it, so that no spreadsheet takes it for a formula. When not to use it: for numbers, a `-1` would become text.
inline std::string csv_field(std::string_view text) {
  std::string plain = printable(text);
  if (plain.empty()) return plain;
  // A reader may trim the field first, so look at its first character that is not a space.
  std::size_t const first = plain.find_first_not_of(' ');
  if (first != std::string::npos && std::string_view("=+-@").find(plain[first]) != std::string_view::npos)
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
