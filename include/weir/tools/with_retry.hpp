#pragma once
// Work in batches that get smaller when memory runs out.

#include <weir/core/bytes.hpp>
#include <weir/core/error.hpp>
#include <weir/core/layers.hpp>

#include <cstddef>
#include <new>
#include <stdexcept>
#include <string>

namespace weir {

/// How `with_retry` cuts its work. Counts are of items, whatever an item is.
struct retry_options {
  std::size_t first_batch = 0;  ///< how many items to begin with; 0: all
  std::size_t min_batch = 1;    ///< a batch of this many or fewer that runs out of memory ends the work
};

/// What `with_retry` did.
struct retry_result {
  std::size_t items = 0;    ///< done
  std::size_t calls = 0;    ///< that succeeded
  std::size_t refused = 0;  ///< calls that ran out of memory
  std::size_t batch = 0;    ///< the size at which it ended

  /// `1000 items in 8 batches, of 125 at last; 3 ran out of memory`
  template <class = void>  // so that only those pay for compiling it who use it
  std::string text() const {
    return std::to_string(items) + " items in " + std::to_string(calls) + " batches, of " + std::to_string(batch) +
           " at last; " + std::to_string(refused) + " ran out of memory";
  }
};

namespace detail {

/// `release()` is called between a refused batch and the smaller one.
template <class F, class Release>
retry_result run_batches(std::size_t items, F& f, retry_options const& options, Release release) {
  if (options.min_batch == 0) throw std::invalid_argument("weir: with_retry: min_batch is 0; it must be at least 1");
  retry_result done{.batch = options.first_batch == 0 || options.first_batch > items ? items : options.first_batch};
  while (done.items < items) {
    std::size_t const left = items - done.items, count = done.batch < left ? done.batch : left;
    try {
      f(done.items, count);
      done.items += count;
      ++done.calls;
      continue;
    } catch (std::bad_alloc const&) {
      ++done.refused;
      if (count <= options.min_batch) throw;
    }
    release();
    done.batch = count / 2 > options.min_batch ? count / 2 : options.min_batch;
  }
  return done;
}

}  // namespace detail

/// Calls `f(first, count)` for all of `items` items, batch after batch. Where `f` throws `out_of_memory` or another
/// `std::bad_alloc`, as RMM's and Thrust's errors are, the batch is halved and tried again from the same first item,
/// down to `min_batch`; the rest goes on with the smaller batches. Between the two, when `f` has freed what it held,
/// `memory` (a stack, or any handle to one) gives back what is idle
/// (`synchronize`, which waits for work on freed memory, then `trim`), so that pieces can be cut anew.
///
///     auto const did = weir::with_retry(memory, images.size(), [&](std::size_t first, std::size_t count) { ... });
///
/// Returns what it did. Throws that error of a batch of `min_batch` items or fewer, whatever else `f` throws,
/// and `std::invalid_argument` for a `min_batch` of 0: what was done before stays done. Any thread; `f` runs on the
/// caller's. When not to use it: for work that cannot be cut, or whose failed calls leave something behind.
template <detail::changeable Memory, class F>
retry_result with_retry(Memory&& memory, std::size_t items, F f, retry_options const& options = {}) {
  return detail::run_batches(items, f, options, [&] {
    weir::synchronize(memory);
    weir::trim(memory);
  });
}

/// The same where memory comes from several stacks, or the one that it comes from is not at hand: nothing is trimmed.
template <class F>
retry_result with_retry(std::size_t items, F f, retry_options const& options = {}) {
  return detail::run_batches(items, f, options, [] {});
}

}  // namespace weir
