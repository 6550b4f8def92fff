#pragma once
// Reads text files of traces line by line, and the lines of RMM's log.

#include <weir/core/printable.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weir {

/// A trace that is not what it should be: `what()` is `file:line: why`, or `file: byte N: why` for a snapshot. It is
/// one line that is safe to print, whatever the file holds.
struct __attribute__((visibility("default"))) damaged_trace : std::runtime_error {
  explicit damaged_trace(std::string const& what) : std::runtime_error(printable(what)) {}
};

namespace detail {

/// The lines of a text. The bytes have to outlive it.
class text_lines {
 public:
  /// `name`: the file's, for errors.
  text_lines(std::string_view text, std::string name) : rest_(text), name_(std::move(name)) {
    if (rest_.starts_with("\xef\xbb\xbf")) rest_.remove_prefix(3);  // by which editors and spreadsheets say UTF-8
  }

  /// Without its end, `\n` or `\r\n`; none after the last.
  std::optional<std::string_view> next() {
    ++number_;
    if (rest_.empty()) return std::nullopt;
    std::size_t const end = rest_.find('\n');
    std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
  }
  /// Something is wrong with the line that `next` gave last.
  [[noreturn]] void damaged(std::string const& why) const {
    throw damaged_trace(name_ + ":" + std::to_string(number_) + ": " + why);
  }
  /// `text` as a whole number of 0 or more; `what` it is, for errors. In base 16 it may begin with `0x`.
  std::uint64_t number(std::string_view text, char const* what, int base = 10) const {
    std::string_view digits = text;
    if (base == 16 && digits.starts_with("0x")) digits.remove_prefix(2);
    std::uint64_t value = 0;
    auto const [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (error != std::errc() || end != digits.data() + digits.size() || digits.empty())
      damaged(std::string(what) + " is '" + start_of(text) + "', which is no number");
    return value;
  }
  /// What of a field is quoted in an error: a damaged file can have one of any length.
  static std::string start_of(std::string_view field) { return std::string(field.substr(0, 40)); }

 private:
  std::string_view rest_;
  std::string name_;
  std::size_t number_ = 0;
};

/// The last of `most` fields has the rest of the line.
inline std::vector<std::string_view> fields_of(std::string_view line, std::size_t most) {
  std::vector<std::string_view> fields;
  for (;;) {
    std::size_t const comma = fields.size() + 1 == most ? std::string_view::npos : line.find(',');
    fields.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

/// RMM's columns, and those of `logging`, whose lines end in a tag. Null for another first line.
class log_columns {
 public:
  static constexpr std::string_view plain = "Thread,Time,Action,Pointer,Size,Stream";
  static constexpr std::string_view tagged = "Thread,Time,Action,Pointer,Size,Stream,Tag";

  static std::optional<log_columns> of(std::string_view header) {
    if (header != plain && header != tagged) return std::nullopt;
    return log_columns(header == tagged);
  }

  /// A line, as it stands there.
  struct line {
    enum what { allocates, frees, fails };
    what is;
    std::string_view thread, time, pointer, stream, tag;
    std::uint64_t address = 0, bytes = 0;
  };
  /// Refuses what is no line of these columns (`damaged`).
  line read(text_lines const& in, std::string_view text) const {
    std::size_t const columns = has_tag_ ? 7 : 6;
    auto const f = detail::fields_of(text, has_tag_ ? 7 : 8);
    if (f.size() != columns)
      in.damaged("has " + std::to_string(f.size()) + " fields; " + std::to_string(columns) +
                 " are needed: " + std::string(has_tag_ ? tagged : plain));
    line found{line::fails, f[0], f[1], f[3], f[5], has_tag_ ? f[6] : std::string_view()};
    if (f[2] == "allocate failure") {  // of which other writers say what they like
      std::from_chars(f[4].data(), f[4].data() + f[4].size(), found.bytes);
      return found;
    }
    if (f[2] != "allocate" && f[2] != "free")
      in.damaged("action is '" + text_lines::start_of(f[2]) + "'; it can be allocate, free or allocate failure");
    found.is = f[2] == "allocate" ? line::allocates : line::frees;
    found.address = f[3] == "(nil)" ? 0 : in.number(f[3], "pointer", 16);  // so RMM writes null
    found.bytes = in.number(f[4], "size");
    return found;
  }

 private:
  explicit log_columns(bool has_tag) : has_tag_(has_tag) {}
  bool has_tag_;
};

/// A field that `csv_field` wrote, as it was before.
inline std::string from_csv_field(std::string_view field) {
  std::string plain;
  bool const quoted = field.size() >= 2 && field.front() == '"' && field.back() == '"';
  if (quoted) field = field.substr(1, field.size() - 2);
  for (std::size_t i = 0; i < field.size(); ++i) {
    plain += field[i];
    if (quoted && field[i] == '"' && i + 1 < field.size() && field[i + 1] == '"') ++i;
  }
  if (plain.starts_with('\'')) plain.erase(0, 1);
  std::string text;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    char const next = plain[i] == '\\' && i + 1 < plain.size() ? plain[i + 1] : '\0';
    unsigned byte = 0;
    char const* const digits = plain.data() + i + 2;
    if (next == 'x' && i + 3 < plain.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      text += static_cast<char>(byte);
      i += 3;
    } else if (next == 'n' || next == 'r' || next == 't' || next == '\\') {
      text += next == 'n' ? '\n' : next == 'r' ? '\r' : next == 't' ? '\t' : '\\';
      ++i;
    } else {
      text += plain[i];
    }
  }
  return text;
}

}  // namespace detail
}  // namespace weir
