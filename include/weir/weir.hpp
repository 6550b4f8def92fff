#pragma once
// All of weir that most programs need; includes nothing but the CUDA runtime's headers.
// Not in here: <weir/sources/virtual_memory.hpp> (the driver's header), <weir/adaptors/spillable.hpp> (contents that go
// to the host), <weir/bridges/thrust.hpp> (Thrust), <weir/tools.hpp> (stacks from text), <weir/testing/checked.hpp>.

#include <weir/adaptors.hpp>     // pool, arena, limit, statistics, logging ...
#include <weir/bridges/pmr.hpp>  // std::pmr
#include <weir/bridges/stl.hpp>  // standard containers
#include <weir/core.hpp>         // recipes, handles, errors
#include <weir/cuda.hpp>         // streams, events, devices
#include <weir/sources.hpp>      // async, device, managed, pinned, host
