// An adaptor and a source of one's own. The source hands out a buffer that somebody else allocated. The adaptor asks
// the program to make room when memory runs out, and tries again.
#include <weir/adaptors/limit.hpp>
#include <weir/adaptors/pool.hpp>
#include <weir/core.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

using namespace weir::literals;
// NOLINTNEXTLINE(misc-unused-using-decls)
using weir::operator|;  // in the namespace of one's own types, so that they stack on each other too

/// The source: one buffer for whoever comes first. A source is a resource and its options, which are a recipe.
class borrowed_resource {
 public:
  static constexpr bool device_accessible = true;
  static constexpr bool host_ordered = true;  // nothing here is in any stream's order

  borrowed_resource(void* buffer, std::size_t bytes) : buffer_(buffer), bytes_(bytes) {}

  void* allocate(weir::stream_ref stream, std::size_t bytes, std::size_t alignment = weir::default_alignment) {
    if (bytes == 0) return nullptr;
    bool const aligned = alignment != 0 && reinterpret_cast<std::uintptr_t>(buffer_) % alignment == 0;
    std::lock_guard const lock(mutex_);
    if (taken_ || bytes > bytes_ || !aligned)
      throw weir::out_of_memory({bytes, bytes, stream}, "borrowed", weir::report_of(*this));
    taken_ = true;
    return buffer_;
  }
  // Whoever frees it says so after the work on `stream`; a pool above waits for that work before it gives memory back.
  void deallocate(weir::stream_ref stream, void* p, std::size_t, std::size_t = weir::default_alignment) noexcept {
    if (p == nullptr) return;
    if (!stream.is_host_order()) cudaStreamSynchronize(stream.get());
    std::lock_guard const lock(mutex_);
    taken_ = false;
  }

  void describe(weir::report& out) const {  // optional: its line in reports
    out.below("borrowed", "one buffer of " + weir::format_bytes(bytes_));
  }

 private:
  void* buffer_;
  std::size_t bytes_;
  std::mutex mutex_;
  bool taken_ = false;
};

struct borrowed {
  void* buffer = nullptr;
  std::size_t bytes = 0;
  borrowed_resource operator()() const { return borrowed_resource(buffer, bytes); }
};

/// The adaptor: what stands on an upstream of any type.
template <weir::resource Upstream>
class retrying_resource {
 public:
  static constexpr bool device_accessible = weir::device_accessible<Upstream>;
  static constexpr bool host_accessible = weir::host_accessible<Upstream>;
  static constexpr bool host_ordered = weir::host_ordered<Upstream>;

  template <weir::recipe F, class Options>
  retrying_resource(F const& upstream, Options const& options)
      : upstream_(upstream()), make_room_(options.make_room) {}  // the upstream is made here, in place
  retrying_resource(retrying_resource const&) = delete;
  retrying_resource& operator=(retrying_resource const&) = delete;

  void* allocate(weir::stream_ref stream, std::size_t bytes, std::size_t alignment = weir::default_alignment) {
    for (;;) try {
        return upstream_.allocate(stream, bytes, alignment);
      } catch (weir::out_of_memory& failure) {
        if (make_room_(bytes)) continue;
        failure.passed_through(*this);  // adds this layer's line to the report
        throw;
      }
  }
  void deallocate(weir::stream_ref stream, void* p, std::size_t bytes,
                  std::size_t alignment = weir::default_alignment) noexcept {
    upstream_.deallocate(stream, p, bytes, alignment);
  }

  Upstream& upstream() noexcept { return upstream_; }  // for `weir::find`
  void describe(weir::report& out) const {
    describe_layer(out);
    weir::describe(upstream_, out);
  }
  void describe_layer(weir::report& out) const { out.below("retrying", "asks the program to make room"); }

 private:
  Upstream upstream_;
  std::function<bool(std::size_t)> make_room_;
};

/// Its options, which are what stands on the right of `|`.
struct retrying {
  std::function<bool(std::size_t bytes)> make_room;  ///< false: nothing left to give up

  template <weir::resource Upstream>
  using on = retrying_resource<Upstream>;

  std::string problem() const { return make_room ? "" : "retrying: make_room is empty; give it a function"; }
};

int main() {
  void* buffer = nullptr;
  if (cudaMalloc(&buffer, 64_MiB) != cudaSuccess) return 1;
  bool right = false;
  {
    // What could be computed again, and is dropped when memory is short.
    void* cached = nullptr;
    std::function<void()> drop;
    auto memory = weir::make(borrowed{buffer, 64_MiB} | weir::pool{.initial_bytes = 64_MiB} | weir::limit{32_MiB} |
                             retrying{[&](std::size_t bytes) {
                               std::printf("%s are missing\n", weir::format_bytes(bytes).c_str());
                               if (cached == nullptr) return false;
                               drop();
                               return true;
                             }});
    drop = [&] { weir::deallocate_sync(memory, std::exchange(cached, nullptr), 20_MiB); };

    cached = weir::allocate_sync(memory, 20_MiB);
    void* const batch = weir::allocate_sync(memory, 24_MiB);  // fits once the cache is gone
    bool const dropped = cached == nullptr;
    bool refused = false;
    try {
      weir::deallocate_sync(memory, weir::allocate_sync(memory, 24_MiB), 24_MiB);
    } catch (weir::out_of_memory const& failure) {
      refused = true;
      std::printf("%s\n", failure.what());
    }
    weir::deallocate_sync(memory, batch, 24_MiB);
    right = dropped && refused && weir::find<weir::limit_resource>(memory).used() == 0;
  }
  return cudaFree(buffer) == cudaSuccess && right ? 0 : 1;
}
