#pragma once
// The thin layer on the CUDA runtime.

#include <weir/cuda/capture.hpp>      // streams that are being captured into graphs
#include <weir/cuda/device.hpp>       // the current device, and how much memory it has
#include <weir/cuda/error.hpp>        // cuda_error
#include <weir/cuda/event.hpp>        // a point in a stream's work
#include <weir/cuda/stream.hpp>       // a stream whose handle lasts
#include <weir/cuda/stream_list.hpp>  // the streams that a call names
#include <weir/cuda/stream_pool.hpp>  // some streams that many share by turns
#include <weir/cuda/stream_ref.hpp>   // the order that memory is used in
