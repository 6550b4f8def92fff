// Insertions, look-ups and erasures in an `live_block_map`, against an ordered map.
#include "target.hpp"

#include <weir/pool/heap/live_block_map.hpp>

#include <algorithm>
#include <map>
#include <vector>

using namespace weir::detail;
using fuzz::require;

namespace {

/// Addresses that the table's multiplication sends to the same end of it, so that buckets overflow; half of them have
/// the same tag too.
std::vector<std::uintptr_t> const& crowded() {
  static std::vector<std::uintptr_t> const found = [] {
    std::vector<std::uintptr_t> all;
    std::size_t alike = 0;
    for (std::uint64_t n = 1; all.size() < 256; ++n) {
      std::uint64_t const hash = n * 0x9e3779b97f4a7c15u;
      bool const same_tag = (hash >> 21 & 0x7f) == 5;
      if (hash >> 58 != 63 || (all.size() - alike >= 128 && !same_tag)) continue;
      alike += same_tag;
      all.push_back(n * unit_bytes);
    }
    return all;
  }();
  return found;
}

std::uintptr_t address_from(fuzz::input& in) {
  unsigned const form = in.byte() % 4;
  if (form < 2) return crowded()[in.byte()];
  if (form == 2) return std::uintptr_t{0x7f00'0000'0000} + std::uintptr_t{in.byte()} * unit_bytes;
  return (in.take<std::uint64_t>() | unit_bytes) & ~std::uintptr_t{unit_bytes - 1};
}

class subject {
 public:
  void insert(std::uintptr_t address) {
    if (known_.count(address) != 0) return;
    if (table_.is_full()) table_.grow(address_of());
    auto const id = static_cast<block_id>(addresses_.size());
    addresses_.push_back(address);
    table_.insert(address, id);
    known_[address] = id;
  }
  void check(std::uintptr_t address) {
    auto const at = known_.find(address);
    block_id const expected = at == known_.end() ? 0 : at->second;
    require(table_.look_up(address, address_of()) == expected, "look_up: the number that was inserted");
    require(table_.find(address, address_of()) == expected, "find: the number that was inserted");
  }
  void erase(std::size_t which, bool found_before) {
    if (known_.empty()) return;
    auto const at = std::next(known_.begin(), static_cast<std::ptrdiff_t>(which % known_.size()));
    if (found_before) table_.find(at->first, address_of());
    table_.erase(at->first, at->second);
    require(table_.look_up(at->first, address_of()) == 0, "erase: it is gone");
    addresses_[at->second] = 0;
    known_.erase(at);
  }
  void check_all() {
    require(table_.size() == known_.size(), "size");
    for (auto const& [address, id] : known_)
      require(table_.look_up(address, address_of()) == id, "look_up: every number that was inserted");
  }

 private:
  struct addresses {
    std::vector<std::uintptr_t> const* of;
    std::uintptr_t operator()(block_id id) const { return (*of)[id]; }
  };
  addresses address_of() const { return {&addresses_}; }

  live_block_map table_;
  std::vector<std::uintptr_t> addresses_{0};
  std::map<std::uintptr_t, block_id> known_;
};

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  fuzz::input in(data, size);
  subject s;
  while (!in.empty()) {
    unsigned const what = in.byte();
    switch (what % 8) {
      case 0:
      case 1:
      case 2:
        s.insert(address_from(in));
        break;
      case 3:  // many at once, so that the table grows
        for (unsigned i = 0; i < what / 8; ++i) s.insert(crowded()[(in.byte() + i * 7) % 256]);
        break;
      case 4:
      case 5:
        s.erase(what / 8, what % 8 == 4);
        break;
      default:
        s.check(address_from(in));
        continue;
    }
    s.check_all();
  }
  return 0;
}
