#pragma once
// A model of where PyTorch's caching allocator would place blocks and what it would take from the device: its published
// rules, for figures of memory. It says nothing about PyTorch's speed.

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <new>
#include <set>
#include <tuple>
#include <unordered_map>

namespace bench {

/// Sizes are rounded to 512 B; requests up to 1 MiB come from segments of 2 MiB, larger ones up to 10 MiB from segments
/// of 20 MiB, the rest from segments of their own size rounded to 2 MiB. Best fit within the requesting stream. A large
/// block is split if more than 1 MiB remains. Out of memory: wholly free segments go back, then one more try.
///
/// `expandable`: instead, one segment a stream and kind that grows at its end, mapped in pieces of 2 and 20 MiB; a
/// block is always split; pieces are unmapped when memory runs out.
class torch_model {
 public:
  torch_model(bool expandable, std::size_t capacity) : expandable_(expandable), capacity_(capacity) {}

  std::uint64_t allocate(std::size_t stream, std::size_t bytes) {
    std::size_t const size = round(bytes, 512);
    bool const small = size <= mib;
    free_set& pool = pool_of(small);
    auto found = pool.lower_bound({stream, size, 0});
    if (found == pool.end() || std::get<0>(*found) != stream) {
      expandable_ ? extend(stream, size, small) : add_segment(stream, size, small);
      found = pool.lower_bound({stream, size, 0});
    }
    std::uint64_t const address = std::get<2>(*found);
    pool.erase(found);
    block& b = blocks_.at(address);
    b.free = false;
    std::size_t const rest = b.size - size;
    if (small || expandable_ ? rest >= 512 : rest > mib) {
      block const right{rest, b.segment, stream, small, true};
      b.size = size;
      blocks_.emplace(address + size, right);
      pool.insert({stream, rest, address + size});
    }
    return address;
  }

  void deallocate(std::uint64_t address) {
    auto at = blocks_.find(address);
    at->second.free = true;
    if (auto const right = std::next(at); joins(at, right)) {
      forget(right);
      at->second.size += right->second.size;
      blocks_.erase(right);
    }
    if (at != blocks_.begin()) {
      if (auto const left = std::prev(at); joins(left, at)) {
        forget(left);
        left->second.size += at->second.size;
        blocks_.erase(at);
        at = left;
      }
    }
    pool_of(at->second.small).insert({at->second.stream, at->second.size, at->first});
  }

  std::size_t reserved() const { return reserved_; }
  std::size_t peak_reserved() const { return peak_; }
  std::uint64_t device_calls() const { return calls_; }

 private:
  static constexpr std::size_t mib = std::size_t{1} << 20;

  struct block {
    std::size_t size;
    std::uint64_t segment;
    std::size_t stream;
    bool small;
    bool free;
  };
  using block_map = std::map<std::uint64_t, block>;                                // by address
  using free_set = std::set<std::tuple<std::size_t, std::size_t, std::uint64_t>>;  // stream, size, address

  static std::size_t round(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }
  free_set& pool_of(bool small) { return small ? small_ : large_; }

  bool joins(block_map::iterator left, block_map::iterator right) {
    return left != blocks_.end() && right != blocks_.end() && left->second.free && right->second.free &&
           left->second.segment == right->second.segment && left->first + left->second.size == right->first;
  }
  void forget(block_map::iterator b) { pool_of(b->second.small).erase({b->second.stream, b->second.size, b->first}); }

  void take(std::size_t bytes) {
    if (reserved_ + bytes > capacity_) give_back_free();
    if (reserved_ + bytes > capacity_) throw std::bad_alloc();
    reserved_ += bytes;
    peak_ = peak_ < reserved_ ? reserved_ : peak_;
    ++calls_;
  }

  void add_segment(std::size_t stream, std::size_t size, bool small) {
    std::size_t const bytes = small ? 2 * mib : size < 10 * mib ? 20 * mib : round(size, 2 * mib);
    take(bytes);
    std::uint64_t const address = next_ += std::uint64_t{1} << 42;
    blocks_.emplace(address, block{bytes, address, stream, small, true});
    segments_.emplace(address, bytes);
    pool_of(small).insert({stream, bytes, address});
  }

  /// Maps more behind the end of the stream's segment, so much that `size` fits there.
  void extend(std::size_t stream, std::size_t size, bool small) {
    std::size_t const piece = small ? 2 * mib : 20 * mib;
    auto [found, is_new] = growing_.try_emplace({stream, small}, 0);
    if (is_new) found->second = next_ += std::uint64_t{1} << 42;
    std::uint64_t const segment = found->second;
    auto const last_of = [&] { return std::prev(blocks_.lower_bound(segment + (std::uint64_t{1} << 42))); };
    std::size_t& length = segments_[segment];
    auto const tail = [&]() -> std::size_t {
      if (length == 0) return 0;
      auto const last = last_of();
      return last->second.free ? last->second.size : 0;
    };
    std::size_t const bytes = round(size - tail(), piece);
    take(bytes);
    calls_ += bytes / piece - 1;
    std::uint64_t const end = segment + length;
    std::size_t const more = round(size - tail(), piece);  // what was free at the end may have been given back
    if (more > bytes) {
      take(more - bytes);
      calls_ += (more - bytes) / piece - 1;
    }
    length += more;
    blocks_.emplace(end, block{more, segment, stream, small, false});
    deallocate(end);
  }

  void give_back_free() {
    for (auto s = segments_.begin(); s != segments_.end();) {
      if (expandable_) {
        give_back_tail(s->first, s->second);
        ++s;
        continue;
      }
      auto const first = blocks_.find(s->first);
      if (first->second.free && first->second.size == s->second) {
        forget(first);
        blocks_.erase(first);
        reserved_ -= s->second;
        ++calls_;
        s = segments_.erase(s);
      } else {
        ++s;
      }
    }
  }

  /// Unmaps the free pieces at the end. PyTorch also unmaps those in the middle; then it maps them again in place.
  void give_back_tail(std::uint64_t segment, std::size_t& length) {
    if (length == 0) return;
    auto const last = std::prev(blocks_.lower_bound(segment + (std::uint64_t{1} << 42)));
    if (!last->second.free) return;
    std::size_t const piece = last->second.small ? 2 * mib : 20 * mib;
    std::size_t const bytes = last->second.size / piece * piece;
    if (bytes == 0) return;
    forget(last);
    last->second.size -= bytes;
    length -= bytes;
    reserved_ -= bytes;
    calls_ += bytes / piece;
    if (last->second.size == 0)
      blocks_.erase(last);
    else
      pool_of(last->second.small).insert({last->second.stream, last->second.size, last->first});
  }

  bool expandable_;
  std::size_t capacity_;
  std::size_t reserved_ = 0;
  std::size_t peak_ = 0;
  std::uint64_t calls_ = 0;
  std::uint64_t next_ = 0;
  block_map blocks_;
  std::map<std::uint64_t, std::size_t> segments_;  // and their lengths
  std::map<std::pair<std::size_t, bool>, std::uint64_t> growing_;
  free_set small_, large_;
};

}  // namespace bench
