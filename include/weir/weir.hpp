#pragma once
// All of weir that most programs need; includes nothing but the CUDA runtime's headers.
// Not in here: the other adaptors of <weir/adaptors.hpp> and sources of <weir/sources.hpp>, <weir/containers.hpp>,
// <weir/sources/virtual_memory.hpp> (the driver's header), <weir/bridges/thrust.hpp> (Thrust), <weir/bridges/pmr.hpp>
// (std::pmr, whose header takes long to compile), <weir/tools.hpp> (stacks from text), <weir/testing/checked.hpp>.

#include <weir/adaptors/arena.hpp>       // a pool a thread, over one upstream
#include <weir/adaptors/binning.hpp>     // a resource for each range of sizes
#include <weir/adaptors/fixed_size.hpp>  // blocks of one size
#include <weir/adaptors/limit.hpp>       // a budget
#include <weir/adaptors/logging.hpp>     // a CSV file of all that happened
#include <weir/adaptors/pool.hpp>        // keeps memory and hands it out again, in stream order
#include <weir/adaptors/statistics.hpp>  // numbers: current, peak, total
#include <weir/bridges/stl.hpp>          // standard containers
#include <weir/core.hpp>                 // recipes, handles, errors
#include <weir/cuda.hpp>                 // streams, events, devices
#include <weir/sources/async.hpp>        // memory in stream order
#include <weir/sources/device.hpp>       // cudaMalloc
#include <weir/sources/host.hpp>         // malloc
#include <weir/sources/managed.hpp>      // memory that host and devices share
#include <weir/sources/pinned.hpp>       // page-locked host memory
