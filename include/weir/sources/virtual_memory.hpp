#pragma once
// Source: device memory in chunks that are mapped to addresses as needed, by the driver's virtual memory management.

#include <weir/core/call_note.hpp>
#include <weir/core/growable.hpp>
#include <weir/core/options.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/core/tenants.hpp>
#include <weir/cuda/driver.hpp>
#include <weir/pool/growable_range.hpp>
#include <weir/pool/pool_options.hpp>
#include <weir/pool/upstream_calls.hpp>
#include <weir/sources/address_ranges.hpp>
#include <weir/sources/chunk_kind.hpp>
#include <weir/sources/device.hpp>
#include <weir/sources/physical_chunks.hpp>
#include <weir/sources/scrubber.hpp>
#include <weir/sources/source_device.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace weir {

class virtual_memory_resource;

/// Device memory whose addresses and physical chunks are apart, so that a pool on it grows in place and moves chunks
/// that it does not use. When not to use it: bare, for frequent allocations (each maps whole chunks, and `deallocate`
/// waits as `device`'s does); for memory that goes to `cudaIpcGetMemHandle`, which knows no mapped memory; for buffers
/// that network adapters register; on virtual GPUs, which have no such memory. docs/virtual-memory.md says more.
struct virtual_memory {
  int device = -1;                                 ///< which device; -1: the one current at `make`
  std::size_t chunk_bytes = std::size_t{2} << 20;  ///< what is mapped at once: a multiple of what the driver maps
  /// Addresses that a pool reserves: they cost no memory. Halved while the driver refuses. 0: four times the device's
  /// memory, and less than 1 TiB.
  std::size_t range_bytes = 0;
  std::size_t max_bytes = 0;  ///< most physical memory, in whole chunks; 0: as much as the device has
  bool peers = false;         ///< every device that can reach this one's memory may use it as well
  memory_handle handle_type = memory_handle::none;
  bool movable =
      true;            ///< false: a pool never maps a live address anew, for memory that is registered with NCCL or UCX
  bool scrub = false;  ///< zero chunks that go from one pool to another, and new ones, before they are used

  static constexpr char const* layer_name = "virtual_memory";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(detail::device_option<virtual_memory>());
    f(option::bytes("chunk", "chunk_bytes", &virtual_memory::chunk_bytes).power_of_two());
    f(option::bytes("range", "range_bytes", &virtual_memory::range_bytes));
    f(option::bytes("max", "max_bytes", &virtual_memory::max_bytes));
    f(option::flag("peers", "peers", &virtual_memory::peers));
    f(option::one_of("handle_type", "handle_type", &virtual_memory::handle_type, "none", memory_handle::none,
                     "posix_fd", memory_handle::posix_fd));
    f(option::flag("movable", "movable", &virtual_memory::movable));
    f(option::flag("scrub", "scrub", &virtual_memory::scrub));
  }

  std::string problem() const;
  bool valid() const { return problem().empty(); }
  virtual_memory_resource operator()() const;
};

/// What a source of virtual memory holds, in bytes.
struct virtual_memory_numbers {
  struct level {
    std::size_t current = 0;
    std::size_t peak = 0;
  };
  level allocated;       ///< mapped; a chunk counts once, at however many addresses it is
  level reserved;        ///< from the device: mapped or spare
  std::size_t free = 0;  ///< spare
};

/// A set of physical chunks of one device, and the addresses they are mapped at: `growable`, for one pool or several
/// (`share(memory) | pool{}`). Chunks that are unmapped stay, as spare ones, until `trim`. Thread-safe for calls about
/// different addresses. With WEIR_NO_CACHING=1 it is `device`, and grows nothing.
class virtual_memory_resource {
 public:
  static constexpr bool device_accessible = true;
  static constexpr bool host_accessible = false;
  static constexpr bool host_ordered = true;
  static constexpr char const* layer_name = "virtual_memory";

  /// Throws `std::invalid_argument` for wrong options, or a device or driver that has no virtual memory management.
  explicit virtual_memory_resource(virtual_memory const& options)
      : device_(detail::chosen_device(layer_name, detail::require_valid(options).device)),
        plain_(device_),
        options_(with_range(options, device_)),
        chunks_(detail::driver(), detail::chunk_kind(device_, options.handle_type, options.chunk_bytes),
                options.chunk_bytes, options.max_bytes),
        scrubber_(options.scrub ? std::optional<detail::scrubber>(std::in_place, device_) : std::nullopt),
        ranges_(detail::driver(), chunks_, detail::chunk_users(device_, options.peers),
                scrubber_ ? &*scrubber_ : nullptr),
        tenants_(options.max_bytes) {
    detail::relaxed([this] { require_memory(); });
  }
  virtual_memory_resource(virtual_memory_resource const&) =
      delete;  // weir: neither copied nor moved; pass weir::share(memory)
  virtual_memory_resource& operator=(virtual_memory_resource const&) = delete;

  /// A range of its own, in whole chunks, all of it mapped. Throws `out_of_memory`, `cuda_error`, or
  /// `std::invalid_argument` for an alignment beyond 2 MiB.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (grows_nothing_) return plain_.allocate(stream, bytes, alignment);
    if (bytes == 0) return nullptr;
    detail::require_alignment(alignment);
    begin_call();
    std::size_t const whole = round_up_or_zero(bytes, chunk_bytes());
    bool has_addresses = true;
    if (detail::wants_captured_memory(stream)) refuse(stream, bytes, whole, has_addresses);
    void* const p = detail::relaxed([&] { return take(whole, has_addresses); });
    if (p == nullptr) refuse(stream, bytes, whole, has_addresses);
    return p;
  }

  /// Blocks until the work queued on `stream` so far is done; not in `host_order`, where there is none. The chunks stay
  /// as spare ones.
  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    if (grows_nothing_) return plain_.deallocate(stream, p, bytes, alignment);
    if (p == nullptr || life_.is_exiting()) return;
    address_range const range{p, round_up_or_zero(bytes, chunk_bytes())};
    if (!ranges_.knows(range)) return report_unknown(range);
    // Where not even the device can be waited for, the memory is kept: work that was not seen to end may still use it.
    if (!stream.is_host_order() && !detail::wait_for(stream, device())) return detail::note_kept();
    if (!detail::relaxed([&] { return ranges_.release(range); })) return report_unknown(range);
    tenants_.give_outside(range.bytes);
  }

  // What `growable` asks for.
  std::size_t chunk_bytes() const noexcept { return options_.chunk_bytes; }
  address_range reserve_range(std::size_t most) {
    begin_growing();
    std::size_t const limit = most < options_.range_bytes ? most : options_.range_bytes;
    for (std::size_t bytes = whole_chunks(limit); bytes != 0; bytes = whole_chunks(bytes / 2)) {
      address_range const made = detail::relaxed([&] { return ranges_.reserve(bytes); });
      if (made.begin != nullptr) return made;
    }
    report own = report_of(*this);
    own.hint(no_addresses);
    throw out_of_memory({most, whole_chunks(limit), host_order}, layer_name, own);
  }
  void release_range(address_range range) noexcept {
    if (life_.is_exiting()) return;
    if (!detail::relaxed([&] { return ranges_.release(range); })) report_unknown(range);
  }
  bool map(void* p, std::size_t bytes) {
    begin_growing();
    return detail::relaxed([&] { return ranges_.map(p, bytes); });
  }
  bool unmap(void* p, std::size_t bytes) noexcept {
    if (life_.is_exiting()) return false;
    return detail::relaxed([&] { return ranges_.unmap(p, bytes); });
  }
  bool alias(void* to, void* from, std::size_t bytes) {
    begin_growing();
    return detail::relaxed([&] { return ranges_.alias(to, from, bytes); });
  }

  /// The pools that use it.
  tenants& tenancy() noexcept { return tenants_; }
  /// Whether a pool may show chunks at other addresses than those they were mapped at first.
  bool movable() const noexcept { return options_.movable; }

  /// Gives spare chunks back to the device until at most `keep_bytes` are held; returns how many bytes went.
  std::size_t trim(std::size_t keep_bytes = 0) noexcept {
    if (life_.is_exiting()) return 0;
    return detail::relaxed([&] {
      ranges_.undo_left();
      return chunks_.trim(keep_bytes);
    });
  }

  /// Throws `cuda_error` once the process exits.
  virtual_memory_numbers numbers() const {
    if (life_.is_exiting()) detail::check(detail::process_exit::error, layer_name);
    auto const n = chunks_.now();
    return {{n.mapped, n.mapped_peak}, {n.held, n.held_peak}, n.spare};
  }
  /// Lets the peaks start again from what is so now.
  void reset_peaks() noexcept {
    if (!life_.is_exiting()) chunks_.reset_peaks();
  }
  /// The most physical bytes that it creates; 0: as many as the device has.
  std::size_t max_bytes() const noexcept { return options_.max_bytes; }
  int device() const noexcept { return device_; }

  /// Whole chunks.
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept {
    return grows_nothing_ ? plain_.taken(bytes, alignment) : round_up_or_zero(bytes, chunk_bytes());
  }

  void describe(report& out) const {
    out.below(std::string(layer_name) + "(" + std::to_string(device()) + ")",
              life_.is_exiting() ? detail::process_exit::words
                                 : state() + "; " + detail::device_state(device(), chunks_.now().held));
    if (life_.is_exiting()) return;
    tenants_.describe(out);
    detail::note_device_memory(out, device(), grows_nothing_ ? 1 : chunk_bytes());
  }

 private:
  static virtual_memory with_range(virtual_memory options, int device) {
    constexpr std::size_t most = std::size_t{1} << 40;
    std::size_t const total = memory_info(device).total_bytes;  // which also sees to it that the device is set up
    std::size_t const wanted = options.range_bytes != 0 ? options.range_bytes
                               : total < most / 4       ? 4 * total
                                                        : most - options.chunk_bytes;
    options.range_bytes = std::max(wanted / options.chunk_bytes * options.chunk_bytes, options.chunk_bytes);
    return options;
  }

  static constexpr char const* no_addresses =
      "this process has no addresses left for a range: set range_bytes to less, or use fewer pools";

  /// Some devices say only that they have no such memory when they are asked for a piece. One that is full has it. The
  /// piece is in no peak.
  void require_memory() {
    detail::chunk* slot = nullptr;
    try {
      if (chunks_.take({&slot, 1})) chunks_.drop({&slot, 1});
    } catch (cuda_error const& error) {
      if (error.code() != cudaErrorNotSupported) throw;
      throw std::invalid_argument("weir: virtual_memory: device " + std::to_string(device_) + " " +
                                  detail::no_virtual_memory);
    }
    chunks_.trim(0);
    chunks_.reset_peaks();
  }

  std::size_t whole_chunks(std::size_t bytes) const noexcept { return bytes / chunk_bytes() * chunk_bytes(); }

  void begin_call() {
    if (life_.is_exiting()) detail::check(detail::process_exit::error, layer_name);
    life_.settle();
  }
  void begin_growing() {
    begin_call();
    if (grows_nothing_) detail::check(cudaErrorNotSupported, "virtual_memory: growing, with WEIR_NO_CACHING=1,");
  }

  /// Null where there is too little memory beside what pools use and are promised, or no addresses, which it tells.
  void* take(std::size_t bytes, bool& has_addresses) {
    if (bytes == 0 || bytes > options_.range_bytes) return nullptr;
    void* p = nullptr;
    std::uint64_t const seen = tenants_.given();
    auto const try_to = [&] {
      return tenants_.take_outside(bytes, [&] { return (p = map_new_range(bytes, has_addresses)) != nullptr; });
    };
    bool is_taken = try_to();
    // First what is lacking; where that was not enough, since the device has less, as much as is asked for.
    for (int asked = 0; !is_taken && has_addresses && asked < 2 && tenants_.reclaim_outside(bytes) != 0; ++asked)
      is_taken = try_to();
    // From inside of some pool's call nobody waits for what is being given back: that call may be what does it.
    if (!is_taken && tenants_.gave_since(seen, !detail::upstream_calls::is_thread_in_call())) try_to();
    return p;
  }
  void* map_new_range(std::size_t bytes, bool& has_addresses) {
    address_range const made = ranges_.reserve(bytes);
    has_addresses = made.begin != nullptr;
    if (!has_addresses) return nullptr;
    try {
      if (ranges_.map(made.begin, bytes)) return made.begin;
    } catch (...) {
      ranges_.release(made);
      throw;
    }
    ranges_.release(made);
    return nullptr;
  }

  static void report_unknown(address_range range) noexcept {
    detail::report_misuse("weir: virtual_memory: deallocate of " + detail::hex(range.begin) + " (" +
                          std::to_string(range.bytes) +
                          " B in whole chunks): it was freed before, is not from this resource, or had another size");
  }

  [[noreturn, gnu::noinline, gnu::cold]] void refuse(stream_ref stream, std::size_t bytes, std::size_t rounded,
                                                     bool has_addresses) const {
    report own = report_of(*this);
    own.hint(detail::hint_for(bytes, own, has_addresses ? hint(bytes, rounded) : no_addresses));
    throw out_of_memory({bytes, rounded, stream, device()}, layer_name, own);
  }
  std::string hint(std::size_t bytes, std::size_t rounded) const {
    auto const n = chunks_.now();
    if (rounded > options_.range_bytes)
      return "the request is larger than range_bytes of virtual_memory (" + format_bytes(options_.range_bytes) +
             "): raise it, or ask for less at a time (with_retry)";
    if (bytes <= max_bytes() && rounded <= max_bytes() - n.mapped && !tenants_.spares(rounded))
      return "what is left of max_bytes of the source is promised to pools (min_bytes): raise it, or ask for less";
    return detail::full_source_hint(n.held, rounded, max_bytes());
  }
  std::string state() const {
    auto const n = chunks_.now();
    return "holds " + format_bytes(n.held) + " in chunks of " + format_bytes(chunk_bytes()) + ", " +
           format_bytes(n.mapped) + " of it mapped" +
           (max_bytes() == 0 ? std::string() : ", at most " + format_bytes(max_bytes()));
  }

  detail::process_exit life_;
  int const device_;
  device_resource plain_;  // with WEIR_NO_CACHING=1, in place of all below
  bool const grows_nothing_ = detail::caching_disabled();
  virtual_memory const options_;
  detail::physical_chunks chunks_;
  std::optional<detail::scrubber> const scrubber_;
  detail::address_ranges ranges_;
  tenants tenants_;
};

inline std::string virtual_memory::problem() const {
  if (std::string what = option::first_problem(*this); !what.empty()) return what;
  auto const too_small = [this](char const* name, std::size_t bytes) {
    return "virtual_memory: " + std::string(name) + " is " + std::to_string(bytes) +
           "; it must be 0 or at least chunk_bytes, which is " + std::to_string(chunk_bytes);
  };
  if (range_bytes != 0 && range_bytes < chunk_bytes) return too_small("range_bytes", range_bytes);
  if (max_bytes != 0 && max_bytes < chunk_bytes) return too_small("max_bytes", max_bytes);
  return {};
}

inline virtual_memory_resource virtual_memory::operator()() const { return virtual_memory_resource(*this); }

}  // namespace weir
