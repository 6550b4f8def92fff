// The pages' tables of options say what the options structs say. Reads docs/ of the folder that it is started in.
#include <weir/adaptors/fallback.hpp>
#include <weir/adaptors/on_failure.hpp>
#include <weir/adaptors/wait_for_memory.hpp>
#include <weir/sources/callback.hpp>
#include <weir/tools/parse.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace option = weir::option;

namespace {

struct row {
  std::string names, value;
};

/// The rows of the first table in a page's section, or after its title, that begins with the column `option`.
std::vector<row> option_table(std::string const& page, std::string const& heading) {
  std::ifstream file("docs/" + page);
  REQUIRE_MESSAGE(file.is_open(), "docs/" << page << " is not here: start this test in the folder of the repository");
  std::vector<row> rows;
  bool in_section = heading.empty(), in_table = false;
  for (std::string line; std::getline(file, line);) {
    if (line == heading) in_section = true;
    if (in_section && line.starts_with("| option |")) in_table = true;
    if (!in_table) continue;
    if (!line.starts_with("|")) break;
    std::istringstream cells(line.substr(2));
    row r;
    std::getline(cells, r.names, '|');
    std::getline(cells, r.value, '|');
    rows.push_back(r);
  }
  return rows;
}

/// The words between backticks, in order.
std::vector<std::string> quoted(std::string const& text) {
  std::vector<std::string> words;
  for (std::size_t at = text.find('`'); at != std::string::npos; at = text.find('`', at)) {
    std::size_t const end = text.find('`', at + 1);
    words.push_back(text.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return words;
}

/// A default as pages write it; empty where they say it in words of their own.
template <class Options, class T>
std::string default_of(option::number<Options, T> const& field) {
  bool const is_word = Options{}.*field.member == std::numeric_limits<T>::max();  // keep all
  return is_word ? std::string() : field.text(Options{}.*field.member);
}
template <class Options>
std::string default_of(option::plain<Options, bool> const& field) {
  return Options{}.*field.member ? "true" : "false";
}
template <class Options>
std::string default_of(option::plain<Options, std::string> const&) {
  return {};
}
template <class Options, class T>
std::string default_of(option::choice<Options, T> const& field) {
  return field.words[Options{}.*field.member == field.values[0] ? 0 : 1];
}

/// True for `0`, `64 KiB`, true, `may_end`: a value, and no words about it.
bool is_value(std::string const& cell) {
  return cell.find_first_of("0123456789-`") == 0 || cell.starts_with("true") || cell.starts_with("false");
}

template <class Options>
void check_page(std::string const& page, std::string const& heading) {
  CAPTURE(page);
  CAPTURE(heading);
  std::vector<row> const rows = option_table(page, heading);
  std::vector<std::string> on_page, in_code;
  for (std::size_t i = 2; i < rows.size(); ++i)  // below the head and its line
    for (std::string const& name : quoted(rows[i].names)) on_page.push_back(name);
  Options::for_each_option([&](auto const& field) {
    in_code.push_back(field.name);
    std::string const expected = default_of(field);
    for (row const& r : rows) {
      if (expected.empty() || quoted(r.names) != std::vector<std::string>{field.name} || !is_value(r.value)) continue;
      std::string const said = r.value.find('`') == 0 ? quoted(r.value).front() : r.value;
      CHECK_MESSAGE(said.starts_with(expected),
                    field.name << " is " << expected << " by default, the page says " << said);
    }
  });
  std::sort(on_page.begin(), on_page.end());
  std::sort(in_code.begin(), in_code.end());
  CHECK(on_page == in_code);
}

/// The rows of a layer in the table of docs/tools.md: its words in order, those that may stand alone in italics.
template <class Options>
void check_text(char const* layer) {
  CAPTURE(layer);
  std::string expected;
  Options::for_each_option([&](auto const& field) {
    bool first = false;
    if constexpr (requires { field.is_first; }) first = field.is_first;
    expected += std::string(expected.empty() ? "" : " ") + (first ? "*" : "") + field.word;
  });
  std::ifstream file("docs/tools.md");
  std::string said = "no row";
  for (std::string line; std::getline(file, line);) {
    std::size_t const second = line.find(" | ");
    if (!line.starts_with("| `") || second == std::string::npos) continue;
    std::vector<std::string> const layers = quoted(line.substr(0, second));
    if (std::find(layers.begin(), layers.end(), layer) == layers.end()) continue;
    if (said == "no row") said.clear();
    int depth = 0;  // what is in parentheses are values
    for (std::size_t at = second; at < line.size(); ++at) {
      depth += line[at] == '(' ? 1 : line[at] == ')' ? -1 : 0;
      if (line[at] != '`') continue;
      std::size_t const end = line.find('`', at + 1);
      bool const first = line[at - 1] == '*';
      if (depth == 0)
        said += std::string(said.empty() ? "" : " ") + (first ? "*" : "") + line.substr(at + 1, end - at - 1);
      at = end;
    }
  }
  CHECK(said == expected);
}

}  // namespace

TEST_CASE("the pages list every option of a struct, and no other, with its default") {
  check_page<weir::pool>("pool.md", "");
  check_page<weir::arena>("arena.md", "");
  check_page<weir::fixed_size>("fixed_size.md", "");
  check_page<weir::aligned>("adaptors.md", "## aligned");
  check_page<weir::limit>("adaptors.md", "## limit");
  check_page<weir::prefetch>("adaptors.md", "## prefetch");
  check_page<weir::scrub>("adaptors.md", "## scrub");
  check_page<weir::statistics>("adaptors.md", "## statistics");
  check_page<weir::logging>("adaptors.md", "## logging");
  check_page<weir::on_failure>("out-of-memory.md", "## on_failure");
  check_page<weir::fallback<weir::host>>("out-of-memory.md", "## fallback");
  check_page<weir::trace>("seeing-memory.md", "## trace");
  check_page<weir::tracking>("tracking.md", "");
  check_page<weir::wait_for_memory>("out-of-memory.md", "## wait_for_memory");
  check_page<weir::async>("sources.md", "");
  check_page<weir::callback>("sources.md", "## `callback`: from two functions");
  check_page<weir::async_managed>("sources.md", "## `async_managed` and `async_pinned`");
  check_page<weir::async_pinned>("sources.md", "## `async_managed` and `async_pinned`");
  check_page<weir::system>("sources.md", "## `system` and its headroom");
  check_page<weir::virtual_memory>("virtual-memory.md", "");
}

TEST_CASE("the page on texts lists every word of a layer, in order") {
  auto const check = []<class... Options>(weir::detail::layer_list<Options...>) {
    (check_text<Options>(Options::layer_name), ...);
  };
  check(weir::detail::sources_in_text());
  check(weir::detail::adaptors_in_text());
}
