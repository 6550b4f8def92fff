#pragma once
// A folder for a test's files, and readers for them.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace weir::test {

/// Made empty, removed with all that is in it.
class temporary_folder {
 public:
  temporary_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "weir-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    path_ = name;
  }
  ~temporary_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  temporary_folder(temporary_folder const&) = delete;
  temporary_folder& operator=(temporary_folder const&) = delete;

  std::string operator/(char const* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline std::string text_of(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The lines of a file, split at commas; a last line without newline is an error.
inline std::vector<std::vector<std::string>> records_of(std::string const& path) {
  std::string const text = text_of(path);
  if (!text.empty() && text.back() != '\n') throw std::runtime_error("half a line at the end of " + path);
  std::vector<std::vector<std::string>> records;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> fields(1);
    for (char const c : line) {
      if (c == ',')
        fields.emplace_back();
      else
        fields.back() += c;
    }
    records.push_back(fields);
  }
  return records;
}

}  // namespace weir::test
