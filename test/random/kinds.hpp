#pragma once
// What a step of a random program can be.

#include <cstdint>

namespace random_program {

/// What a step does, and how many of a thousand do it.
enum kind : std::uint32_t {
  allocate_block,
  allocate_in_host_order,
  free_where_it_is,
  free_elsewhere,
  free_in_host_order,
  pass_to_other_stream,
  write_block,
  read_block,
  read_on_other_stream,
  wait_for_stream,
  query_stream,
  wait_for_device,
  end_stream,
  starve_stream,
  trim_stack,
  synchronize_stack,
  fail_in_allocate,  // one of the CUDA calls that the stack makes fails
  fail_in_free,
  write_by_host,
  describe_stack,
  begin_capture,  // from here on: not in every program
  fork_capture,
  use_in_capture,
  end_capture,
  launch_graph,
  drop_graph,
  fail_twice,         // two of the CUDA calls fail
  sticky_error,       // from some call on all fail: the program can but free and end
  free_after_others,  // others have read it, and the stream that frees it does not come after them
  mark_capture,       // streams may fork from here later on; only in programs with captures, as what follows
  leave_capture,      // a stream that joined is destroyed, and the next one may have its handle
  break_capture,
  kinds
};
inline constexpr unsigned weights[kinds] = {280, 20, 220, 40, 20, 80, 140, 80, 40, 20, 20, 5, 15, 8,  8,  4,
                                            10,  10, 10,  1,  12, 16, 60,  6,  20, 12, 20, 1, 40, 10, 20, 2};
inline constexpr char const* names[kinds] = {"allocate_block",       "allocate_in_host_order",
                                             "free_where_it_is",     "free_elsewhere",
                                             "free_in_host_order",   "pass_to_other_stream",
                                             "write_block",          "read_block",
                                             "read_on_other_stream", "wait_for_stream",
                                             "query_stream",         "wait_for_device",
                                             "end_stream",           "starve_stream",
                                             "trim_stack",           "synchronize_stack",
                                             "fail_in_allocate",     "fail_in_free",
                                             "write_by_host",        "describe_stack",
                                             "begin_capture",        "fork_capture",
                                             "use_in_capture",       "end_capture",
                                             "launch_graph",         "drop_graph",
                                             "fail_twice",           "sticky_error",
                                             "free_after_others",    "mark_capture",
                                             "leave_capture",        "break_capture"};

/// One step: plain numbers that mean something whatever the state is, so that any steps may be left out.
struct step {
  std::uint32_t what, x, y, z;  // `what`: a kind
};

}  // namespace random_program
