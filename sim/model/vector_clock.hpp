#pragma once
// Vector clocks, internal: how much of every stream's work something is ordered after.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace weir::sim::detail {

/// The index of a stream, from its creation to its destruction, or of a host thread. A new stream gets the slot of an
/// ended one only if its creator comes after all that that one did, so that no clock can mistake one for the other.
/// Slot 0 is the host, or its first thread.
using slot_number = std::uint32_t;
inline constexpr slot_number host_slot = 0;

/// Operations are numbered over all streams in the order of the calls that queue them; 0 is before all.
using operation_number = std::uint64_t;

/// The call that the program made, for reports; 0: not known.
using call_number = std::uint16_t;

/// One operation of one slot.
struct mark {
  slot_number slot = host_slot;
  call_number call = 0;
  operation_number operation = 0;
};

/// For each slot, the last of its operations that come before.
class vector_clock {
 public:
  operation_number operator[](slot_number slot) const { return slot < at_.size() ? at_[slot] : 0; }
  void set(slot_number slot, operation_number n) {
    if (slot >= at_.size()) at_.resize(slot + 1);
    at_[slot] = n;
  }
  void join(vector_clock const& other) {
    if (other.at_.size() > at_.size()) at_.resize(other.at_.size());
    for (std::size_t i = 0; i < other.at_.size(); ++i) at_[i] = std::max(at_[i], other.at_[i]);
  }
  bool knows(mark m) const { return (*this)[m.slot] >= m.operation; }
  bool covers(vector_clock const& other) const {
    for (slot_number i = 0; i < other.at_.size(); ++i)
      if ((*this)[i] < other.at_[i]) return false;
    return true;
  }
  void clear() { at_.clear(); }

 private:
  std::vector<operation_number> at_;
};

/// A few operations, at most one a slot: a clock that is nearly empty.
class marks {
 public:
  void add(mark m) {
    for (mark& known : all_) {
      if (known.slot != m.slot) continue;
      if (known.operation < m.operation) known = m;
      return;
    }
    all_.push_back(m);
  }
  void add(marks const& other) {
    for (mark const m : other.all_) add(m);
  }
  /// The operation that `clock` is furthest from coming after; none if it comes after all of them, those after `last`
  /// aside.
  std::optional<mark> missing_in(vector_clock const& clock, operation_number last = ~operation_number{0}) const {
    std::optional<mark> worst;
    for (mark const m : all_) {
      operation_number const known = clock[m.slot];
      if (known >= m.operation || m.operation > last) continue;
      if (!worst || m.operation - known > worst->operation - clock[worst->slot]) worst = m;
    }
    return worst;
  }

 private:
  std::vector<mark> all_;
};

}  // namespace weir::sim::detail
