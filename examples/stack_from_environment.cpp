// A program whose memory is chosen by who runs it:
//
//     WEIR_STACK="async | pool(initial=64MiB) | limit(50%)" stack_from_environment

#include <weir/tools.hpp>
#include <weir/weir.hpp>

#include <cstdio>

int main() try {
  weir::any_resource const memory = weir::stack_from_environment("async | pool | statistics");
  weir::stream const stream;
  void* const p = memory.allocate(stream, 1 << 20);
  memory.deallocate(stream, p, 1 << 20);
  std::printf("%s", weir::report_of(memory).lines().c_str());
  return 0;
} catch (weir::config_error const& error) {
  std::fprintf(stderr, "%s\n", error.what());  // names WEIR_STACK, and the column
  return 2;
}
