#pragma once
// Which free lists stand for several streams together, and for which.

#include <weir/pool/order/stream_key.hpp>
#include <weir/pool/order/stream_lists.hpp>

#include <cstddef>
#include <cstdint>

namespace weir::detail {

/// A joint list is of two others, which may be joint in turn: what is freed in it comes after the work of both. That
/// pair is its key, so nothing else is remembered. Streams in whatever order have one list, if they are few. Knows
/// nothing of frees or CUDA. Guarded by its pool's lock.
class joint_lists {
 public:
  /// `all` has to outlive it.
  explicit joint_lists(stream_lists<stream_key> const& all) noexcept : all_(all) {}

  /// As many lists as so many streams and what they use together need at most.
  static constexpr std::size_t lists_for(std::size_t streams) noexcept {
    return 2 * streams + (streams < most_in_order ? 0 : 2);
  }

  bool is_joint(list_id list) const noexcept { return identity::kind_of(all_.key(list)) == identity::joint; }

  struct two_lists {
    list_id first, second;  ///< `first` has the lower number
  };
  /// What a joint list is of.
  two_lists parts(list_id joint) const noexcept {
    std::uint64_t const lists = identity::number_of(all_.key(joint));
    return {static_cast<list_id>(lists & lower_bits), static_cast<list_id>(lists >> list_bits)};
  }

  /// The list of both, which is one of them where that is of the other one too. `open(key, parts)` returns the list of
  /// a key, opened if it is not there, or `shared`: then this is `shared`.
  template <class Open>
  list_id both(list_id a, list_id b, Open open) const noexcept {
    if (is_part_of(b, a)) return a;
    if (is_part_of(a, b)) return b;
    if (is_joint(a) != is_joint(b) && streams_of(a) + streams_of(b) <= most_in_order) {
      // The highest is added last: so several have one list, in whatever order they come.
      auto const [first, second] = parts(is_joint(a) ? a : b);
      list_id const one = is_joint(a) ? b : a, last = is_joint(second) ? first : second;
      list_id const others = last == first ? second : first;
      if (one < last) {
        list_id const lower = both(others, one, open);
        return lower == shared ? shared : both(lower, last, open);
      }
    }
    two_lists const pair = a < b ? two_lists{a, b} : two_lists{b, a};
    return open(key_of(pair), pair);
  }

 private:
  using identity = stream_identity;
  static constexpr unsigned list_bits = 16;
  static constexpr std::uint64_t lower_bits = (1u << list_bits) - 1;
  // Four in the worst order open six lists, and more ever more, most of them for nothing.
  static constexpr unsigned most_in_order = 4;

  static stream_key key_of(two_lists const& pair) noexcept {
    auto const low = static_cast<std::uint64_t>(pair.first), high = static_cast<std::uint64_t>(pair.second);
    return identity::key_for(identity::joint, high << list_bits | low);
  }
  unsigned streams_of(list_id list) const noexcept {
    if (!is_joint(list)) return 1;
    auto const [first, second] = parts(list);
    return streams_of(first) + streams_of(second);
  }
  bool is_part_of(list_id part, list_id list) const noexcept {
    if (part == list || !is_joint(list)) return part == list;
    auto const [first, second] = parts(list);
    return is_part_of(part, first) || is_part_of(part, second);
  }

  stream_lists<stream_key> const& all_;
};

}  // namespace weir::detail
