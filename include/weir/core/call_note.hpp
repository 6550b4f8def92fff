#pragma once
// What the last call on this thread did besides returning: for layers above that keep accounts.

#include <weir/cuda/capture.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// Works like `errno`: written only by the layer that knows, on cold paths; who wants to know clears it before a call
/// downwards and reads it after. It passes through layers that do not know of it, and through erased ones.
struct call_note {
  enum kind : unsigned char {
    plain,
    misuse,    ///< a `deallocate` was reported as wrong; the memory was kept
    captured,  ///< `allocate` served a request of a stream capture, `deallocate` kept the block for its graph
    kept,      ///< a `deallocate` was right, but the memory is kept for good: nobody gets it again
  };
  /// All of a request, whatever a layer above takes that to be: more than its pool does, where a second stack would.
  static constexpr std::size_t all = ~std::size_t{0};

  kind what = plain;
  std::uint64_t capture = 0;  ///< if `captured`: the capture's id
  std::size_t reused = 0;     ///< and how many bytes `allocate` took of what was freed in the same capture, or `all`

  void clear() noexcept { what = plain; }
};
[[gnu::visibility("default")]] inline constinit thread_local call_note last_call{};

/// For a `deallocate` that must not give the memory back, since a graph, or work that nobody can wait for, may use it.
inline void note_kept() noexcept { last_call.what = call_note::kept; }

/// While it lives, this thread calls others for a layer's own sake, as a pool that gives a segment back: what is noted
/// of that is not what became of the caller's block, whose note is as before when this ends.
class calls_of_its_own {
 public:
  calls_of_its_own() noexcept = default;
  ~calls_of_its_own() { last_call = before_; }
  calls_of_its_own(calls_of_its_own const&) = delete;
  calls_of_its_own& operator=(calls_of_its_own const&) = delete;

 private:
  call_note before_ = last_call;
};

/// While it lives, a pool serves this thread's requests on captured streams only from what the same capture freed, and
/// takes no more from its upstream for them; weir's sources refuse them. For a budget that has nothing left. Other
/// requests are not affected.
class captured_memory_only {
 public:
  captured_memory_only() noexcept { ++depth_; }
  ~captured_memory_only() { --depth_; }
  captured_memory_only(captured_memory_only const&) = delete;
  captured_memory_only& operator=(captured_memory_only const&) = delete;

  static bool is_set() noexcept { return depth_ != 0; }

 private:
  friend class in_program_code;
  [[gnu::visibility("default")]] inline static constinit thread_local unsigned depth_ = 0;
};

/// While it lives, layers below refuse this thread's requests at once rather than wait for others (`wait_for_memory`)
/// or have memory given up (`on_failure`, `spill`): who asks can do with less, and asks for that next.
class can_do_with_less {
 public:
  explicit can_do_with_less(bool is_so) noexcept : before_(is_set_) { is_set_ = is_set_ || is_so; }
  ~can_do_with_less() { is_set_ = before_; }
  can_do_with_less(can_do_with_less const&) = delete;
  can_do_with_less& operator=(can_do_with_less const&) = delete;

  static bool is_set() noexcept { return is_set_; }

 private:
  friend class in_program_code;
  [[gnu::visibility("default")]] inline static constinit thread_local bool is_set_ = false;

  bool const before_;
};

/// While it lives, this thread is in a function of the program's that a layer called for its own sake: what that asks
/// for is none of the request that it was called in.
class in_program_code {
 public:
  in_program_code() noexcept
      : captured_only_(captured_memory_only::depth_),
        for_capture_(asking_for_capture::depth_),
        with_less_(can_do_with_less::is_set_) {
    captured_memory_only::depth_ = asking_for_capture::depth_ = 0;
    can_do_with_less::is_set_ = false;
  }
  ~in_program_code() {
    captured_memory_only::depth_ = captured_only_;
    asking_for_capture::depth_ = for_capture_;
    can_do_with_less::is_set_ = with_less_;
  }
  in_program_code(in_program_code const&) = delete;
  in_program_code& operator=(in_program_code const&) = delete;

 private:
  unsigned captured_only_, for_capture_;
  bool with_less_;
};

}  // namespace weir::detail
