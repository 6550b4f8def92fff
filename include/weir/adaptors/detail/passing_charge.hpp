#pragma once
// The charge of a request or a free that a budget passes down: what the reserve pays, and what those below are told.

#include <weir/adaptors/detail/limit_below.hpp>
#include <weir/adaptors/detail/paid_ahead.hpp>
#include <weir/adaptors/detail/reserve_account.hpp>

#include <cstddef>

namespace weir::detail {

/// What of a charge has to be charged, or credited, here: the budget above may have paid some of it ahead, or keep it.
struct own_charge {
  /// `budget` is where the request or free has arrived; `p` the block that is freed, or null; `size` what is asked for
  /// or freed.
  own_charge(void const* budget, void const* p, std::size_t size, std::size_t charge) noexcept : block(p), asked(size) {
    paid_ahead const* const told = paid_ahead::find(budget, p, size);
    is_told = told != nullptr;
    if (is_told) ahead = told->bytes() < charge ? told->bytes() : charge;
    bytes = charge - ahead;
  }

  void const* block;
  std::size_t asked;  ///< bytes that are asked for, or freed
  std::size_t ahead = 0;
  std::size_t bytes = 0;  ///< of the charge without what is `ahead`
  bool is_told = false;   ///< by the budget above, which has the account of what captures keep
};

/// What is the same of requests and frees, while they are on their way down: the reserve pays, or gets, a part. The
/// first limit below is told where there is a reserve, or this budget was told itself: then it keeps no account of what
/// captures keep.
class passing_charge {
 protected:
  passing_charge(own_charge const& own, limit_below const& below, reserve_account& reserve, std::size_t part) noexcept
      : own_(own),
        below_(below),
        reserve_(reserve),
        part_(part),
        note_(tells() ? below.layer() : nullptr, own.block, own.asked, own.ahead + part) {}
  ~passing_charge() = default;

  bool tells() const noexcept { return reserve_.bytes() != 0 || own_.is_told; }

  own_charge const& own_;
  limit_below const& below_;
  reserve_account& reserve_;
  std::size_t part_;  // that the reserve pays, or is filled up with

 private:
  paid_ahead note_;
};

/// A request, which is charged here: made before it is passed down, and told how it ended.
class passing_request : passing_charge {
 public:
  passing_request(own_charge const& own, limit_below const& below, reserve_account& reserve) noexcept
      : passing_charge(own, below, reserve, reserve.begin_request(own.bytes)) {}

  /// `again`: of the charge, what was charged already, to the capture whose memory was used again.
  void served(std::size_t again = 0) const noexcept {
    // What it used again needs no reserve; where the rest still needs some, that comes back as more than the reserve.
    std::size_t const spared = again < part_ ? again : part_;
    below_.release(reserve_.end_request(own_.bytes - again, part_ - spared, spared));
    if (tells()) below_.release(again - spared);
  }
  void failed() const noexcept { below_.release(reserve_.undo_request(part_)); }
};

/// A free, which is credited here once it is done.
class passing_free : passing_charge {
 public:
  passing_free(own_charge const& own, limit_below const& below, reserve_account& reserve) noexcept
      : passing_charge(own, below, reserve, reserve.begin_free(own.bytes)) {}

  void done() const noexcept { below_.release(reserve_.end_free(part_)); }
  /// The memory stays, and charged.
  void failed() const noexcept { below_.release(reserve_.undo_free(own_.bytes, part_)); }
};

}  // namespace weir::detail
