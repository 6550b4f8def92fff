// Texts given to `parse`: each is refused with a column, or makes a stack that works and gives everything back.
#include "target.hpp"

#include <support/parsed.hpp>

#include <weir/sim/order.hpp>
#include <weir/sim/sim.hpp>

#include <cstdlib>
#include <new>
#include <stdexcept>

using fuzz::require;

// A text may ask for any amount of memory. The address sanitizer then says no, as a small machine would.
extern "C" char const* __asan_default_options();
extern "C" char const* __asan_default_options() { return "allocator_may_return_null=1:max_allocation_size_mb=64"; }

// Where it says no its own `new` ends the program; these, which a trace's events and host memory come from, do not.
void* operator new(std::size_t bytes, std::align_val_t alignment, std::nothrow_t const&) noexcept {
  auto const unit = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  if (void* const p = operator new(bytes, alignment, std::nothrow)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace {

using anything = weir::basic_any_resource<false, false>;

void check(weir::config_error const& refused, std::string_view text) {
  require(refused.column() >= 1 && refused.column() <= text.size() + 1, "config_error: the column is in the text");
  std::string const what = refused.what();
  require(what.starts_with("weir: column " + std::to_string(refused.column()) + ": "), "config_error: says the column");
  std::size_t const mark = what.rfind("\n  "), line = what.rfind("\n  ", mark - 1);
  require(what.size() - mark == 3 + refused.column() && what.back() == '^', "config_error: the mark is at the column");
  require(mark - line == 3 + text.size(), "config_error: shows the whole text");
  for (char const c : what) require(c == '\n' || (c >= ' ' && c <= '~'), "config_error: prints no control bytes");
}

/// How often the text says `pool` or `arena`. Each of them that is refused asks its upstream for ever less, a dozen
/// times for a small request, so that many on each other take minutes to say no.
std::size_t pools(std::string_view text) {
  std::size_t found = 0;
  for (std::string_view const name : {"pool", "arena"})
    for (std::size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) ++found;
  return found;
}

void use(anything const& stack) {
  for (std::size_t const bytes : {1u, 300u, 70000u}) {
    for (weir::stream_ref const order : {weir::stream_ref(cudaStreamLegacy), weir::stream_ref(weir::host_order)}) {
      try {
        void* const p = stack.allocate(order, bytes, 512);
        require(p != nullptr && reinterpret_cast<std::uintptr_t>(p) % 512 == 0, "the stack gives aligned memory");
        static_cast<unsigned char*>(p)[0] = static_cast<unsigned char*>(p)[bytes - 1] = 1;
        stack.deallocate(order, p, bytes, 512);
      } catch (weir::out_of_memory const&) {  // a limit below that, say
      }
    }
  }
}

/// What would be read of a stack with a log: making it would empty the file that the text names.
void read_only(std::string_view text) {
  try {
    for (auto& layer : weir::detail::config_reader(text).layers()) {
      struct {
        std::size_t bytes = 0;
      } into;
      layer.take(weir::option::bytes("bytes", "bytes", &decltype(into)::bytes).first(), into);
      layer.finish();
    }
  } catch (weir::config_error const& refused) {
    check(refused, text);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  std::string_view const text(reinterpret_cast<char const*>(data), size);
  if (text.find("logging") != std::string_view::npos) {
    read_only(text);
    return 0;
  }
  weir::sim::reset();
  weir::sim::set_capacity(0, std::size_t{16} << 20);
  weir::sim::set_host_capacity(std::size_t{16} << 20);
  weir::sim::check_order(true);
  weir::set_misuse_handler([](char const* what) noexcept { fuzz::fail(what); });
  try {
    anything const stack = weir::parse<anything>(text);
    if (pools(text) <= 3) use(stack);
  } catch (weir::config_error const& refused) {
    check(refused, text);
  } catch (std::bad_alloc const&) {  // an initial size that cannot be had
  }
  require(weir::sim::report_count() == 0, "no violation of order");
  weir::sim::run_all();
  require(weir::sim::live_allocations() == 0, "all memory goes back");
  return 0;
}
