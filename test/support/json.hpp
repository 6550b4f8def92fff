#pragma once
// Whether a text is JSON, as RFC 8259 has it.

#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>

namespace weir::test {

class json_reader {
 public:
  /// True if all of `text` is one value. Strings must be UTF-8; that is for the caller to see.
  static bool is_valid(std::string_view text) {
    json_reader reader(text);
    return reader.value() && reader.rest_.empty();
  }

 private:
  explicit json_reader(std::string_view text) : rest_(text) {}

  bool take(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  bool value() {
    if (take("{")) return members('}', [this] { return string() && take(":") && value(); });
    if (take("[")) return members(']', [this] { return value(); });
    return string() || take("null") || take("true") || take("false") || number();
  }
  template <class Member>
  bool members(char end, Member member) {
    if (take(std::string_view(&end, 1))) return true;
    do {
      if (!member()) return false;
    } while (take(","));
    return take(std::string_view(&end, 1));
  }
  bool string() {
    if (!take("\"")) return false;
    while (!take("\"")) {
      if (rest_.empty() || static_cast<unsigned char>(rest_[0]) < 0x20) return false;
      bool const escaped = take("\\");
      if (escaped && take("u")) {
        for (int i = 0; i < 4; ++i, rest_.remove_prefix(1))
          if (rest_.empty() || std::isxdigit(static_cast<unsigned char>(rest_[0])) == 0) return false;
        continue;
      }
      if (escaped && std::string_view("\"\\/bfnrt").find(rest_[0]) == std::string_view::npos) return false;
      rest_.remove_prefix(1);
    }
    return true;
  }
  bool digits() {
    std::size_t const end = rest_.find_first_not_of("0123456789");
    std::size_t const count = end == std::string_view::npos ? rest_.size() : end;
    rest_.remove_prefix(count);
    return count != 0;
  }
  bool number() {
    take("-");
    if (!take("0") && !digits()) return false;
    return !take(".") || digits();
  }

  std::string_view rest_;
};

}  // namespace weir::test
