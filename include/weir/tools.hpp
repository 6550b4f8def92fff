#pragma once
// Tools on top of everything else.

#include <weir/tools/merged_trace.hpp>            // one trace out of several, of stacks that share a pool
#include <weir/tools/parse.hpp>                   // a stack from text
#include <weir/tools/report_page.hpp>             // a page to look at: what happened to memory over time
#include <weir/tools/snapshot.hpp>                // where the memory of a stack is just now
#include <weir/tools/stack_from_environment.hpp>  // a stack that the environment may name
#include <weir/tools/summary.hpp>                 // the numbers of all layers: table, JSON, Prometheus
#include <weir/tools/trace_of.hpp>                // what the trace layers of a stack recorded
#include <weir/tools/with_retry.hpp>              // work in batches that get smaller when memory runs out
