// A stack whose type is forgotten, asked and trimmed: what each layer holds, how near a budget is, memory for others.
//
//     trim "async | pool | limit(1GiB, name=search) | arena"

#include <weir/tools.hpp>
#include <weir/weir.hpp>

#include <cstdio>
#include <exception>
#include <optional>
#include <string>

namespace {

void print(char const* name, std::optional<std::size_t> bytes) {
  if (bytes) std::printf(", %s %s", name, weir::format_bytes(*bytes).c_str());
}

void print_layers(char const* title, weir::any_resource const& memory) {
  std::printf("%s\n", title);
  for (weir::layer_numbers const& one : weir::numbers(memory)) {
    std::printf("  %*s%s%s%s", static_cast<int>(one.depth) * 2, "", one.layer.c_str(), one.name.empty() ? "" : " of ",
                one.name.c_str());
    print("reserved", one.reserved);
    print("allocated", one.allocated);
    print("charged", one.charged);
    print("at most", one.max_bytes);
    std::printf("\n");
  }
}

std::string free_on_device() { return weir::format_bytes(weir::memory_info(weir::current_device()).free_bytes); }

}  // namespace

int main(int count, char** arguments) try {
  weir::any_resource const memory =
      weir::parse(count > 1 ? arguments[1] : "async | pool | limit(1GiB, name=search) | arena");
  weir::limit_ref const budget = weir::find_limit(memory);  // the outermost; find_limit(memory, "search") by its name

  weir::stream stream;
  void* const p = memory.allocate(stream, 100 << 20);
  print_layers("in use:", memory);
  std::printf("the budget: %s of %s\n", weir::format_bytes(budget.used()).c_str(),
              weir::format_bytes(budget.max_bytes()).c_str());

  memory.deallocate(stream, p, 100 << 20);
  print_layers("freed, and kept for the next request:", memory);

  std::string const before = free_on_device();
  weir::synchronize(memory);  // so that nothing is pending, which a trim would leave
  std::size_t const released = weir::trim(memory);
  print_layers("trimmed:", memory);
  std::printf("%s given back; the device had %s free and has %s\n", weir::format_bytes(released).c_str(),
              before.c_str(), free_on_device().c_str());
  return 0;
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
