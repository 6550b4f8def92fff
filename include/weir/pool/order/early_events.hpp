#pragma once
// When events are recorded before somebody asks what is done.

#include <weir/pool/heap/size_class.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// On a stream that lasts an event is recorded when a search asks what is done; the answer goes by the events of
/// earlier searches. Where these are far apart it knows of little, though nearly all may be done: the pool grows,
/// searches are farther apart for that, and it grows again. So where a search found work that was not done, events are
/// recorded between searches too: when half as many frees were made as between the last two, and when half of what
/// everyone may have was used, or half of the rest. Only says when; not thread-safe.
class early_events {
 public:
  /// A search found something that others freed and that is not done.
  void saw_pending() noexcept { are_needed_ = true; }
  /// A search ended. `frees`: so many were made so far; `done_bytes`: that everyone may have now; `lists`: with free
  /// blocks, each of which would get an event.
  void plan(std::uint64_t frees, std::size_t done_bytes, std::size_t lists) noexcept {
    after_ = greater((frees - searched_at_) / 2, after_ / 2);
    searched_at_ = frees;
    bool const are_few = after_ >= (lists + 1) * frees_an_event || done_bytes >= (lists + 1) * bytes_an_event;
    are_planned_ = are_needed_ && are_few;
    due_at_ = frees + after_;
    due_below_ = done_bytes / 2;
  }
  /// True if some are to come; a question less where there are none, as with one stream.
  [[gnu::always_inline]] bool are_planned() const noexcept { return are_planned_; }
  /// True if the next are to be recorded now. For those that are planned.
  bool are_due(std::uint64_t frees, std::size_t done_bytes) const noexcept {
    return frees >= due_at_ || done_bytes < due_below_;
  }
  void recorded(std::size_t done_bytes) noexcept {
    due_at_ = never;
    due_below_ /= 2;
    are_planned_ = done_bytes >= due_below_ && due_below_ != 0;
  }

 private:
  // Between two searches at least, on an average list, so that these events cost no more than a part of a call a free,
  // or next to growing by as much.
  static constexpr std::size_t frees_an_event = 16, bytes_an_event = std::size_t{8} << 20;
  static constexpr std::uint64_t never = ~std::uint64_t{0};

  bool are_needed_ = false, are_planned_ = false;
  std::uint64_t searched_at_ = 0, after_ = 0, due_at_ = never;
  std::size_t due_below_ = 0;
};

}  // namespace weir::detail
