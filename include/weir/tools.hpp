#pragma once
// Tools on top of everything else.

#include <weir/tools/parse.hpp>  // a stack from text
