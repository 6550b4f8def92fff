#pragma once
// Reads the text of a stack: names, arguments and values, with errors that point at the column.

#include <weir/core/bytes.hpp>
#include <weir/core/options.hpp>
#include <weir/tools/text_numbers.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace weir {

/// A stack's text that cannot be read. `what()` shows the text with a mark under `column()` (from 1) and what is
/// allowed; of a text that is longer than any stack needs, what stands around that column. Nothing in it steers a
/// terminal, whatever bytes the text holds.
class __attribute__((visibility("default"))) config_error : public std::invalid_argument {
 public:
  config_error(std::string_view text, std::size_t at, std::string const& problem)
      : std::invalid_argument("weir: column " + std::to_string(at + 1) + ": " + shown(shortened(problem)) + "\n" +
                              marked(text, at)),
        column_(at + 1) {}

  std::size_t column() const noexcept { return column_; }
  /// The same, and where the text came from: `weir: WEIR_STACK: column 9: ...`.
  config_error from(std::string const& origin) const {
    constexpr std::size_t behind_weir = 6;
    return config_error("weir: " + origin + ": " + (what() + behind_weir), column_);
  }

 private:
  config_error(std::string const& what, std::size_t column) : std::invalid_argument(what), column_(column) {}

  static constexpr std::size_t most_shown = 2000, shown_each_side = 500;

  /// What names a value that is too long to be read keeps its ends.
  static std::string shortened(std::string const& problem) {
    if (problem.size() <= most_shown) return problem;
    return problem.substr(0, shown_each_side) + " ... " + problem.substr(problem.size() - shown_each_side);
  }
  /// The text with a mark under `at`.
  static std::string marked(std::string_view text, std::size_t at) {
    std::size_t const from = text.size() > most_shown && at > shown_each_side ? at - shown_each_side : 0;
    std::size_t const to = text.size() > most_shown ? std::min(at + shown_each_side, text.size()) : text.size();
    std::string const before = from > 0 ? "... " : "";
    return "  " + before + shown(text.substr(from, to - from)) + (to < text.size() ? " ..." : "") + "\n  " +
           std::string(before.size() + at - from, ' ') + "^";
  }
  /// One printed character for each of the text, so that the mark stays under the right one.
  static std::string shown(std::string_view text) {
    std::string out(text);
    for (char& c : out)
      if (c < ' ' || c > '~') c = '?';
    return out;
  }
  std::size_t column_;
};

namespace detail {

/// `key=value`, or a value alone; where it stands is kept for errors.
struct config_argument {
  std::string_view key;
  std::string_view value;
  std::size_t at = 0;        ///< of the argument
  std::size_t value_at = 0;  ///< of its value
  bool used = false;
};

/// One layer as written, and typed access to its arguments. Each `take` names a key that is allowed; `finish` refuses
/// what nobody took. Arguments without a key go to the options that are marked `first`.
class config_layer {
 public:
  config_layer(std::string_view text, std::string_view name, std::size_t at) : text_(text), name_(name), at_(at) {}

  std::string_view name() const noexcept { return name_; }
  std::vector<config_argument>& arguments() noexcept { return arguments_; }
  [[noreturn]] void fail(std::size_t at, std::string const& problem) const { throw config_error(text_, at, problem); }
  [[noreturn]] void fail(std::string const& problem) const { fail(at_, problem); }

  /// Reads what is given of a layer's options (`core/options.hpp`).
  template <class Options>
  void take_options(Options& options) {
    Options::for_each_option([&](auto const& field) { take(field, options); });
  }

  template <class Options>
  void take(option::plain<Options, bool> const& field, Options& options) {
    config_argument const* const a = find(field.word, field.is_first);
    if (a == nullptr) return;
    if (a->value != "true" && a->value != "false") fail_value(*a, field.word, "true or false");
    options.*field.member = a->value == "true";
  }
  template <class Options>
  void take(option::plain<Options, std::string> const& field, Options& options) {
    if (config_argument const* const a = find(field.word, field.is_first); a != nullptr)
      options.*field.member = std::string(a->value);
  }
  template <class Options, class T>
  void take(option::choice<Options, T> const& field, Options& options) {
    config_argument const* const a = find(field.word, false);
    if (a == nullptr) return;
    auto const [one, other] = field.words;
    if (a->value != one && a->value != other) fail_value(*a, field.word, std::string(one) + " or " + other);
    options.*field.member = field.values[a->value == one ? 0 : 1];
  }
  /// A part is written as in `60%`. Without its name it is told by that sign: what does not end so is for others.
  template <class Options>
  void take(option::number<Options, double> const& field, Options& options) {
    takes_parts_ = true;
    config_argument const* const a = find(field.word, field.is_first, true);
    if (a == nullptr) return;
    if (!a->value.ends_with('%')) fail_value(*a, field.word, "a percentage, as in 60%");
    double const percent = read_value(
        *a, [&] { return number_in(a->value.substr(0, a->value.size() - 1), a->value, "a percentage, as in 60%"); });
    if (!(percent > 0 && percent <= 100)) fail_value(*a, field.word, "above 0% and at most 100%");
    options.*field.member = percent / 100;
  }
  /// Bytes as in `4096`, `64KiB`, `1.5GiB`; other whole numbers by their digits.
  template <class Options, std::integral T>
  void take(option::number<Options, T> const& field, Options& options) {
    config_argument const* const a = find(field.word, field.is_first);
    if (a == nullptr) return;
    bool const is_octal = field.written == option::form::octal;
    if (field.written == option::form::bytes)
      options.*field.member = static_cast<T>(read_value(
          *a, [&] { return bytes_in(a->value); }, takes_parts_ ? "; a part is written 60%" : ""));
    else if (!read_whole(a->value, options.*field.member, is_octal ? 8 : 10))
      fail_value(*a, field.word, is_octal ? "an octal number, as in 0640" : "a whole number from " + range_of(field));
  }

  /// Call it after every `take`.
  void finish() const {
    for (config_argument const& a : arguments_) {
      if (a.used) continue;
      std::string const takes = "it takes " + (allowed_.empty() ? "nothing" : allowed_);
      if (!a.key.empty()) fail(a.at, std::string(name_) + " has no option '" + std::string(a.key) + "'; " + takes);
      fail(a.at, "'" + std::string(a.value) + "' needs its name before it, as in name=value: " + std::string(name_) +
                     " has no option left that may stand without; " + takes);
    }
  }

 private:
  std::string name_of(char const* key) const { return std::string(name_) + "'s " + key; }
  [[noreturn]] void fail_value(config_argument const& a, char const* key, std::string const& allowed) const {
    fail(a.value_at, name_of(key) + " is '" + std::string(a.value) + "'; it can be " + allowed);
  }

  /// `1 to 64`: the option's bounds, those of its type where it has none.
  template <class Options, class T>
  static std::string range_of(option::number<Options, T> const& field) {
    bool const has_least = field.has_least && field.zero == nullptr;
    return std::to_string(has_least ? field.least : std::numeric_limits<T>::min()) + " to " +
           std::to_string(field.has_most ? field.most : std::numeric_limits<T>::max());
  }
  /// The argument of an option; one without a name may also be the next option's, but for a part, which its sign tells.
  config_argument const* find(char const* key, bool is_first, bool is_part = false) {
    allowed_ += (allowed_.empty() ? "" : ", ") + std::string(key);
    config_argument* found = nullptr;
    for (config_argument& a : arguments_) {
      bool const may_be_it = a.key.empty() ? is_first && (!is_part || a.value.ends_with('%')) : a.key == key;
      if (a.used || !may_be_it) continue;
      if (found == nullptr)
        found = &a;
      else if (is_part || !a.key.empty())
        fail(a.at, name_of(key) + " is given twice");
    }
    if (found != nullptr) found->used = true;
    return found;
  }

  /// What `read()` returns; what it finds wrong is wrong with the value of `a`, for which there is a `hint`.
  template <class Read>
  auto read_value(config_argument const& a, Read read, char const* hint = "") const try {
    return read();
  } catch (std::invalid_argument const& e) {
    fail(a.value_at, e.what() + std::string(hint));
  }

  std::string_view text_;
  std::string_view name_;
  std::size_t at_;
  std::vector<config_argument> arguments_;
  std::string allowed_;
  bool takes_parts_ = false;  // of a device, as in `60%`: options for those come first
};

/// Cuts `a | b(c, d=e)` into layers. Values end at `,` or `)`; spaces around everything are skipped.
class config_reader {
 public:
  /// No stack needs more, and a call has to get through them without running out of the thread's own stack.
  static constexpr std::size_t most_layers = 64;

  explicit config_reader(std::string_view text) : text_(text) {}

  std::vector<config_layer> layers() {
    std::vector<config_layer> found;
    do {
      skip_spaces();
      if (found.size() == most_layers) fail("a stack has at most 64 layers: each is a call inside of the one above it");
      found.push_back(layer());
    } while (accept('|'));
    if (at_ != text_.size()) fail("expected | or the end");
    return found;
  }

 private:
  config_layer layer() {
    skip_spaces();
    std::size_t const at = at_;
    std::string_view const name = word();
    if (name.empty()) fail("expected the name of a layer, as in async | pool(initial=1GiB) | limit(60%)");
    config_layer read(text_, name, at);
    if (accept('(') && !accept(')')) {
      do read.arguments().push_back(argument());
      while (accept(','));
      if (!accept(')')) fail("expected , or )");
    }
    return read;
  }

  config_argument argument() {
    skip_spaces();
    config_argument a;
    a.at = a.value_at = at_;
    std::size_t const end = std::min(text_.find_first_of(",)|", at_), text_.size());
    std::size_t const equals = text_.substr(at_, end - at_).find('=');
    if (equals != std::string_view::npos) {
      a.key = trimmed(text_.substr(at_, equals));
      at_ += equals + 1;
      skip_spaces();
      a.value_at = at_;
      if (a.key.empty()) throw config_error(text_, a.at, "expected a name before =");
    }
    a.value = trimmed(text_.substr(at_, std::max(end, at_) - at_));
    at_ = std::max(end, at_);
    if (a.value.empty()) throw config_error(text_, a.value_at, "expected a value");
    return a;
  }

  std::string_view word() {
    std::size_t const from = at_;
    while (at_ < text_.size() && is_letter(text_[at_])) ++at_;
    return text_.substr(from, at_ - from);
  }
  static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
  static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
  static std::string_view trimmed(std::string_view s) {
    while (!s.empty() && is_space(s.back())) s.remove_suffix(1);
    return s;
  }
  void skip_spaces() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  bool accept(char c) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  [[noreturn]] void fail(char const* problem) const { throw config_error(text_, at_, problem); }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace detail
}  // namespace weir
