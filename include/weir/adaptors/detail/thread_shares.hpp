#pragma once
// What an account lends to threads, so that they count without its lock.

#include <weir/adaptors/detail/amounts.hpp>
#include <weir/support/biased_lock.hpp>

#include <cstdint>

namespace weir::detail {

/// A small number for each thread, in the order in which they first ask.
inline unsigned thread_number() noexcept {
  static constinit unsigned threads = 0;
  static constinit thread_local unsigned number = 0;
  if (number == 0) [[unlikely]]
    number = __atomic_add_fetch(&threads, 1U, __ATOMIC_RELAXED);
  return number;
}

/// One thread's part of an account: so much is in use, and so much more may come into use without anybody being asked.
/// Thread-safe.
template <unsigned N>
class alignas(64) thread_share {
 public:
  /// False, and nothing changed, if there is less room. The same for `take_off`, if less is in use.
  bool add(amounts<N> const& a) noexcept {
    biased_section const lock(lock_);
    if (!room_.covers(a)) return false;
    room_ -= a;
    in_use_ += a;
    added_ += a;
    return true;
  }
  bool take_off(amounts<N> const& a) noexcept {
    biased_section const lock(lock_);
    if (!in_use_.covers(a)) return false;
    in_use_ -= a;
    room_ += a;
    return true;
  }
  /// Whether a `take_off` would do, unless other threads have the same share.
  bool covers(amounts<N> const& a) noexcept {
    biased_section const lock(lock_);
    return in_use_.covers(a);
  }

  // ---- for `thread_shares`

  /// Makes it larger, and adds.
  void grow(amounts<N> const& in_use, amounts<N> const& room, amounts<N> const& added) noexcept {
    biased_section const lock(lock_);
    in_use_ += in_use;
    room_ += room;
    added_ += added;
  }
  amounts<N> size() noexcept {
    biased_section const lock(lock_);
    return in_use_ + room_;
  }
  /// The room that it had, and has no more; or what was in use there.
  amounts<N> take_room() noexcept { return take(room_); }
  amounts<N> take_in_use() noexcept { return take(in_use_); }
  /// Takes all that it has: until it grows again, its thread can do nothing here.
  void settle(amounts<N>& in_use, amounts<N>& added) noexcept {
    biased_section const lock(lock_);
    in_use += in_use_;
    added += added_;
    in_use_ = room_ = added_ = {};
  }

 private:
  amounts<N> take(amounts<N>& from) noexcept {
    biased_section const lock(lock_);
    amounts<N> const had = from;
    from = {};
    return had;
  }

  biased_lock lock_{512};  // others come now and then, and its thread is to be the owner again soon
  amounts<N> in_use_, room_;
  amounts<N> added_;  // in all, since it was settled
};

/// The shares of an account which is at no moment to have more than `most` in use, nor less than nothing: a budget, or
/// a peak that is to be seen when it rises. What the account has itself (`own`), what is in use in all shares and the
/// room in them is together at most `most`, so that nobody need look at what threads do in their shares. Who finds too
/// little in its share comes with the account's lock. It takes the room of other shares, one after the other; if that
/// is not enough, all are settled, and the account knows exactly. Then nothing is lent for a while, so that accounts
/// which are at their peak, or full, cost hardly more than a lock.
///
/// A share grows with what its thread needs: each time it gets as much again as it had. Nothing in it is a thread's:
/// one that ends leaves it for whoever has its number next, and where there are more threads than shares they have them
/// together.
template <unsigned N>
class thread_shares {
 public:
  using amounts = detail::amounts<N>;

  // ---- for any thread, without the account's lock

  bool add(amounts const& a) noexcept { return mine().add(a); }
  bool take_off(amounts const& a) noexcept { return mine().take_off(a); }
  bool covers(amounts const& a) noexcept { return mine().covers(a); }

  // ---- with the account's lock

  /// Adds to the calling thread's share, which grows. False if that may be more than `most`: nothing is lent then.
  bool add_and_lend(amounts& own, amounts const& most, amounts const& a, amounts& added) noexcept {
    if (is_quiet()) return false;
    amounts const had = mine().size();
    take_room(mine());
    for_each_open([&](thread_share<N>& s) {
      if (!(most - own - lent_).covers(a)) take_room(s);
    });
    amounts const left = most - own - lent_;
    if (!left.covers(a)) return settle_for_a_while(own, added), false;
    lend(a, amounts::least(had, left - a), a);
    return true;
  }
  /// Takes off from what the account has, and lends the calling thread what came free, where no more than `most` was in
  /// use. False if there is less in use than that; nothing is lent then.
  bool take_off_and_lend(amounts& own, amounts const& most, amounts const& a, amounts& added) noexcept {
    if (is_quiet()) return take_off(own, a);
    amounts const had = mine().size();
    take_room(mine());
    take_in_use(mine(), own);
    if (!gather(own, a, added)) return false;
    own -= a;
    if (quiet_ != 0 || !(most - own - lent_).covers(a)) return true;
    amounts const more = amounts::least(had, own);
    own -= more;
    lend(more, a, {});
    return true;
  }

  /// Takes over what is in use in shares, one after the other, until the account itself has `a`. False if that is more
  /// than is in use: all are settled then.
  bool gather(amounts& own, amounts const& a, amounts& added) noexcept {
    for_each_open([&](thread_share<N>& s) {
      if (!own.covers(a)) take_in_use(s, own);
    });
    if (!own.covers(a)) settle_for_a_while(own, added);
    return own.covers(a);
  }

  /// Takes back all that is lent. Who comes to a share that was settled has to wait for the account's lock, so that
  /// what is in `own` then is what was in use at one moment: that of the last one.
  void settle(amounts& own, amounts& added) noexcept {
    for_each_open([&](thread_share<N>& s) { s.settle(own, added); });
    lent_ = {};
    open_ = 0;
  }

 private:
  static constexpr unsigned count = 64;
  static constexpr unsigned quiet_time = 64;  // calls

  static unsigned number() noexcept { return thread_number() % count; }
  thread_share<N>& mine() noexcept { return shares_[number()]; }

  void lend(amounts const& in_use, amounts const& room, amounts const& added) noexcept {
    mine().grow(in_use, room, added);
    lent_ += in_use + room;
    open_ |= std::uint64_t{1} << number();
  }
  void take_room(thread_share<N>& from) noexcept { lent_ -= from.take_room(); }
  void take_in_use(thread_share<N>& from, amounts& own) noexcept {
    amounts const taken = from.take_in_use();
    own += taken;
    lent_ -= taken;
  }
  static bool take_off(amounts& own, amounts const& a) noexcept {
    if (!own.covers(a)) return false;
    own -= a;
    return true;
  }
  void settle_for_a_while(amounts& own, amounts& added) noexcept {
    settle(own, added);
    quiet_ = quiet_time;
  }
  bool is_quiet() noexcept {
    if (quiet_ == 0) return false;
    --quiet_;
    return true;
  }
  template <class F>
  void for_each_open(F f) noexcept {
    for (std::uint64_t rest = open_; rest != 0; rest &= rest - 1) f(shares_[__builtin_ctzll(rest)]);
  }

  amounts lent_;            // what is in use in shares, and the room there
  std::uint64_t open_ = 0;  // a bit each: of those to which something is lent
  unsigned quiet_ = 0;      // calls, until something is lent again
  thread_share<N> shares_[count];
};

}  // namespace weir::detail
