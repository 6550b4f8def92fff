#pragma once
// Reads the objects of JSON lines, whose members are texts, numbers and lists of texts.

#include <weir/tools/log_reader.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weir::detail {

/// One object in one line. Refuses what is none by `text_lines::damaged`.
class json_object_reader {
 public:
  /// A member. `list` is what a list of texts has; other lists, objects and numbers with a fraction are refused.
  struct member {
    std::string name;
    enum { text_value, number_value, list_value, word_value } is = word_value;
    std::string text;  ///< also the words `true`, `false` and `null`, and a number's digits
    std::vector<std::string> list;
  };

  json_object_reader(text_lines const& in, std::string_view line) : in_(in), rest_(line) {}

  /// Calls `f(member)` for each.
  template <class F>
  void for_each_member(F f) {
    need('{');
    if (!take('}')) {
      do {
        member m;
        m.name = text();
        need(':');
        read_value(m);
        f(m);
      } while (take(','));
      need('}');
    }
    skip_spaces();
    if (!rest_.empty()) in_.damaged("goes on after the object's end");
  }

 private:
  void skip_spaces() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t')) rest_.remove_prefix(1);
  }
  bool take(char c) {
    skip_spaces();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void need(char c) {
    if (!take(c)) in_.damaged(std::string("is no JSON object as a trace has it: '") + c + "' is needed");
  }
  void read_value(member& m) {
    skip_spaces();
    char const first = rest_.empty() ? '\0' : rest_.front();
    if (first == '"') {
      m.is = member::text_value;
      m.text = text();
    } else if (first == '[') {
      m.is = member::list_value;
      need('[');
      if (take(']')) return;
      do m.list.push_back(text());
      while (take(','));
      need(']');
    } else {
      m.is = first >= '0' && first <= '9' ? member::number_value : member::word_value;
      std::size_t const end = rest_.find_first_of(",} \t");
      m.text = rest_.substr(0, end);
      rest_.remove_prefix(m.text.size());
      bool const is_word = m.text == "true" || m.text == "false" || m.text == "null";
      if (m.is == member::word_value && !is_word)
        in_.damaged("'" + m.name + "' is '" + text_lines::start_of(m.text) +
                    "'; texts, whole numbers and lists are read");
    }
  }

  std::string text() {
    need('"');
    std::string out;
    while (!rest_.empty() && rest_.front() != '"') {
      char const c = next();
      if (c == '\\')
        escaped(out);
      else
        out += c;
    }
    need('"');
    return out;
  }
  char next() {
    if (rest_.empty()) in_.damaged("breaks off in a text");
    char const c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }
  void escaped(std::string& out) {
    constexpr std::string_view letters = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
    char const c = next();
    if (c == 'u') return append(out, code_point());
    std::size_t const which = letters.find(c);
    if (which == std::string_view::npos) in_.damaged("a text has a backslash before nothing that JSON knows");
    out += meanings[which];
  }
  unsigned four_digits() {
    unsigned value = 0;
    if (rest_.size() < 4 || std::from_chars(rest_.data(), rest_.data() + 4, value, 16).ptr != rest_.data() + 4)
      in_.damaged("a text has \\u without four hexadecimal digits");
    rest_.remove_prefix(4);
    return value;
  }
  /// Two halves of UTF-16 are one; a half that stands alone becomes U+FFFD.
  unsigned code_point() {
    unsigned const first = four_digits();
    if (first < 0xd800 || first > 0xdfff) return first;
    if (first > 0xdbff || !rest_.starts_with("\\u")) return 0xfffd;
    rest_.remove_prefix(2);
    unsigned const second = four_digits();
    return second < 0xdc00 || second > 0xdfff ? 0xfffd : 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
  }
  static void append(std::string& out, unsigned code) {
    auto const byte = [&](unsigned bits) { out += static_cast<char>(bits); };
    if (code < 0x80) return byte(code);
    if (code < 0x800) return byte(0xc0 | code >> 6), byte(0x80 | (code & 0x3f));
    if (code < 0x10000)
      byte(0xe0 | code >> 12);
    else
      byte(0xf0 | code >> 18), byte(0x80 | (code >> 12 & 0x3f));
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  }

  text_lines const& in_;
  std::string_view rest_;
};

}  // namespace weir::detail
