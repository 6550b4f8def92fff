#pragma once
// Lets python3 look at bytes that the library wrote.

#include <support/temporary_folder.hpp>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

namespace weir::test {

/// What the program prints; it finds the bytes in the file `sys.argv[1]`. `failed: ` and the rest where it fails.
inline std::string python(std::string const& program, std::string const& bytes) {
  temporary_folder const folder;
  std::ofstream(folder / "bytes", std::ios::binary) << bytes;
  std::ofstream(folder / "program.py") << "import sys, json, pickle\nBYTES = open(sys.argv[1], 'rb').read()\n"
                                       << program;
  std::string const command = "python3 '" + (folder / "program.py") + "' '" + (folder / "bytes") + "' 2>&1";
  auto const close = [](std::FILE* f) { pclose(f); };
  std::unique_ptr<std::FILE, decltype(close)> pipe(popen(command.c_str(), "r"), close);
  std::string printed;
  for (int c = 0; pipe != nullptr && (c = std::fgetc(pipe.get())) != EOF;) printed += static_cast<char>(c);
  if (printed.find("Traceback") != std::string::npos) return "failed: " + printed;
  while (printed.ends_with('\n')) printed.pop_back();
  return printed;
}

}  // namespace weir::test
