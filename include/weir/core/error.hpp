#pragma once
// The errors that people see: out of memory with its reasons, and misuse that must not go on.

#include <weir/core/bytes.hpp>
#include <weir/core/call_note.hpp>
#include <weir/core/report.hpp>
#include <weir/core/tag.hpp>
#include <weir/cuda/error.hpp>
#include <weir/cuda/stream_ref.hpp>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>

namespace weir {
namespace detail {

/// A pointer for a message.
inline std::string hex(void const* p) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", p);
  return text;
}
/// The same for the address of memory that may be gone: a pointer to such may not even be looked at.
inline std::string hex(std::uintptr_t address) { return hex(reinterpret_cast<void const*>(address)); }

/// A stream for a message.
inline std::string stream_name(stream_ref stream) {
  if (stream.is_host_order()) return "the host's order";
  if (stream.get() == cudaStreamLegacy) return "the legacy default stream";
  if (stream.get() == cudaStreamPerThread) return "this thread's default stream";
  return "stream " + hex(stream.get());
}

}  // namespace detail

/// What was asked for when memory ran out.
struct memory_request {
  std::size_t bytes = 0;    ///< as the caller wrote it
  std::size_t rounded = 0;  ///< as the refusing layer counts it; 0 where rounding up would wrap
  stream_ref stream;
  int device = -1;  ///< whose memory was asked for; -1: of no device
};

/// The memory cannot be had. The stack is as it was before the call and usable; a smaller request may succeed.
/// `what()` is the report: the request with the thread's tag, who refused it, a line from every layer it passed, and
/// what to do (docs/out-of-memory.md reads one line by line).
class __attribute__((visibility("default"))) out_of_memory : public std::bad_alloc {
 public:
  /// `refused_by` is the name of a layer; `state` describes that layer and those below.
  out_of_memory(memory_request request, std::string const& refused_by, report const& state)
      : request_(request),
        refused_by_(refused_by),
        chain_(state.chain()),
        lines_(state.lines()),
        hint_(state.hint()),
        main_holder_(state.main_holder()),
        text_("") {
    compose();
  }

  std::size_t bytes() const noexcept { return request_.bytes; }
  memory_request const& request() const noexcept { return request_; }
  /// The layer that refused: `pool`, `limit`, or `search: limit` where it has a name. Valid as long as this object.
  char const* refused_by() const noexcept { return refused_by_.what(); }
  char const* what() const noexcept override { return text_.what(); }
  /// What to do, as the last line of `what()` says it; empty where the refusing layer does not know.
  char const* hint() const noexcept { return hint_.what(); }
  /// The tag that the thread was in.
  tag_name tag() const noexcept { return tag_; }

  /// A layer that asked its upstream for more than it was asked for says what that was. Never throws.
  void asked_for(std::size_t bytes) noexcept try {
    request_.bytes = bytes;
    compose();
  } catch (...) {
  }

  /// A layer that lets the error pass upwards adds itself to the report. Never throws: a report may be incomplete.
  template <class Layer>
  void passed_through(Layer const& layer) noexcept try {
    report own;
    layer.describe_layer(own);
    chain_ = std::runtime_error(own.chain() + (*chain_.what() == '\0' ? "" : " > ") + chain_.what());
    lines_ = std::runtime_error(own.lines() + lines_.what());
    if (*hint_.what() == '\0') hint_ = std::runtime_error(own.hint());
    if (*main_holder_.what() == '\0') main_holder_ = std::runtime_error(own.main_holder());
    compose();
  } catch (...) {
  }

 private:
  void compose() {
    std::string text =
        "weir: out of memory: " + format_bytes(request_.bytes) + " (" + std::to_string(request_.bytes) + " B, ";
    text += request_.rounded == 0 ? "too large to round)" : "rounded to " + std::to_string(request_.rounded) + " B)";
    text += " on " + detail::stream_name(request_.stream);
    if (request_.device >= 0) text += ", device " + std::to_string(request_.device);
    if (tag_) text += ", tag " + tag_.printable();
    text += std::string("\n  refused by ") + refused_by_.what() + "; chain: " + chain_.what() + "\n" + lines_.what();
    std::string const holder = main_holder_.what();
    if (*hint_.what() != '\0')
      text += std::string("  hint       ") + hint_.what() + (holder.empty() ? "" : "; " + holder);
    else
      text.pop_back();
    text_ = std::runtime_error(text);
  }

  memory_request request_;
  tag_name tag_ = current_tag();
  // Texts are runtime_errors because those copy without throwing, as an exception must.
  std::runtime_error refused_by_, chain_, lines_, hint_, main_holder_, text_;
};

/// Called with one line of text when a `deallocate` was wrong (double free, foreign pointer, wrong size or alignment).
/// The default prints it to stderr and aborts. If a handler returns, the bad call is ignored and the memory kept.
using misuse_handler = void (*)(char const* what) noexcept;

namespace detail {

inline void print_and_abort(char const* what) noexcept {
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}
// By the compilers' own atomics: <atomic> takes longer to compile than all of this header.
[[gnu::visibility("default")]] inline misuse_handler current_misuse_handler = &print_and_abort;

inline void report_misuse(std::string const& what) noexcept {
  __atomic_load_n(&current_misuse_handler, __ATOMIC_ACQUIRE)(what.c_str());
  last_call.what = call_note::misuse;  // layers above that counted the block take that back; the handler may use others
}

}  // namespace detail

/// Replaces the handler for the whole process and returns the one before; thread-safe.
inline misuse_handler set_misuse_handler(misuse_handler handler) noexcept {
  if (handler == nullptr) handler = &detail::print_and_abort;
  return __atomic_exchange_n(&detail::current_misuse_handler, handler, __ATOMIC_ACQ_REL);
}

namespace detail {

[[noreturn, gnu::noinline, gnu::cold]] inline void refuse_alignment(std::size_t alignment) {
  throw std::invalid_argument("weir: an alignment of " + std::to_string(alignment) +
                              " B was asked for; it must be a power of two from 1 to 2097152 (2 MiB)");
}
/// Every resource refuses an alignment it cannot honour with the same words.
inline void require_alignment(std::size_t alignment) {
  if (is_valid_alignment(alignment)) [[likely]]
    return;
  refuse_alignment(alignment);
}

/// What a layer that refused `bytes` says to do: its own `hint`, but for a size that no machine has, or not the device
/// that `state` says all memory is of.
inline std::string hint_for(std::size_t bytes, report const& state, std::string const& hint) {
  constexpr std::size_t most = std::size_t{1} << 47;
  if (bytes > most) return "no machine has as much: look where the size comes from, it may have gone below zero";
  if (!state.exceeds_device(bytes)) return hint;
  std::string const larger = "larger than all memory of device " + std::to_string(state.device()) + " (" +
                             format_bytes(state.device_bytes()) + "): ";
  if (bytes <= state.device_bytes())
    return "the request is, in whole chunks of " + format_bytes(state.piece_bytes()) + ", " + larger +
           "take a smaller chunk_bytes";
  return "the request (" + format_bytes(bytes) + ") is " + larger +
         "ask for less at a time (with_retry), or take memory that may be elsewhere (managed, or fallback to it)";
}

/// Options are checked when a resource is made. `problem()` is empty for valid ones.
template <class Options>
Options const& require_valid(Options const& options) {
  if (std::string const what = options.problem(); !what.empty()) throw std::invalid_argument("weir: " + what);
  return options;
}

}  // namespace detail
}  // namespace weir
