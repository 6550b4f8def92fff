// A checkpoint that is written past the host's cache: such writes begin at pages and have whole pages, wherever the
// program got its memory. Small blocks stay where they are.
#include <weir/adaptors/aligned.hpp>
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/cuda/stream.hpp>
#include <weir/sources/pinned.hpp>

#include <cstdint>
#include <cstdio>

using namespace weir::literals;

namespace {

constexpr std::size_t page = 4096;
bool begins_a_page(void const* p) { return reinterpret_cast<std::uintptr_t>(p) % page == 0; }

}  // namespace

int main() {
  auto memory = weir::make(weir::pinned{} | weir::pool{} | weir::aligned{.alignment = page, .from_bytes = 16_KiB} |
                           weir::limit{1_MiB});
  weir::stream const stream;

  // The program does not speak of alignment.
  void* const header = memory.allocate(stream, 300);
  void* const weights = memory.allocate(stream, 5 * page);
  void* const moments = memory.allocate(stream, 7 * page);

  bool const right = begins_a_page(weights) && begins_a_page(moments);
  std::printf("weights begin %s, moments begin %s; %s of the budget is used, which is what was asked for\n",
              begins_a_page(weights) ? "a page" : "anywhere", begins_a_page(moments) ? "a page" : "anywhere",
              weir::format_bytes(memory.used()).c_str());
  bool const exact = memory.used() == 512 + 12 * page;

  memory.deallocate(stream, moments, 7 * page);
  memory.deallocate(stream, weights, 5 * page);
  memory.deallocate(stream, header, 300);
  return right && exact && memory.used() == 0 ? 0 : 1;
}
