#pragma once
// Traces of allocations and frees, read from files.

#include <weir/tools/log_reader.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace bench {

/// What a program asked for, in order. Streams and threads are numbered by first appearance.
struct trace {
  struct event {
    std::uint32_t block;   ///< which allocation, counted from 0
    std::uint32_t stream;  ///< where this happens
    std::uint32_t thread;
    bool allocates;
  };
  std::string name;
  std::vector<event> events;
  std::vector<std::size_t> sizes;  ///< bytes, by block
  std::size_t streams = 1;
  std::size_t threads = 1;

  /// The most bytes live at once.
  std::size_t peak() const;
};

using weir::damaged_trace;

/// The most bytes of a trace that are read unless a caller says otherwise. A gzip file can unpack to a thousand times
/// its size, and reading can take six times as much memory as that.
inline constexpr std::size_t most_trace_bytes = std::size_t{256} << 20;

/// Reads RMM's log format (`Thread,Time,Action,Pointer,Size,Stream`, and weir's with a `Tag` behind), lifetimes
/// (`id,lower,upper,size`, half-open, in any unit of time), or a memory snapshot of PyTorch (a pickle), which holds a
/// trace for each device; the beginning says which. `-` is the standard input; gzip-ed or not. Throws `damaged_trace`
/// at the first thing that is wrong, `std::runtime_error` if the file cannot be read or has, unpacked, more than
/// `max_bytes`. A snapshot may hold one value for every 16 of them. Failed allocations in a log are skipped; blocks
/// live at the end stay live. Names of traces are safe to print.
std::vector<trace> read_traces(std::string const& path, std::size_t max_bytes = most_trace_bytes);

/// Many runs of two traces that differ in sizes only, each run at a random place between them, in `[0, 1]`; what one
/// run leaves live is freed before the next. Throws `std::runtime_error` if the traces are not alike.
trace interpolate(trace const& a, trace const& b, std::size_t runs, std::uint64_t seed);

}  // namespace bench
