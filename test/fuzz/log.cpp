// What goes into a log comes back as it was: texts escaped for CSV, the numbers of a line, the lines of a file.
#include "target.hpp"

#include <weir/adaptors/detail/log_file.hpp>
#include <weir/adaptors/detail/log_line.hpp>
#include <weir/core/printable.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <charconv>
#include <optional>
#include <vector>

using fuzz::require;

namespace {

/// Undoes `printable`; nothing if it could not have written that.
std::optional<std::string> unescaped(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    if (++i == text.size()) return std::nullopt;
    switch (text[i]) {
      case 'n':
        out += '\n';
        break;
      case 'r':
        out += '\r';
        break;
      case 't':
        out += '\t';
        break;
      case '\\':
        out += '\\';
        break;
      case 'x': {
        if (i + 2 >= text.size()) return std::nullopt;
        std::size_t const high = digits.find(text[i + 1]), low = digits.find(text[i + 2]);
        if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
        out += static_cast<char>(high * 16 + low);
        i += 2;
        break;
      }
      default:
        return std::nullopt;
    }
  }
  return out;
}

/// The fields of one CSV line; nothing if its quotes do not match.
std::optional<std::vector<std::string>> fields_of(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    char const c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += line[i++];
    } else if (c == '"') {
      if (!quoted && !fields.back().empty()) return std::nullopt;
      quoted = !quoted;
      if (!quoted && i + 1 < line.size() && line[i + 1] != ',') return std::nullopt;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return quoted ? std::nullopt : std::optional(fields);
}

void require_plain(std::string_view text, char const* what) {
  for (char const c : text) require(static_cast<unsigned char>(c) >= ' ' && c != '\x7f', what);
  // A control of UTF-8, and what turns the direction of text.
  for (std::size_t i = 0; i + 1 < text.size(); ++i)
    require(text[i] != '\xc2' || static_cast<unsigned char>(text[i + 1] ^ '\x80') > 0x1f, what);
  for (std::string_view const turns :
       {"\xd8\x9c", "\xe2\x80\x8e", "\xe2\x80\x8f", "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaa", "\xe2\x80\xab",
        "\xe2\x80\xac", "\xe2\x80\xad", "\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x81\xa7", "\xe2\x81\xa8", "\xe2\x81\xa9"})
    require(text.find(turns) == text.npos, what);
}

bool starts_a_formula(std::string_view text) {
  std::size_t const first = text.find_first_not_of(' ');
  return first != std::string_view::npos && std::string_view("=+-@").find(text[first]) != std::string_view::npos;
}

void check_text(std::string_view text) {
  std::string const shown = weir::printable(text);
  require_plain(shown, "printable: has no control bytes");
  require(unescaped(shown) == text, "printable: can be undone");

  std::string const field = weir::csv_field(text);
  require_plain(field, "csv_field: has no control bytes");
  auto const read = fields_of("before," + field + ",after");
  require(read && read->size() == 3 && (*read)[0] == "before" && (*read)[2] == "after", "csv_field: is one field");
  std::string_view back = (*read)[1];
  require(!starts_a_formula(back), "csv_field: starts no formula");
  if (starts_a_formula(shown)) require(back.starts_with('\''), "csv_field: marks what would be a formula");
  if (back.starts_with('\'')) back.remove_prefix(1);
  require(unescaped(back) == text, "csv_field: comes back as written");
}

std::uint64_t number(std::string const& text, int base) {
  std::size_t const skip = base == 16 ? 2 : 0;
  if (base == 16) require(text.starts_with("0x"), "log_line: hexadecimal numbers say so");
  std::uint64_t value = 0;
  auto const [end, error] = std::from_chars(text.data() + skip, text.data() + text.size(), value, base);
  require(error == std::errc() && end == text.data() + text.size(), "log_line: numbers are numbers");
  return value;
}

void check_line(fuzz::input& in) {
  constexpr std::string_view actions[] = {"allocate", "free", "allocate failure"};
  std::string_view const action = actions[in.byte() % 3];
  auto const pointer = in.take<std::uint64_t>(), bytes = in.take<std::uint64_t>(), stream = in.take<std::uint64_t>();
  auto const handle = reinterpret_cast<cudaStream_t>(stream == 0 ? 1 : stream);
  weir::tag const tag{in.text(in.byte() % 100)};
  weir::detail::log_line const line(action, reinterpret_cast<void*>(pointer), bytes, handle);
  std::string_view text = line;
  require(text.size() <= weir::detail::log_file::max_line, "log_line: is no longer than a log allows");
  require(text.ends_with('\n'), "log_line: ends");
  text.remove_suffix(1);
  require_plain(text, "log_line: is one line");
  auto const fields = fields_of(text);
  require(fields && fields->size() == 7, "log_line: has seven fields");
  require(number((*fields)[0], 10) == static_cast<std::uint64_t>(::gettid()), "log_line: the thread");
  require((*fields)[1].size() == sizeof "00:00:00.000000" - 1, "log_line: the time");
  require((*fields)[2] == action, "log_line: the action");
  require(number((*fields)[3], 16) == pointer, "log_line: the pointer");
  require(number((*fields)[4], 10) == bytes, "log_line: the size");
  if (handle == cudaStreamLegacy)
    require((*fields)[5] == "0", "log_line: the legacy stream is 0");
  else
    require(number((*fields)[5], 16) == reinterpret_cast<std::uintptr_t>(handle), "log_line: the stream");
  std::string_view name = (*fields)[6];
  if (name.starts_with('\'')) name.remove_prefix(1);
  require(unescaped(name) == weir::current_tag().text(), "log_line: the tag");
}

/// Lines that go through a buffer of any size into a file.
void check_file(fuzz::input& in) {
  int const fd = ::memfd_create("log", MFD_CLOEXEC);
  if (fd < 0) fuzz::fail("the test cannot make a file in memory");
  weir::detail::log_file_options const options{"/proc/self/fd/" + std::to_string(fd), 0600, true,
                                               in.byte() * std::size_t{4}};
  std::string expected = "header\n";
  std::vector<weir::detail::log_file*> users{&weir::detail::log_file::open(options, expected)};
  while (!in.empty()) {
    unsigned const what = in.byte();
    if (what < 8) {
      users.push_back(&weir::detail::log_file::open(options, "not again"));
      require(users.back() == users.front(), "log_file: layers share a file");
    } else if (what < 16 && users.size() > 1) {
      users.back()->release();
      users.pop_back();
    } else if (what < 24) {
      users.back()->flush();
    } else {
      std::string const line = std::string(in.text(what % weir::detail::log_file::max_line)) + '\n';
      users.back()->append(line, what >= 248);
      expected += line;
    }
  }
  require(users.front()->lost() == 0, "log_file: nothing is lost");
  for (auto* const user : users) user->release();
  std::string written(expected.size() + 1, '\0');
  auto const size = ::pread(fd, written.data(), written.size(), 0);
  require(size >= 0 && written.substr(0, static_cast<std::size_t>(size)) == expected,
          "log_file: has every line, in order");
  ::close(fd);
}

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  fuzz::input in(data, size);
  switch (in.byte() % 4) {
    case 0:
      check_line(in);
      break;
    case 1:
      check_file(in);
      break;
    default:
      check_text(in.rest());
  }
  return 0;
}
