// Runs a fuzz target without libFuzzer: on every file it is given, or on every file of a folder and on changed copies
// of them. The changes are the same each time.
//
//   PROGRAM FILE...               each file once
//   PROGRAM FOLDER [CHANGES]      each file, then so many changed ones (default 300)
//
// Where a property does not hold, it writes the input to `failing-input` in the current folder and says so.
#include "target.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

namespace {

using bytes = std::vector<std::uint8_t>;

bytes const* running = nullptr;
std::string origin;

/// Safe inside of a signal handler.
void say_which() {
  if (running == nullptr) return;
  int const file = ::open("failing-input", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  bool const written =
      file >= 0 && ::write(file, running->data(), running->size()) == static_cast<ssize_t>(running->size());
  char const* const how = written ? "; it is in ./failing-input" : "";
  for (char const* part : {"the input: ", origin.c_str(), how, "\n"})
    if (::write(2, part, std::strlen(part)) < 0) break;
  running = nullptr;
}

void run(bytes const& one, std::string const& where) {
  // Exactly as large as the input, so that the address sanitizer sees what is read beyond it.
  bytes const copy(one);
  origin = where;
  running = &copy;
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
  running = nullptr;
}

bytes read(std::filesystem::path const& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "%s cannot be read\n", path.c_str());
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

/// One to four small changes: a bit, a byte, a piece left out, doubled, or taken from another input.
bytes changed(bytes one, bytes const& other, std::mt19937& random) {
  auto const below = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
  for (auto left = 1 + below(4); left > 0; --left) {
    std::size_t const at = below(one.size()), length = 1 + below(8);
    auto const here = one.begin() + static_cast<std::ptrdiff_t>(at);
    auto const end = here + static_cast<std::ptrdiff_t>(std::min(length, one.size() - at));
    switch (below(5)) {
      case 0:
        if (!one.empty()) one[at] = static_cast<std::uint8_t>(one[at] ^ 1u << below(8));
        break;
      case 1:
        if (!one.empty()) one[at] = static_cast<std::uint8_t>(below(256));
        break;
      case 2:
        one.erase(here, end);
        break;
      case 3: {
        bytes const piece(here, end);
        one.insert(one.begin() + static_cast<std::ptrdiff_t>(below(one.size() + 1)), piece.begin(), piece.end());
        break;
      }
      default: {
        auto const from = other.begin() + static_cast<std::ptrdiff_t>(below(other.size()));
        auto const most = std::min<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(length * 4), other.end() - from);
        one.insert(here, from, from + most);
      }
    }
  }
  return one;
}

}  // namespace

// The sanitizers call this before they report.
extern "C" void __asan_on_error();
void __asan_on_error() { say_which(); }

int main(int count, char** arguments) {
  std::signal(SIGABRT, [](int) { say_which(); });
  std::signal(SIGSEGV, [](int) {
    say_which();
    std::_Exit(3);
  });
  if (count < 2) {
    std::fprintf(stderr, "use: %s FILE... | FOLDER [CHANGES]\n", arguments[0]);
    return 2;
  }
  if (!std::filesystem::is_directory(arguments[1])) {
    for (int i = 1; i < count; ++i) run(read(arguments[i]), arguments[i]);
    std::printf("%d files\n", count - 1);
    return 0;
  }
  std::vector<std::filesystem::path> paths;
  for (auto const& entry : std::filesystem::directory_iterator(arguments[1])) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<bytes> corpus;
  for (auto const& path : paths) {
    corpus.push_back(read(path));
    run(corpus.back(), path.string());
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "%s holds no files\n", arguments[1]);
    return 2;
  }
  auto const changes = count > 2 ? std::strtoul(arguments[2], nullptr, 10) : 300;
  std::mt19937 random(1);
  for (unsigned long i = 0; i < changes; ++i) {
    std::size_t const which = random() % corpus.size();
    bytes const& other = corpus[random() % corpus.size()];
    run(changed(corpus[which], other, random), "change " + std::to_string(i) + " of " + paths[which].string());
  }
  std::printf("%zu files, %lu changes\n", corpus.size(), changes);
}
