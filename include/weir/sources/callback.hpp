#pragma once
// Source: memory from two functions of the user's own.

#include <weir/core/bytes.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/error.hpp>
#include <weir/core/options.hpp>
#include <weir/core/printable.hpp>
#include <weir/core/recipe.hpp>
#include <weir/core/report.hpp>
#include <weir/cuda/capture.hpp>
#include <weir/cuda/device.hpp>
#include <weir/cuda/memory.hpp>
#include <weir/cuda/process_exit.hpp>
#include <weir/cuda/stream_ref.hpp>
#include <weir/sources/source_device.hpp>
#include <weir/support/function.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>

namespace weir {

template <bool Device, bool Host>
class callback_resource;

/// What the functions of a `callback` know of streams.
enum class callback_order {
  stream,  ///< they work in the order of the stream that they are given, as `cudaMallocAsync` does
  host,    ///< they take and give memory at once, as `cudaMalloc` and `malloc` do, whatever the stream
};

/// A source whose memory comes from two functions: an allocator of another library, or a test's. `Device` and `Host`
/// say who can reach the memory; nobody can check that, so take the alias that is true.
///
///     auto memory = weir::make(weir::callback{.allocate = [](weir::stream_ref stream, std::size_t bytes, std::size_t)
///     {
///                                               return theirs.take(stream.get(), bytes);
///                                             },
///                                             .deallocate = [](weir::stream_ref stream, void* p, std::size_t bytes,
///                                                              std::size_t) { theirs.give(stream.get(), p, bytes); }}
///                                                              |
///                              weir::pool{});
///
/// Copies of the recipe share the two functions, and so do the resources that it makes. Any thread may call them, and
/// several at once. When not to use it: for what a class with the same two functions says better; any such class is a
/// resource (docs/concepts.md).
template <bool Device, bool Host>
struct basic_callback {
  /// Returns `bytes` aligned to `alignment`, more than 0 of them, or null if there are none; or throws.
  detail::function<void*(stream_ref stream, std::size_t bytes, std::size_t alignment)> allocate = {};
  /// Takes back what `allocate` returned, with the same numbers. Should not throw.
  detail::function<void(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment)> deallocate = {};
  /// Memory for the host only is that of the host's order, unless this says otherwise.
  callback_order order = Device ? callback_order::stream : callback_order::host;
  int device = -1;        ///< whose memory it is; -1: of the device current at `make`. Not for memory of the host only
  std::string name = {};  ///< whose functions these are, for reports: `theirs` makes it `theirs: callback`

  static constexpr char const* layer_name = "callback";
  template <class F>
  static constexpr void for_each_option(F f) {
    f(option::one_of("order", "order", &basic_callback::order, "stream", callback_order::stream, "host",
                     callback_order::host));
    f(detail::device_option<basic_callback>());
    f(option::text("name", "name", &basic_callback::name));
  }

  /// Empty if these options are valid, else what is wrong with them.
  std::string problem() const {
    if (!allocate)
      return "callback: allocate is empty; give it a function (stream, bytes, alignment) that returns void*";
    if (!deallocate) return "callback: deallocate is empty; give it a function (stream, pointer, bytes, alignment)";
    if (!Device && device != -1)
      return "callback: device is " + std::to_string(device) +
             "; memory that no device reaches belongs to none, leave it";
    return option::first_problem(*this);
  }
  bool valid() const { return problem().empty(); }

  callback_resource<Device, Host> operator()() const {
    return callback_resource<Device, Host>(detail::require_valid(*this));
  }
};

using callback = basic_callback<true, false>;             ///< memory for kernels
using host_callback = basic_callback<false, true>;        ///< memory for the host
using host_device_callback = basic_callback<true, true>;  ///< pinned or managed memory: for both

/// What `callback` makes. As thread-safe as the two functions.
///
/// What they return is checked: null is out of memory, a pointer that is not aligned as asked is given back and an
/// error. In `host_order`, functions that work in stream order are called on a stream of this source's own, which is
/// waited for. Before a free on a stream, functions that know no streams wait for it. While they run, the device is
/// current, and what functions that know no streams call of CUDA breaks no capture. After `main`, and in a forked
/// child, they are not called for memory of a device.
template <bool Device, bool Host>
class callback_resource {
 public:
  static constexpr bool device_accessible = Device;
  static constexpr bool host_accessible = Host;
  static constexpr bool host_ordered = true;
  static constexpr char const* layer_name = "callback";

  explicit callback_resource(basic_callback<Device, Host> const& options)
      : options_(options),
        label_(options.name.empty() ? "callback" : printable(options.name) + ": callback"),
        device_(Device ? detail::chosen_device("callback", options.device) : -1) {
    if (options.order == callback_order::stream) own_stream_.emplace(Device ? device_ : current_device());
  }
  callback_resource(callback_resource const&) = delete;  // weir: neither copied nor moved; pass weir::share(memory)
  callback_resource& operator=(callback_resource const&) = delete;

  /// Throws `out_of_memory` for null and for a `std::bad_alloc` of the function's, `std::logic_error` for a pointer
  /// that is not aligned, `std::invalid_argument` for an alignment beyond 2 MiB, and whatever else the function throws.
  void* allocate(stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    if (bytes == 0) return nullptr;
    detail::require_alignment(alignment);
    if (detail::wants_captured_memory(stream)) refuse(stream, bytes, "only captured memory was wanted");
    if (bytes > most_bytes) refuse(stream, bytes, "more than any address space has");
    if constexpr (Device) {
      if (life_.is_exiting()) detail::check(detail::process_exit::error, "callback");
      life_.settle();
    }
    if (options_.order == callback_order::host) return take(host_order, stream, bytes, alignment);
    return stream.is_host_order() ? take_for_all(bytes, alignment) : take(stream, stream, bytes, alignment);
  }

  void deallocate(stream_ref stream, void* p, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
    if (p == nullptr || (Device && life_.is_exiting())) return;
    if (options_.order == callback_order::stream)
      return give(stream.is_host_order() ? stream_ref(own_stream_->get()) : stream, p, bytes, alignment);
    // Where the wait fails the memory is kept: work that was not seen to end may still write it.
    if (!stream.is_host_order() && (life_.is_exiting() || !detail::wait_for(stream, device_)))
      return detail::note_kept();
    give(host_order, p, bytes, alignment);
  }

  /// The device that was current when this was made, or that the options named; -1 for memory of the host only.
  int device() const noexcept { return device_; }
  /// Whose functions these are; empty: nobody said.
  std::string const& name() const noexcept { return options_.name; }

  /// The room in which an aligned address lies counts, as in other sources: the functions may need it.
  std::size_t taken(std::size_t bytes, std::size_t alignment) const noexcept {
    return padded_or_zero(bytes, alignment);
  }

  void describe(report& out) const { out.below(label_, "memory of the user's own functions"); }

 private:
  static constexpr std::size_t most_bytes = std::numeric_limits<std::ptrdiff_t>::max();

  /// Memory that is ready for everyone on return, from functions in stream order.
  void* take_for_all(std::size_t bytes, std::size_t alignment) {
    stream_ref const own = own_stream_->get();
    void* const p = take(own, host_order, bytes, alignment);
    cudaError_t const code = detail::relaxed([own] { return cudaStreamSynchronize(own.get()); });
    if (code != cudaSuccess) give(own, p, bytes, alignment);
    detail::check(code, "cudaStreamSynchronize");
    return p;
  }
  /// Asks the function on stream `on`. `asked` is the stream that the caller named.
  void* take(stream_ref on, stream_ref asked, std::size_t bytes, std::size_t alignment) {
    void* p = nullptr;
    try {
      p = call<device_guard>([&] { return options_.allocate(on, bytes, alignment); });
    } catch (out_of_memory const&) {
      throw;  // with a report of its own
    } catch (std::bad_alloc const& error) {
      refuse(asked, bytes, std::string("allocate threw ") + error.what());
    }
    if (p == nullptr) refuse(asked, bytes, "allocate returned null");
    if ((reinterpret_cast<std::uintptr_t>(p) & (alignment - 1)) != 0) refuse_misaligned(on, p, bytes, alignment);
    return p;
  }
  void give(stream_ref on, void* p, std::size_t bytes, std::size_t alignment) noexcept {
    std::uintptr_t const address = reinterpret_cast<std::uintptr_t>(p);
    try {
      call<detail::device_switch>([&] { options_.deallocate(on, p, bytes, alignment); });
    } catch (std::exception const& error) {
      report_throw(address, bytes, error.what());
    } catch (...) {
      report_throw(address, bytes, "something that is no std::exception");
    }
  }
  /// Calls one of the functions. Those that know no streams may call `cudaMalloc` and `cudaFree`, which would break a
  /// capture.
  template <class Guard, class F>
  auto call(F f) const {
    if constexpr (Device) {
      Guard const on_device(device_);
      detail::relaxed_capture calls;
      if (options_.order == callback_order::host) calls.enter();
      return f();
    } else {
      return f();
    }
  }

  [[noreturn, gnu::noinline, gnu::cold]] void refuse(stream_ref stream, std::size_t bytes, std::string const& why) {
    report own;
    own.below(label_, printable(why));
    own.hint(
        detail::hint_for(bytes, own,
                         "the functions do not say of what they have no more: free something, ask for less, or let "
                         "a layer give way (on_failure, fallback)"));
    throw out_of_memory({bytes, round_up_or_zero(bytes, default_alignment), stream, device_}, label_, own);
  }
  [[noreturn, gnu::noinline, gnu::cold]] void refuse_misaligned(stream_ref on, void* p, std::size_t bytes,
                                                                std::size_t alignment) {
    std::string const address = detail::hex(p);
    give(on, p, bytes, alignment);
    throw std::logic_error("weir: " + label_ + ": allocate returned " + address + " for " + std::to_string(bytes) +
                           " B aligned to " + std::to_string(alignment) +
                           ", which is not so aligned; it was given back. Let the function honour the alignment that "
                           "it is given (by default 256)");
  }
  [[gnu::noinline, gnu::cold]] void report_throw(std::uintptr_t address, std::size_t bytes,
                                                 char const* what) const noexcept {
    detail::report_misuse("weir: " + label_ + ": deallocate of " + detail::hex(address) + " (" + std::to_string(bytes) +
                          " B) threw: " + printable(what) +
                          "; a deallocate must not throw, and whether the memory went back is not known");
  }

  basic_callback<Device, Host> options_;
  std::string label_;
  int device_;
  std::optional<detail::internal_stream> own_stream_;  // where the functions work in stream order
  detail::process_exit life_;
};

}  // namespace weir
