#pragma once
// Options as a table: each options struct lists its fields once, for `problem`, for `parse` and for the pages.

#include <weir/core/bytes.hpp>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>

/// An options struct has a `layer_name` and `for_each_option(f)`, which calls `f` with one of these for each field:
///
///     f(option::bytes("max", "max_bytes", &pool::max_bytes).or_zero("no limit").at_least(256));
///
/// The first word is what a text says (`max=1GiB`), the second the member's name. What the values of one field may be
/// stands here; what several fields may not be together stands in `problem`.
namespace weir::option {

/// `0.5`; with all digits where fewer would be another number, so that 1.0000000000000002 does not seem to be 1.
inline std::string exact_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", number);
  if (std::strtod(text, nullptr) != number) std::snprintf(text, sizeof text, "%.17g", number);
  return text;
}

/// How the number of an option is written.
enum class form { bytes, count, octal, part };

/// A field's place in its options. By a name: nvcc writes such a member for g++ in a way that -Wall warns of.
template <class Options, class T>
using member_of = T Options::*;

/// A flag or a text: any value will do.
template <class Options, class T>
struct plain {
  char const* word;
  char const* name;
  member_of<Options, T> member;
  bool is_first = false;  ///< in text its value may stand without the word

  constexpr plain first() const {
    plain p = *this;
    p.is_first = true;
    return p;
  }
  /// What is wrong with the field; empty if nothing is.
  std::string problem(Options const&) const { return {}; }
};

/// A number and its bounds.
template <class Options, class T>
struct number {
  char const* word;
  char const* name;
  member_of<Options, T> member;
  form written;
  bool is_first = false;
  bool has_least = false, has_most = false;
  T least{}, most{};
  char const* why = nullptr;   ///< what the bound is
  char const* zero = nullptr;  ///< what 0 means, where it is no number but a word
  bool is_power_of_two = false;

  constexpr number first() const {
    number n = *this;
    n.is_first = true;
    return n;
  }
  constexpr number at_least(T bound, char const* reason = nullptr) const {
    number n = *this;
    n.has_least = true;
    n.least = bound;
    n.why = reason;
    return n;
  }
  constexpr number at_most(T bound, char const* reason = nullptr) const {
    number n = *this;
    n.has_most = true;
    n.most = bound;
    n.why = reason;
    return n;
  }
  constexpr number or_zero(char const* meaning) const {
    number n = *this;
    n.zero = meaning;
    return n;
  }
  constexpr number power_of_two() const {
    number n = *this;
    n.is_power_of_two = true;
    return n;
  }

  std::string problem(Options const& options) const {
    T const value = options.*member;
    if (is_allowed(value)) return {};
    return std::string(name) + " is " + text(value) + "; it must be " + allowed();
  }
  /// A value as a page writes it: `64 KiB`, `0600`, `0.5`.
  std::string text(T value) const {
    if (written == form::bytes) return exact_bytes(static_cast<std::size_t>(value));
    if constexpr (std::is_floating_point_v<T>) return exact_text(value);
    if (written != form::octal) return std::to_string(value);
    std::string digits;
    for (auto rest = static_cast<unsigned long long>(value); rest != 0; rest /= 8)
      digits.insert(digits.begin(), static_cast<char>('0' + rest % 8));
    return "0" + digits;
  }

 private:
  bool is_allowed(T value) const {
    if (zero != nullptr && value == T{}) return true;
    if ((has_least && !(value >= least)) || (has_most && !(value <= most))) return false;  // so that NaN is not allowed
    if constexpr (std::is_integral_v<T>)
      if (is_power_of_two) return value > 0 && (value & (value - 1)) == 0;
    return true;
  }
  std::string allowed() const {
    std::string range = has_least && has_most ? text(least) + " to " + text(most)
                        : has_least           ? "at least " + text(least)
                        : has_most            ? "at most " + text(most)
                                              : std::string();
    if (is_power_of_two) range = range.empty() ? "a power of two" : "a power of two, " + range;
    if (written == form::part) range = "above 0 and at most 1";
    if (why != nullptr) range += std::string(", ") + why;
    return (zero == nullptr ? std::string() : std::string("0 (") + zero + ") or ") + range;
  }
  static std::string exact_bytes(std::size_t bytes) {
    char const* const units[] = {" B", " KiB", " MiB", " GiB"};
    int unit = 0;
    for (; bytes != 0 && bytes % 1024 == 0 && unit < 3; bytes /= 1024) ++unit;
    return std::to_string(bytes) + units[unit];
  }
};

/// One of two words. An enum can hold any number.
template <class Options, class T>
struct choice {
  char const* word;
  char const* name;
  member_of<Options, T> member;
  char const* words[2];
  T values[2];

  std::string problem(Options const& options) const {
    T const value = options.*member;
    if (value == values[0] || value == values[1]) return {};
    return std::string(name) + " is " + std::to_string(static_cast<int>(value)) + "; it must be " + words[0] + " or " +
           words[1];
  }
};

template <class Options>
constexpr auto flag(char const* word, char const* name, bool Options::*member) {
  return plain<Options, bool>{word, name, member};
}
template <class Options>
constexpr auto text(char const* word, char const* name, std::string Options::*member) {
  return plain<Options, std::string>{word, name, member};
}
/// Written `4096`, `64KiB`, `1.5GiB`.
template <class Options>
constexpr auto bytes(char const* word, char const* name, std::size_t Options::*member) {
  return number<Options, std::size_t>{word, name, member, form::bytes};
}
template <class Options, class T>
constexpr auto count(char const* word, char const* name, T Options::*member) {
  return number<Options, T>{word, name, member, form::count};
}
/// Written `0640`.
template <class Options, class T>
constexpr auto octal(char const* word, char const* name, T Options::*member) {
  return number<Options, T>{word, name, member, form::octal};
}
/// A part of a whole, above 0 up to 1; written `60%`. 0 means `none`.
template <class Options>
constexpr auto part(char const* word, char const* name, double Options::*member, char const* none) {
  return number<Options, double>{word, name, member, form::part}.at_least(0).at_most(1).or_zero(none);
}
template <class Options, class T>
constexpr auto one_of(char const* word, char const* name, T Options::*member, char const* a, T value_of_a,
                      char const* b, T value_of_b) {
  return choice<Options, T>{word, name, member, {a, b}, {value_of_a, value_of_b}};
}

/// What is wrong with the first field that is wrong by itself, with the layer's name before it; empty if none is.
template <class Options>
std::string first_problem(Options const& options) {
  std::string wrong;
  Options::for_each_option([&](auto const& field) {
    if (wrong.empty()) wrong = field.problem(options);
  });
  return wrong.empty() ? wrong : std::string(Options::layer_name) + ": " + wrong;
}

}  // namespace weir::option
