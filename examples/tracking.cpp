// A leak, found: which part of the program holds memory that nobody will free, and where it was allocated. And a wrong
// free, which is said to be one before it does harm.
#include <weir/adaptors/pool.hpp>
#include <weir/adaptors/tracking.hpp>
#include <weir/core/any_ref.hpp>
#include <weir/core/error.hpp>
#include <weir/core/tag.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/async.hpp>

#include <cstddef>
#include <cstdio>
#include <string>

using namespace weir::literals;

namespace {

std::string wrong_free, leaks;

}  // namespace

// Not in a namespace without a name, so that reports can name it: this program is linked with -rdynamic.
void request(weir::any_ref memory, weir::stream_ref stream, bool is_cached) {
  weir::tag const scope{"search/request"};
  void* const scratch = memory.allocate(stream, 256_KiB);
  if (!is_cached) {
    weir::tag const inner{"search/cache"};
    static_cast<void>(memory.allocate(stream, 1_MiB));  // the mistake: nobody keeps it
  }
  memory.deallocate(stream, scratch, 256_KiB);
}

int main() {
  weir::set_misuse_handler([](char const* what) noexcept { wrong_free = what; });  // instead of ending the program
  {
    auto memory =
        weir::make(weir::async{} | weir::pool{} |
                   weir::tracking{.frames = 8, .on_leaks = [](std::string const& report) { leaks = report; }});
    weir::stream const stream;
    for (int i = 0; i < 100; ++i) request(memory, stream, i % 20 != 0);

    std::puts("Who holds what, while the program runs:");
    for (weir::holder const& each : memory.holders(weir::held_by::tag))
      std::printf("  %s: %zu B in %zu blocks\n", each.who.c_str(), each.bytes, each.blocks);

    void* const p = memory.allocate(stream, 1000);
    memory.deallocate(stream, p, 1024);  // the other mistake
    memory.deallocate(stream, p, 1000);
    std::printf("\n%s\n", wrong_free.c_str());
    stream.synchronize();
  }
  std::printf("\nAt the end of the stack:\n%s", leaks.c_str());

  bool const right = leaks.find("5 blocks of 5.00 MiB are live") != std::string::npos &&
                     leaks.find("search/cache\n") != std::string::npos &&
                     leaks.find("search/request") == std::string::npos &&
                     wrong_free.find("it was allocated with 1000 B") != std::string::npos;
  return right ? 0 : 1;
}
