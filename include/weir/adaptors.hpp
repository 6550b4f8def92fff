#pragma once
// Everything that stands on another resource.

#include <weir/adaptors/aligned.hpp>          // a larger alignment, from a size on
#include <weir/adaptors/arena.hpp>            // a pool a thread, over one upstream
#include <weir/adaptors/binning.hpp>          // a resource for each range of sizes
#include <weir/adaptors/fallback.hpp>         // a second stack that serves what the first refuses
#include <weir/adaptors/fixed_size.hpp>       // blocks of one size
#include <weir/adaptors/limit.hpp>            // a budget
#include <weir/adaptors/logging.hpp>          // a CSV file of all that happened
#include <weir/adaptors/on_failure.hpp>       // caches that give back before a request is refused
#include <weir/adaptors/pool.hpp>             // keeps memory and hands it out again, in stream order
#include <weir/adaptors/prefetch.hpp>         // managed memory where it will be used
#include <weir/adaptors/scrub.hpp>            // zeros in place of what others left
#include <weir/adaptors/spillable.hpp>        // contents that go to the host before a request is refused
#include <weir/adaptors/statistics.hpp>       // numbers: current, peak, total
#include <weir/adaptors/trace.hpp>            // the latest events, for files and pages that show them
#include <weir/adaptors/tracking.hpp>         // who holds each live block; leaks and wrong frees
#include <weir/adaptors/wait_for_memory.hpp>  // waits for another thread to free something
