#pragma once
// All of weir that needs nothing but the CUDA runtime's headers.
// Not in here, because it includes Thrust: <weir/bridges/thrust.hpp>.

#include <weir/adaptors.hpp>     // pool, limit, statistics, logging
#include <weir/bridges/pmr.hpp>  // std::pmr
#include <weir/bridges/stl.hpp>  // standard containers
#include <weir/core.hpp>         // recipes, handles, errors
#include <weir/cuda.hpp>         // streams, events, devices
#include <weir/sources.hpp>      // async, device, managed, pinned, host
