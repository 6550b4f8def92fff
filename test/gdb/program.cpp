// Stops in `stop_here` with stacks of every kind in `main`, for print.py to look at.
#include <weir/adaptors.hpp>
#include <weir/sim/sim.hpp>
#include <weir/sources.hpp>
#include <weir/sources/callback.hpp>
#include <weir/tools/parse.hpp>
#include <weir/weir.hpp>

#include <utility>

using namespace weir::literals;

extern "C" void stop_here() { asm volatile(""); }

// A layer that the printer has never heard of.
template <weir::resource Upstream>
class plain_resource {
 public:
  template <weir::recipe F, class Options>
  plain_resource(F const& upstream, Options const&) : upstream_(upstream()) {}
  void* allocate(weir::stream_ref stream, std::size_t bytes, std::size_t alignment = 256) {
    return upstream_.allocate(stream, bytes, alignment);
  }
  void deallocate(weir::stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = 256) noexcept {
    upstream_.deallocate(stream, p, bytes, alignment);
  }
  Upstream& upstream() { return upstream_; }

 private:
  Upstream upstream_;
};
struct plain {
  template <weir::resource Upstream>
  using on = plain_resource<Upstream>;
};

int main() {
  auto memory = weir::make(weir::async{} | weir::pool{.initial_bytes = 64_MiB} | weir::statistics{} |
                           weir::limit{.max_bytes = 32_MiB});
  auto arenas = weir::make(weir::device{} | weir::arena{});
  auto blocks = weir::make(weir::host{} | weir::fixed_size{.block_bytes = 4_KiB});
  auto bins = weir::make(weir::host{} | weir::pool{} | weir::binning::powers_of_two(8, 10));
  auto own = weir::make(weir::host{} | weir::limit{.max_bytes = 1_MiB} | plain{} | weir::statistics{});
  auto handle = weir::share(memory);
  weir::any_resource erased(weir::device{} | weir::limit{.max_bytes = 3_MiB});
  weir::any_ref any_handle = memory;
  weir::any_ref of_erased = erased;
  weir::any_resource parsed = weir::parse("virtual_memory | limit(max=8MiB, name=shared) | pool");
  weir::any_resource left(weir::device{});
  weir::any_resource const taken = std::move(left);
  auto guarded = weir::make(weir::device{} | weir::wait_for_memory{} |
                            weir::on_failure{{{"cache", [](auto const&) { return std::size_t{0}; }}}} |
                            weir::aligned{} | weir::scrub{} | weir::tracking{});
  auto two = weir::make(weir::managed{} | weir::prefetch{} | weir::fallback{weir::host{} | weir::pool{}});
  auto three = weir::make(
      weir::device{} | weir::fallback{weir::managed{} | weir::fallback{weir::pinned{} | weir::pool{}}} | weir::trace{});
  auto paged = weir::make([] {
    weir::sim::set_pageable_access(true);
    return weir::make(weir::system{});
  });
  auto theirs =
      weir::make(weir::callback{.allocate = [](weir::stream_ref, std::size_t, std::size_t) -> void* { return nullptr; },
                                .deallocate = [](weir::stream_ref, void*, std::size_t, std::size_t) {}});
#if CUDART_VERSION >= 13000
  auto on_host = weir::make(weir::async_managed{} | weir::pool{});
#else
  auto on_host = weir::make(weir::managed{} | weir::pool{});
#endif

  weir::stream stream;
  void* const p = memory.allocate(stream, 4_MiB);
  void* const q = arenas.allocate(stream, 3000);
  void* const r = blocks.allocate(stream, 100);
  void* const t = guarded.allocate(stream, 5000);
  stop_here();
  guarded.deallocate(stream, t, 5000);
  blocks.deallocate(stream, r, 100);
  arenas.deallocate(stream, q, 3000);
  memory.deallocate(stream, p, 4_MiB);
  static_cast<void>(bins);
  static_cast<void>(own);
  static_cast<void>(handle);
  static_cast<void>(any_handle);
  static_cast<void>(of_erased);
  static_cast<void>(parsed);
  static_cast<void>(taken);
  static_cast<void>(two);
  static_cast<void>(three);
  static_cast<void>(paged);
  static_cast<void>(theirs);
  static_cast<void>(on_host);
}
