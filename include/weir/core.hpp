#pragma once
// What every resource is made of and used through.

#include <weir/core/any_ref.hpp>       // a reference to any stack
#include <weir/core/any_resource.hpp>  // a stack behind one type, shared by its copies
#include <weir/core/bytes.hpp>         // 16_GiB, and sizes as people read them
#include <weir/core/error.hpp>         // out_of_memory, and what happens to misuse
#include <weir/core/growable.hpp>      // memory that is put behind addresses chunk by chunk
#include <weir/core/handle.hpp>        // resources that are values
#include <weir/core/layers.hpp>        // trim, synchronize, release_captured: of a whole stack
#include <weir/core/numbers.hpp>       // what each layer knows; layers and limits by name
#include <weir/core/recipe.hpp>        // source | adaptor | adaptor, make, find
#include <weir/core/report.hpp>        // what a stack says about itself
#include <weir/core/resource.hpp>      // the concept, and the facts about memory
#include <weir/core/resource_ref.hpp>  // share
#include <weir/core/tag.hpp>           // names on allocations
#include <weir/core/tenants.hpp>       // several pools on one growable resource
