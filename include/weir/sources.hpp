#pragma once
// The sources: resources that get their memory from CUDA or the host.

#include <weir/sources/async.hpp>          // device memory in stream order, from CUDA's memory pools
#include <weir/sources/async_on_host.hpp>  // the same of managed and of pinned memory (toolkit 13)
#include <weir/sources/device.hpp>         // device memory by cudaMalloc
#include <weir/sources/host.hpp>           // ordinary host memory
#include <weir/sources/managed.hpp>        // memory that moves between host and devices
#include <weir/sources/pinned.hpp>         // page-locked host memory
#include <weir/sources/system.hpp>         // memory of malloc, on systems where devices reach it
// Not in here: <weir/sources/virtual_memory.hpp> (pools that grow in place), which includes the driver's header, and
// <weir/sources/callback.hpp> (memory from two functions) and <weir/sources/pool_sharing.hpp> (pools across processes),
// which few need.
