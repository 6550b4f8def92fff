// A service whose memory is configured: the stack comes from the command line.
//
//     parse "async | pool(initial=64MiB) | limit(1GiB) | statistics"

#include <weir/tools.hpp>
#include <weir/weir.hpp>

#include <cstdio>

int main(int count, char** arguments) try {
  char const* const text = count > 1 ? arguments[1] : "async | pool(initial=64MiB) | limit(1GiB) | statistics";
  weir::any_resource const memory = weir::parse(text);

  weir::stream stream;
  void* const p = memory.allocate(stream, 1 << 20);
  memory.deallocate(stream, p, 1 << 20);
  stream.synchronize();
  std::printf("%s\n%s", text, weir::report_of(memory).lines().c_str());

  try {
    static_cast<void>(weir::parse("async | pol(initial=1GiB)"));
  } catch (weir::config_error const& error) {
    std::puts(error.what());  // points at the column and says what is allowed
    return 0;
  }
  return 1;
} catch (weir::config_error const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
