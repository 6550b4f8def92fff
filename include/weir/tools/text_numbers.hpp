#pragma once
// Numbers and sizes as people write them.

#include <weir/version.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#ifndef __cpp_lib_to_chars
#include <locale>
#include <sstream>
#endif

namespace weir::detail {

/// All of `text` as a whole number; false, and nothing changed, if it is none that `T` has.
template <class T>
bool read_whole(std::string_view text, T& number, int base = 10) noexcept {
  T value{};
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  number = value;
  return true;
}

/// All of `text` as a number with a point or without; false if it is none.
inline bool read_decimal(std::string_view text, double& number) {
#ifdef __cpp_lib_to_chars
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  return error == std::errc() && end == text.data() + text.size();
#else
  // libc++'s `std::from_chars` reads whole numbers only. A stream would take an exponent, too.
  std::istringstream in{std::string(text)};
  in.imbue(std::locale::classic());
  return text.find_first_not_of("-.0123456789") == std::string_view::npos && in >> number &&
         in.peek() == std::istringstream::traits_type::eof();
#endif
}

/// `digits`, with a point or without. Throws `std::invalid_argument`, in which `text` is not `form`, for anything else.
inline double number_in(std::string_view digits, std::string_view text, char const* form) {
  double number = 0;
  if (!read_decimal(digits, number)) throw std::invalid_argument("'" + std::string(text) + "' is not " + form);
  return number;
}

/// A number of bytes, as in `4096`, `64KiB`, `1.5GiB`. Throws `std::invalid_argument` that says what is wrong.
inline std::size_t bytes_in(std::string_view text) {
  static constexpr char const* form = "a number of bytes, as in 4096, 64KiB, 1.5GiB";
  static constexpr std::string_view suffixes[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto const refuse = [&](std::string const& why) { throw std::invalid_argument("'" + std::string(text) + why); };
  std::size_t const split = text.find_first_not_of("0123456789.");
  std::string_view const digits = text.substr(0, split);
  std::string_view const unit = split == std::string_view::npos ? "B" : text.substr(split);
  auto const* const known = std::find(std::begin(suffixes), std::end(suffixes), unit);
  if (known == std::end(suffixes)) refuse(std::string("' is not ") + form + "; units are B, KiB, MiB, GiB, TiB");
  auto const shift = static_cast<int>(10 * (known - std::begin(suffixes)));

  // Without a point exactly, since a double rounds above 8 PiB.
  std::uint64_t whole = 0;
  if (read_whole(digits, whole) && whole >> (63 - shift) == 0) return static_cast<std::size_t>(whole) << shift;
  double const bytes = std::ldexp(number_in(digits, text, form), shift);
  if (!(bytes < 9.2e18)) refuse("' is more than can be addressed");
  if (bytes != std::floor(bytes)) refuse("' is not a whole number of bytes");
  return static_cast<std::size_t>(bytes);
}

}  // namespace weir::detail
