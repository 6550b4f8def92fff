#pragma once
// What a random test says when it fails, so that somebody can repeat it: also when it crashes.

#include <weir/sim/sim.hpp>

#include <unistd.h>
#include <csignal>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>

namespace random_program {

namespace sim = weir::sim;

inline std::uint64_t number_from(char const* variable, std::uint64_t otherwise) {
  char const* const text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

inline char const* name_of(sim::mode m) {
  constexpr char const* all[] = {"immediate", "lazy", "random", "pct", "threads"};
  return all[static_cast<std::size_t>(m)];
}

/// The commit that is checked out, for what is printed when a test fails.
inline std::string commit() {
  std::string const here = __FILE__, folder = here.substr(0, here.rfind('/'));
  std::string const describe = " describe --always --dirty 2>/dev/null";
  std::string const command = "git -C '" + folder + "'" + describe + " || git" + describe;
  std::string text;
  if (std::FILE* const out = popen(command.c_str(), "r")) {
    for (int c = std::fgetc(out); c != EOF && c != '\n'; c = std::fgetc(out)) text += static_cast<char>(c);
    pclose(out);
  }
  return text.empty() ? "unknown" : text;
}

inline std::string repeat_with;  // what a crash prints

inline constexpr int crashes[] = {SIGSEGV, SIGABRT};
inline struct sigaction doctests[std::size(crashes)];

/// Before doctest says that there was a crash, on its stack.
inline void say_what_crashed(int signal) {
  static_cast<void>(!write(STDERR_FILENO, repeat_with.data(), repeat_with.size()));
  static_cast<void>(!write(STDERR_FILENO, "\n", 1));
  for (std::size_t i = 0; i < std::size(crashes); ++i) sigaction(crashes[i], &doctests[i], nullptr);
  raise(signal);
}

/// Until the test case ends, when doctest puts back what was there before it.
inline void print_in_a_crash() {
  struct sigaction ours {};
  ours.sa_handler = say_what_crashed;
  ours.sa_flags = SA_ONSTACK;
  for (std::size_t i = 0; i < std::size(crashes); ++i) sigaction(crashes[i], &ours, &doctests[i]);
}

}  // namespace random_program
