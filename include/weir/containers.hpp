#pragma once
// Memory with an owner: what programs keep their data in, on a stream.

#include <weir/containers/any_handle.hpp>  // a handle to any stack, owned or not
#include <weir/containers/buffer.hpp>      // bytes
#include <weir/containers/scalar.hpp>      // one value
#include <weir/containers/vector.hpp>      // elements
