#pragma once
// Several pools on one set of memory: who has how much, what each is promised, and who gives back for whom.

#include <weir/core/bytes.hpp>
#include <weir/core/limit_ref.hpp>
#include <weir/core/report.hpp>
#include <weir/support/atomic.hpp>
#include <weir/support/mutex.hpp>
#include <weir/support/spin_lock.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace weir {

/// What a tenant has, in bytes.
struct tenant_usage {
  std::size_t live = 0;   ///< in blocks that are in use
  std::size_t held = 0;   ///< with memory, what is on its way included
  std::size_t asked = 0;  ///< of that, what is on its way and was not let in yet: see `tenants::claim`
};

/// A pool that shares a `growable` resource with others. Its functions are called by threads that use other pools, and
/// while the list of tenants is locked; it takes its own lock in them, and never calls `tenants` with that held.
class tenant {
 public:
  tenant(tenant const&) = delete;
  tenant& operator=(tenant const&) = delete;
  virtual tenant_usage usage() noexcept = 0;
  /// Gives idle memory back, at most `bytes` rounded up to chunks. Does not wait. Returns how many bytes that was.
  virtual std::size_t give_idle(std::size_t bytes) noexcept = 0;
  /// Whether what it holds is charged to `limit`, which stands between it and the resource.
  virtual bool is_under(limit_ref const& /*limit*/) noexcept { return false; }
  virtual std::string name() const = 0;
  /// Of what is on its way to it, what claims were let in with. For `usage`, with its own lock held.
  std::size_t let_in() const noexcept { return let_in_.load(); }

  std::size_t min_bytes = 0;  ///< that it can always have
  std::size_t low_bytes = 0;  ///< while it holds no more it is asked last to give back

 protected:
  tenant() = default;
  virtual ~tenant() = default;  // since g++ warns of others that a friend may see

 private:
  friend class tenants;
  tenant* next_ = nullptr;
  detail::atomic<std::size_t> let_in_;
};

/// The pools on one growable resource, which has one of these as `tenancy()`. Thread-safe.
///
/// Each may be promised a minimum. A tenant gets memory if it is below its own minimum, or if what is left serves all
/// minimums that are not used yet: so a promise is kept without taking anything back. What tenants hold above their
/// minimum and do not use goes to whoever needs it.
class tenants {
 public:
  /// `capacity`: the most bytes of the resource; 0 where it has no limit of its own, and then nothing can be promised.
  explicit tenants(std::size_t capacity) noexcept : capacity_(capacity) {}
  tenants(tenants const&) = delete;
  tenants& operator=(tenants const&) = delete;

  /// Throws `std::invalid_argument` if it is promised more than there is beside the others' minimums.
  void join(tenant& t) {
    detail::mutex_guard const lock(mutex_);
    std::size_t promised = t.min_bytes;
    for (tenant* other = first_; other != nullptr; other = other->next_) promised += other->min_bytes;
    if (t.min_bytes != 0 && capacity_ == 0)
      throw std::invalid_argument("weir: pool: min_bytes is " + format_bytes(t.min_bytes) +
                                  "; it can be kept only where the shared memory has max_bytes");
    if (promised > capacity_ && t.min_bytes != 0)
      throw std::invalid_argument("weir: pool: min_bytes is " + format_bytes(t.min_bytes) + "; with the other pools' " +
                                  format_bytes(promised - t.min_bytes) + " that is more than the shared memory's " +
                                  format_bytes(capacity_));
    t.next_ = first_;
    first_ = &t;
    count_.add(1);
  }
  /// Calls `f()` while no tenant is asked anything: what it changes is seen by whoever asks next. `f` calls nothing.
  template <class F>
  void between_questions(F f) noexcept {
    detail::mutex_guard const lock(mutex_);
    f();
  }
  /// Its memory is gone, but for `left` bytes that it could not give back: they count as held for good.
  void leave(tenant& t, std::size_t left = 0) noexcept {
    detail::mutex_guard const lock(mutex_);
    tenant** link = &first_;
    while (*link != &t) link = &(*link)->next_;
    *link = t.next_;
    outside_ += left;
    count_.subtract(1);
    peak_ = 0;  // it may have been that tenant's: seen anew by the next call that asks
  }

  /// True if more than one pool uses it. The one call that a pool may make with its own lock held.
  bool is_shared() const noexcept { return count_.load() > 1; }

  /// What all tenants together hold, and the most of it that was live: as far as was seen, at the calls to this.
  /// `own_peak`: the most that was live of the caller's; `more`: bytes that it is about to add to what its usage says.
  tenant_usage joint(std::size_t own_peak, std::size_t more) noexcept {
    detail::mutex_guard const lock(mutex_);
    tenant_usage all = sum();
    all.live += more;
    if (own_peak > peak_) peak_ = own_peak;
    if (all.live > peak_) peak_ = all.live;
    return {peak_, all.held};
  }

  /// Lets others give idle memory back, `bytes` in all if they have that: first those above their low mark, never below
  /// a minimum. Returns how many bytes that was. `under`: only those whose memory is charged to that limit, if given.
  std::size_t reclaim(tenant const& for_whom, std::size_t bytes, limit_ref const* under = nullptr) noexcept {
    return reclaim_for(&for_whom, bytes, under);
  }
  /// The same for `bytes` that no tenant asks for: as much as is missing.
  std::size_t reclaim_outside(std::size_t bytes) noexcept {
    std::size_t const missing = lacking(nullptr, bytes);
    return reclaim_for(nullptr, missing != 0 ? missing : bytes, nullptr);
  }
  /// What others have to give back before `who`, with what is on its way to it, has room, and promises are kept. 0
  /// where that is not known, since the resource has no limit of its own.
  std::size_t lacking(tenant const& who) const noexcept { return lacking(&who, 0); }
  /// While it lives, some tenant gives idle memory back: it is in nobody's hands, and about to be there for all. Made
  /// while the tenant's lock is held under which that memory was idle still. For null it does nothing.
  class giving {
   public:
    explicit giving(tenants* all) noexcept : all_(all) {
      if (all_ != nullptr) all_->begun_.add(1);
    }
    ~giving() {
      if (all_ != nullptr) all_->given_.add(1);
    }
    giving(giving const&) = delete;
    giving& operator=(giving const&) = delete;

   private:
    tenants* all_;
  };
  /// How often some tenant has given memory back.
  std::uint64_t given() const noexcept { return given_.load(); }
  /// Lets who found too little wait for what tenants are giving back now, if it `may_wait`; true if some was given
  /// since there were `seen`, so that it should look again. Without any lock.
  bool gave_since(std::uint64_t seen, bool may_wait) const noexcept {
    std::uint64_t const begun = begun_.load();
    for (unsigned round = 0; may_wait && given_.load() < begun; ++round) detail::spin_lock::pause(round);
    return given_.load() != seen;
  }

  /// Memory that is on its way to a tenant, in its usage. Made and ended with the tenant's lock held under which it
  /// begins and ceases to be on its way. `own`: bytes of it that the tenant gave up for it, which it has whoever else
  /// asks. The rest counts to others from when `take` lets it in: else two could refuse each other what one may have.
  class claim {
   public:
    explicit claim(tenant* who, std::size_t own = 0) noexcept : who_(who) { add(own); }
    ~claim() { add(std::size_t{0} - let_in_); }
    claim(claim const&) = delete;
    claim& operator=(claim const&) = delete;

   private:
    friend class tenants;
    void add(std::size_t bytes) noexcept {
      let_in_ += bytes;
      if (who_ != nullptr) who_->let_in_.add(bytes);
    }

    tenant* who_;
    std::size_t let_in_ = 0;
  };
  /// Calls `map()`, which takes memory that is in the caller's usage already, unless that would break a promise to
  /// others; false then. The list is not locked while `map()` runs: it may call the program.
  template <class F>
  bool take(tenant& who, F map) {
    claim whole(&who);
    return take(who, whole, 0, map);
  }
  /// The same for `fresh` bytes of a claim.
  template <class F>
  bool take(tenant& who, claim& of, std::size_t fresh, F map) {
    if (!let_in(who, of, fresh)) return false;
    bool done = false;
    try {
      done = map();
    } catch (...) {
      of.add(std::size_t{0} - fresh);
      throw;
    }
    if (!done) of.add(std::size_t{0} - fresh);
    return done;
  }
  /// The same for `bytes` that no tenant asks for, as a block of the resource itself is. They count as held until
  /// `give_outside`, and are taken only if what is left serves all minimums.
  template <class F>
  bool take_outside(std::size_t bytes, F map) {
    if (!let_in_outside(bytes)) return false;
    bool done = false;
    try {
      done = map();
    } catch (...) {
      give_outside(bytes);
      throw;
    }
    if (!done) give_outside(bytes);
    return done;
  }
  void give_outside(std::size_t bytes) noexcept {
    detail::mutex_guard const lock(mutex_);
    outside_ -= bytes < outside_ ? bytes : outside_;
  }
  /// Whether `bytes` more, that no tenant asks for, would leave what is promised.
  bool spares(std::size_t bytes) const noexcept {
    detail::mutex_guard const lock(mutex_);
    return keeps_promises(nullptr, bytes);
  }

  /// A line for each tenant, where there are several or one is promised something.
  void describe(report& out) const {
    detail::mutex_guard const lock(mutex_);
    bool const is_promised = has_promises();
    if (count_.load() < 2 && !is_promised) return;
    auto const note = [&out](std::string const& text) { out.note("shared by", text); };
    if (outside_ != 0) note("blocks without a pool: hold " + format_bytes(outside_));
    for (tenant* t = first_; t != nullptr; t = t->next_) {
      tenant_usage const has = t->usage();
      note(t->name() + ": holds " + format_bytes(has.held) + ", " + format_bytes(has.live) + " of it in use" +
           (t->min_bytes == 0 ? std::string() : ", at least " + format_bytes(t->min_bytes)));
    }
  }

 private:
  tenant_usage sum() const noexcept {
    tenant_usage all;
    for (tenant* t = first_; t != nullptr; t = t->next_) {
      tenant_usage const has = t->usage();
      all.live += has.live;
      all.held += has.held;
    }
    return all;
  }
  std::size_t reclaim_for(tenant const* for_whom, std::size_t bytes, limit_ref const* under) noexcept {
    detail::mutex_guard const lock(mutex_);
    std::size_t got = 0;
    for (bool const last : {false, true})
      for (tenant* t = first_; t != nullptr && got < bytes; t = t->next_) {
        if (t == for_whom || (under != nullptr && !t->is_under(*under))) continue;
        std::size_t const keep = last || t->low_bytes < t->min_bytes ? t->min_bytes : t->low_bytes;
        std::size_t const held = t->usage().held, most = held > keep ? held - keep : 0;
        if (most != 0) got += t->give_idle(most < bytes - got ? most : bytes - got);
      }
    return got;
  }
  bool let_in(tenant const& who, claim& of, std::size_t bytes) noexcept {
    detail::mutex_guard const lock(mutex_);
    if (!keeps_promises(&who)) return false;
    of.add(bytes);
    return true;
  }
  bool let_in_outside(std::size_t bytes) noexcept {
    detail::mutex_guard const lock(mutex_);
    if (!keeps_promises(nullptr, bytes)) return false;
    outside_ += bytes;
    return true;
  }

  // With the list locked.

  /// What all hold, and what others than `who` are promised beyond that. What was not let in counts for `who` alone.
  struct demand {
    std::size_t held = 0, promised = 0;
    bool is_promised = false;  // all that `who` holds, what is on its way included
  };
  demand demand_of_all(tenant const* who) const noexcept {
    demand all{.held = outside_};
    for (tenant* t = first_; t != nullptr; t = t->next_) {
      tenant_usage const has = t->usage();
      std::size_t const held = t == who ? has.held : has.held - has.asked;
      all.held += held;
      if (t == who) all.is_promised = held <= t->min_bytes;
      if (t != who && held < t->min_bytes) all.promised += t->min_bytes - held;
    }
    return all;
  }
  /// With `more` that nobody has.
  bool keeps_promises(tenant const* who, std::size_t more = 0) const noexcept {
    if (!has_promises()) return true;
    demand const all = demand_of_all(who);
    return all.is_promised || all.held + all.promised + more <= capacity_;
  }
  std::size_t lacking(tenant const* who, std::size_t more) const noexcept {
    detail::mutex_guard const lock(mutex_);
    demand const all = demand_of_all(who);
    std::size_t const needed = all.held + (all.is_promised ? 0 : all.promised) + more;
    return capacity_ != 0 && needed > capacity_ ? needed - capacity_ : 0;
  }
  bool has_promises() const noexcept {
    for (tenant* t = first_; t != nullptr; t = t->next_)
      if (t->min_bytes != 0) return true;
    return false;
  }

  std::size_t const capacity_;
  detail::mutex mutable mutex_;
  tenant* first_ = nullptr;
  detail::atomic<std::size_t> count_;
  detail::atomic<std::uint64_t> begun_, given_;  // how often memory was to be given back, and was
  std::size_t peak_ = 0;
  std::size_t outside_ = 0;  // held, and by no tenant
};

}  // namespace weir
