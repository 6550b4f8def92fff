#pragma once
// When events are recorded before somebody asks what is done.

#include <weir/pool/heap/size_class.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// On a stream that lasts an event is recorded when a search asks what is done; the answer goes by the events of
/// earlier searches. Where these are far apart it knows of little, though nearly all may be done: the pool grows,
/// searches are farther apart for that, and it grows again. So where a search found work that was not done, events are
/// recorded between searches too: each time that a quarter of what is free was freed, so that no search misses more
/// than that; after twice as much each time that nobody used what is done meanwhile, since then streams have enough of
/// their own. Only says when; not thread-safe.
class early_events {
 public:
  /// A search found something that others freed and that is not done.
  void saw_pending() noexcept { are_needed_ = true; }
  /// So much was freed on a stream.
  [[gnu::always_inline]] void freed(std::size_t bytes) noexcept { freed_ += bytes; }
  /// A search ended. `frees`: so many were made so far; `free_bytes`: that the pool has, done or not; `done_bytes`:
  /// that everyone may have now; `events`: so many are recorded at a time.
  void plan(std::uint64_t frees, std::size_t free_bytes, std::size_t done_bytes, std::size_t events) noexcept {
    events_ = events + 1;
    share_ = free_bytes / 4;
    begin(share_, frees, done_bytes);
    if (!are_needed_) plan_none();
  }
  /// None is recorded before the next plan.
  void plan_none() noexcept { looks_at_ = never; }
  /// True if `are_due` has to be asked.
  [[gnu::always_inline]] bool may_be_due() const noexcept { return freed_ >= looks_at_; }
  /// True if events are to be recorded now. So few frees that they would cost more than a part of a call each, or than
  /// growing by as much, are not worth it.
  bool are_due(std::uint64_t frees, std::size_t done_bytes) noexcept {
    if (!may_be_due()) return false;
    looks_at_ = freed_ + share_;
    if (!was_used(done_bytes) && freed_ < due_at_) return false;
    bool const are_many = frees - began_at_ >= events_ * frees_an_event || freed_ >= events_ * bytes_an_event;
    if (!are_many) looks_at_ = freed_;
    return are_many;
  }
  void recorded(std::uint64_t frees, std::size_t done_bytes) noexcept {
    begin(was_used(done_bytes) ? share_ : 2 * due_at_, frees, done_bytes);
  }

 private:
  static constexpr std::size_t frees_an_event = 16, bytes_an_event = std::size_t{8} << 20;
  static constexpr std::size_t never = ~std::size_t{0};

  bool was_used(std::size_t done_bytes) const noexcept { return done_bytes < done_ - done_ / 4; }
  void begin(std::size_t due_at, std::uint64_t frees, std::size_t done_bytes) noexcept {
    due_at_ = due_at;
    looks_at_ = share_;
    began_at_ = frees;
    done_ = done_bytes;
    freed_ = 0;
  }

  bool are_needed_ = false;
  std::size_t freed_ = 0, looks_at_ = never, due_at_ = 0;  // since the last events or search
  std::size_t share_ = 0, done_ = 0, events_ = 1;
  std::uint64_t began_at_ = 0;
};

}  // namespace weir::detail
