// Insertions, removals and changes of size in a `tlsf_index`, against a plain map from block to size.
#include "target.hpp"

#include <weir/pool/heap/tlsf_index.hpp>
#include <weir/support/tailed_array.hpp>

#include <algorithm>
#include <bit>
#include <map>

using namespace weir::detail;
using fuzz::require;

namespace {

/// The same order as the index's classes, put another way: sizes that agree in their six highest bits are one class.
std::uint64_t class_of(units size) {
  auto const width = static_cast<unsigned>(std::bit_width(size));
  return width <= 6 ? size : std::uint64_t{width} << 32 | size >> (width - 6);
}

units size_from(fuzz::input& in) {
  unsigned const form = in.byte();
  units const near = units{1} << form % 32;
  switch (form / 32) {
    case 0:
    case 1:
      return 1 + in.byte();
    case 2:
      return near;
    case 3:
      return std::max<units>(near - 1, 1);
    case 4:
      return near + 1;
    case 5:
      return near + in.take<std::uint16_t>();  // may wrap: large ones and small ones
    default:
      return std::max<units>(in.take<std::uint32_t>(), 1);
  }
}

tlsf_index& for_any_size(tailed_array<tlsf_index>& room) {
  room.grow(1, tlsf_index::bytes_behind(~units{0}));
  return room[0];
}

class subject {
 public:
  void insert(units size) {
    table_.reserve(1);
    block_id const id = table_.add(std::uintptr_t{unit_bytes} * ++added_, size == 0 ? 1 : size);
    table_[id].set_free(weir::detail::shared);
    index_.insert(table_, id);
    sizes_[id] = table_[id].size;
  }
  void remove(std::size_t which) {
    auto const at = std::next(sizes_.begin(), static_cast<std::ptrdiff_t>(which % sizes_.size()));
    index_.remove(table_, at->first);
    table_.drop(at->first);
    sizes_.erase(at);
  }
  void remove_any() {
    block_id const gone = index_.remove_any(table_);
    require(sizes_.erase(gone) == 1, "remove_any: gives a block that is there");
    table_.drop(gone);
  }
  void resize(std::size_t which, units size) {
    auto const at = std::next(sizes_.begin(), static_cast<std::ptrdiff_t>(which % sizes_.size()));
    table_[at->first].size = size == 0 ? 1 : size;
    index_.resized(table_, at->first, at->second);
    at->second = table_[at->first].size;
  }
  std::size_t count() const { return sizes_.size(); }

  void check_find(units size) const {
    block_id const found = index_.find(table_, size);
    std::size_t in_class = 0;
    units tightest = 0;
    std::uint64_t next_class = 0;  // the first later one that has a block
    for (auto const& [id, has] : sizes_) {
      if (class_of(has) == class_of(size)) {
        ++in_class;
        if (has >= size && (tightest == 0 || has < tightest)) tightest = has;
      } else if (class_of(has) > class_of(size) && (next_class == 0 || class_of(has) < next_class)) {
        next_class = class_of(has);
      }
    }
    if (found == 0) {
      require(next_class == 0, "find: there is a block of a larger class");
      require(in_class > 4 || tightest == 0, "find: one of at most four blocks of the class fits");
      return;
    }
    auto const known = sizes_.find(found);
    require(known != sizes_.end(), "find: gives a block that is not there");
    require(known->second >= size, "find: gives a block that is too small");
    if (class_of(known->second) == class_of(size)) {
      require(in_class > 4 || known->second == tightest, "find: of four blocks of the class takes the tightest");
    } else {
      require(class_of(known->second) == next_class, "find: takes the next larger class");
      require(in_class > 4 || tightest == 0, "find: leaves its own class though a block there fits");
    }
  }

  void check_find_in_class(units size, unsigned parity) const {
    auto const fits = [&](units has) { return has % 2 == parity; };
    block_id const found = index_.find_in_class(table_, size, [&](block const& b) { return fits(b.size); });
    bool const any = std::any_of(sizes_.begin(), sizes_.end(), [&](auto const& s) {
      return class_of(s.second) == class_of(size) && s.second >= size && fits(s.second);
    });
    require((found != 0) == any, "find_in_class: finds a block if there is one");
    if (found != 0) require(sizes_.at(found) >= size && fits(sizes_.at(found)), "find_in_class: what it finds fits");
  }

  void check_valid() const { require(index_.valid(table_), "the index is valid"); }  // slow: looks at every class
  void check_all() const {
    require(index_.empty() == sizes_.empty(), "empty");
    units most = 0;
    for (auto const& s : sizes_) most = std::max(most, s.second);
    require(index_.largest(table_) == most, "largest");
    std::map<block_id, int> seen;
    index_.any_of(table_, [&](block_id id) { return ++seen[id] > 1; });
    require(seen.size() == sizes_.size(), "any_of: every block once");
    for (auto const& s : sizes_) require(seen.count(s.first) == 1, "any_of: every block");
  }

 private:
  block_table table_;
  tailed_array<tlsf_index> room_;
  tlsf_index& index_ = for_any_size(room_);
  std::map<block_id, units> sizes_;
  std::uintptr_t added_ = 0;
};

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  fuzz::input in(data, size);
  subject s;
  for (unsigned steps = 0; !in.empty(); ++steps) {
    unsigned const what = in.byte();
    if (steps % 8 == 7) s.check_valid();
    switch (what % 5) {
      case 0:
        if (s.count() < 200) s.insert(size_from(in));
        break;
      case 1:
        if (s.count() != 0) what / 5 % 4 == 3 ? s.remove_any() : s.remove(what / 5);
        break;
      case 2:
        if (s.count() != 0) s.resize(what / 5, size_from(in));
        break;
      case 3:
        s.check_find(std::max<units>(size_from(in), 1));
        continue;
      default:
        s.check_find_in_class(std::max<units>(size_from(in), 1), what / 5 % 2);
        continue;
    }
    s.check_all();
  }
  s.check_valid();
  return 0;
}
