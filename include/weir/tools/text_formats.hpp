#pragma once
// Text that came from outside (names, tags), as JSON, Prometheus and the columns of a table take it.

#include <weir/core/printable.hpp>
#include <weir/tools/wide_characters.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace weir::detail {

inline constexpr char hex_digits[] = "0123456789abcdef";

/// Calls `f(character)` for each character of a text, and `none(byte)` for bytes that are no UTF-8.
template <class F, class G>
void for_each_character(std::string_view text, F f, G none) {
  while (!text.empty()) {
    std::size_t const bytes = detail::utf8_bytes(text);
    if (bytes == 0)
      none(static_cast<unsigned char>(text[0]));
    else
      f(text.substr(0, bytes));
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
}
/// The same with U+FFFD for those bytes.
template <class F>
void for_each_character(std::string_view text, F f) {
  detail::for_each_character(text, f, [&](unsigned char) { f(std::string_view("\xef\xbf\xbd")); });
}

/// `text` as a JSON string, its quotes included: valid JSON whatever its bytes. `<` is escaped too, so that the result
/// may stand in a script of a web page.
inline std::string json_string(std::string_view text) {
  std::string out = "\"";
  detail::for_each_character(text, [&](std::string_view character) {
    auto const c = static_cast<unsigned char>(character[0]);
    if (c == '"' || c == '\\') {
      (out += '\\') += character;
    } else if (c < 0x20 || c == 0x7f || c == '<') {
      ((out += "\\u00") += hex_digits[c >> 4]) += hex_digits[c & 15];
    } else {
      out += character;
    }
  });
  return out + '"';
}

/// `text` as the value of a Prometheus label, its quotes included. Bytes that are no UTF-8 become `\xff` and the like:
/// two samples of one metric with the same labels would be an error.
inline std::string prometheus_value(std::string_view text) {
  std::string out = "\"";
  auto const add = [&](std::string_view character) {
    if (character == "\n")
      out += "\\n";
    else if (character == "\"" || character == "\\")
      (out += '\\') += character;
    else
      out += character;
  };
  auto const add_byte = [&](unsigned char byte) {
    ((out += "\\\\x") += hex_digits[byte >> 4]) += hex_digits[byte & 15];
  };
  detail::for_each_character(text, add, add_byte);
  return out + '"';
}

/// `text` in one line and at most `columns` columns, filled up with spaces. What does not fit is cut off at a
/// character.
inline std::string table_cell(std::string_view text, std::size_t columns) {
  std::string out;
  bool full = false;
  detail::for_each_character(printable(text), [&](std::string_view character) {
    std::size_t const wide = full ? 0 : columns_of(character);
    full = full || wide > columns;
    if (full) return;
    out += character;
    columns -= wide;
  });
  return out.append(columns, ' ');
}

/// A number as addresses and handles are written: `0x55d0`.
inline std::string hex_text(std::uint64_t number) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(number));
  return text;
}

/// A share from 0 to 1 with four decimals, in any locale.
inline std::string ratio_text(double share) {
  std::string const digits = std::to_string(10000 + std::lround(share * 10000));  // 1.0000 to 2.0000
  return std::string(digits[0] == '1' ? "0." : "1.") + digits.substr(1);
}

}  // namespace weir::detail
