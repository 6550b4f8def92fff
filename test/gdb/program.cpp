// Stops in `stop_here` with stacks of every kind in `main`, for print.py to look at.
#include <weir/weir.hpp>

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

  weir::stream stream;
  void* const p = memory.allocate(stream, 4_MiB);
  void* const q = arenas.allocate(stream, 3000);
  void* const r = blocks.allocate(stream, 100);
  stop_here();
  blocks.deallocate(stream, r, 100);
  arenas.deallocate(stream, q, 3000);
  memory.deallocate(stream, p, 4_MiB);
  static_cast<void>(bins);
  static_cast<void>(own);
  static_cast<void>(handle);
}
