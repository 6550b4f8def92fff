#pragma once
// Memory in stream captures: whose it is, who may have it again, and when it is everyone's.

#include <weir/pool/heap/block_heap.hpp>
#include <weir/pool/order/capture_position.hpp>
#include <weir/pool/order/stream_key.hpp>
#include <weir/pool/order/stream_tracker.hpp>
#include <weir/support/first_index.hpp>
#include <weir/support/grown_array.hpp>

#include <cstddef>
#include <cstdint>
#include <new>

namespace weir::detail {

/// A graph runs again and again on the addresses that were captured, whenever the user launches it: a block that was
/// allocated or freed in a capture stays that capture's until the user says that the graph is gone. Until then only the
/// stream that freed it in the capture may have it again, and only in the same one. Nobody has what a broken
/// capture freed: CUDA has no id for it, so that all broken ones are one here.
///
/// So each stream in each capture has a free list of its own here, which is never done. A stream that is known by its
/// handle has it for as long as it comes after what it captured before: else it is another one, and nobody has the list
/// again.
///
/// A free can make no list. Where none is left, what it may give to nobody goes into such a list of another capture,
/// which both then share: it is everyone's once all that share it are released. Guarded by the pool's lock.
class private_pool {
 public:
  private_pool(block_heap& heap, stream_tracker& tracker) : heap_(heap), tracker_(tracker) {}
  private_pool(private_pool const&) = delete;
  private_pool& operator=(private_pool const&) = delete;

  /// Room for as many lists. May throw `std::bad_alloc`.
  void reserve(std::size_t lists) { lists_.grow(lists + most_shares); }

  /// The list of a stream in a capture; `shared` if there is none: never, or not any more.
  list_id find(stream_identity const& who) const noexcept {
    std::size_t const at = index_of(who.capture, who.key);
    return at != count_ ? lists_[at].list : shared;
  }
  /// Before a stream that takes part in a capture takes: may throw `std::bad_alloc`. Opens the list of what nobody may
  /// have again, too: who frees what was taken can open none.
  void enter(stream_identity const& who) {
    positions_.grow(lists_.size());
    if (find_or_open(who) == shared || find_or_open(who.capture, stream_key::none) == shared) throw std::bad_alloc();
  }
  /// As `find`, but opens one; `shared` if there is no room. First of all that is asked for a call of the pool.
  list_id find_or_open(stream_identity const& who) noexcept {
    if (stream_identity::kind_of(who.key) != stream_identity::capturing) return find_or_open(who.capture, who.key);
    capture_position const now(who.stream.get());
    std::size_t const known = index_of(who.capture, who.key), before = count_;
    if (known != count_ && !comes_after(known, now)) lists_[known].stream = stream_key::none;
    list_id const list = find_or_open(who.capture, who.key);
    bool const opened = count_ != before;
    if (std::size_t const at = opened ? index_of(who.capture, who.key) : known; opened || now.is_in_capture())
      set_position(at, now);
    return list;
  }

  /// A block that was taken from a list or for it belongs to that list's capture while it is live.
  void keep(block_id id, list_id list) noexcept { heap_.set_captured(id, list); }

  /// The capture that a live block is kept for when `who` frees it: the one it was allocated in, else that of `who`.
  capture_key owner(block_id id, stream_identity const& who) const noexcept {
    list_id const from = heap_.blocks()[id].captured;
    return from != shared ? capture_of(from) : who.capture;
  }
  /// The capture of which a list is.
  capture_key capture_of(list_id list) const noexcept {
    std::size_t i = count_ - 1;
    while (lists_[i].list != list || lists_[i].is_share) --i;
    return lists_[i].capture;
  }
  /// The list of what a capture keeps and nobody has again; `shared` if there is no room.
  list_id list_for_nobody(capture_key capture) noexcept {
    list_id const list = find_or_open(capture, stream_key::none);
    return list != shared ? list : share_a_list(capture);
  }
  /// Takes back a live block that was allocated in a capture, or that `who` frees in one. False if there is no room to
  /// remember that, for a block from outside: it stays live for good.
  bool give(block_id id, stream_identity const& who) noexcept {
    list_id const from = heap_.blocks()[id].captured;
    capture_key const capture = owner(id, who);
    // To CUDA all broken captures are alike: that of another stream with this one's handle, too.
    bool const is_of_one = capture == who.capture && capture != capture_key::invalidated;
    bool const may_have_it_again = from != shared && is_of_one;
    list_id list = may_have_it_again ? find_or_open(who) : shared;
    if (list == shared) list = list_for_nobody(capture);
    if (list == shared) return false;
    heap_.set_captured(id, shared);
    heap_.give(id, list, tracker_.on_free(list));
    return true;
  }

  /// The graph of a capture is gone (`none`: of all captures): its memory is everyone's, but for what is in a list that
  /// it shares, which has to wait for the others. Returns how many bytes that is. Looks at every block of the pool.
  std::size_t release(capture_key capture) noexcept {
    if (count_ == 0) return 0;
    std::size_t bytes = 0;
    for (std::size_t i = end_of(capture); is_at(i, capture); --i) lists_[i - 1].is_released = true;
    for (std::size_t i = end_of(capture); is_at(i, capture); --i) {
      private_list const& each = lists_[i - 1];
      if (capture == capture_key::none ? each.is_share : !is_released_by_all(each.list)) continue;
      bytes += heap_.free_bytes(each.list);
      heap_.complete(each.list, tracker_.end_captured(each.list));
    }
    forget_ended();
    // What is live is from now on like other blocks.
    heap_.forget_captured([&](list_id list) { return !tracker_.is_captured(list); });
    return bytes;
  }

  /// How many lists there are, of all captures.
  std::size_t list_count() const noexcept { return count_ - shares_; }
  /// Free bytes in the lists of a capture; `none`: of all.
  std::size_t free_bytes(capture_key capture) const noexcept {
    std::size_t bytes = 0;
    for (std::size_t i = end_of(capture); is_at(i, capture); --i)
      if (capture != capture_key::none || !lists_[i - 1].is_share) bytes += heap_.free_bytes(lists_[i - 1].list);
    return bytes;
  }
  /// Whether a list is one of a capture; `none`: of any.
  bool is_of(capture_key capture, list_id list) const noexcept {
    for (std::size_t i = end_of(capture); is_at(i, capture); --i)
      if (lists_[i - 1].list == list) return true;
    return false;
  }
  /// Bytes of host memory in use for bookkeeping.
  std::size_t host_bytes() const noexcept { return lists_.bytes() + positions_.bytes(); }

 private:
  struct private_list {
    capture_key capture{};
    stream_key stream{};  // `none`: of what not even a stream of the capture may have
    list_id list = shared;
    bool is_share = false;     // of a list that another capture opened
    bool is_released = false;  // but not all that share the list are
  };
  static constexpr std::size_t most_shares = 64;

  bool comes_after(std::size_t list, capture_position const& now) const noexcept {
    return list < positions_.size() && now.comes_after(positions_[list]);
  }

  /// One after the last list of a capture, or of all (`none`): where its next one belongs.
  std::size_t end_of(capture_key capture) const noexcept {
    if (capture == capture_key::none) return count_;
    return first_index(count_, [&](std::size_t i) { return lists_[i].capture > capture; });
  }
  /// Whether the list before `end` is one of a capture; `none`: of any.
  bool is_at(std::size_t end, capture_key capture) const noexcept {
    return end != 0 && (capture == capture_key::none || lists_[end - 1].capture == capture);
  }
  /// `count_` if there is none.
  std::size_t index_of(capture_key capture, stream_key stream) const noexcept {
    std::size_t i = end_of(capture);
    while (is_at(i, capture) && lists_[i - 1].stream != stream) --i;
    return is_at(i, capture) ? i - 1 : count_;
  }
  list_id find_or_open(capture_key capture, stream_key stream) noexcept {
    if (std::size_t const known = index_of(capture, stream); known != count_) {
      lists_[known].is_released = false;  // what is freed from now on has to wait for the next release
      return lists_[known].list;
    }
    list_id const opened = count_ < lists_.size() ? tracker_.open_captured() : shared;
    if (opened != shared) insert({capture, stream, opened});
    return opened;
  }
  /// In their order; mostly it is the last, since captures are numbered as they begin.
  void insert(private_list const& added) noexcept {
    std::size_t const end = end_of(added.capture);
    std::size_t at = count_++;
    for (; at != end; --at) move(at - 1, at);
    lists_[at] = added;
    set_position(at, {});
  }
  /// One of another capture, of what nobody may have again; `shared` if there is none.
  list_id share_a_list(capture_key capture) noexcept {
    std::size_t at = count_;
    while (at != 0 && lists_[at - 1].stream != stream_key::none) --at;
    if (at == 0 || count_ == lists_.size()) return shared;
    list_id const list = lists_[at - 1].list;
    insert({capture, stream_key::none, list, true});
    ++shares_;
    return list;
  }
  /// False, too, of a list that has just ended.
  bool is_released_by_all(list_id list) const noexcept {
    if (!tracker_.is_captured(list)) return false;
    if (shares_ == 0) return true;
    std::size_t i = count_;
    while (i != 0 && (lists_[i - 1].list != list || lists_[i - 1].is_released)) --i;
    return i == 0;
  }
  /// Closes the gaps that lists leave which have ended.
  void forget_ended() noexcept {
    std::size_t const before = count_;
    count_ = shares_ = 0;
    for (std::size_t i = 0; i != before; ++i) {
      if (!tracker_.is_captured(lists_[i].list)) continue;
      shares_ += lists_[i].is_share;
      move(i, count_++);
    }
    for (std::size_t i = count_; i != before; ++i) set_position(i, {});
  }
  void move(std::size_t from, std::size_t to) noexcept {
    lists_[to] = lists_[from];
    set_position(to, from < positions_.size() ? positions_[from] : capture_position());
  }
  void set_position(std::size_t list, capture_position const& position) noexcept {
    if (list < positions_.size()) positions_[list] = position;
  }

  block_heap& heap_;
  stream_tracker& tracker_;
  grown_array<private_list> lists_;  // in the order of their captures
  std::size_t count_ = 0;
  std::size_t shares_ = 0;
  grown_array<capture_position> positions_;  // of streams that are known by their handles, when they were last here
};

}  // namespace weir::detail
