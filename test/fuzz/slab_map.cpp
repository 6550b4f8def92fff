// Slabs that come and go in a `slab_map`, against an ordered map of their pages.
#include "target.hpp"

#include <weir/pool/heap/slab_map.hpp>

#include <algorithm>
#include <map>
#include <vector>

using namespace weir::detail;
using fuzz::require;

namespace {

constexpr std::uintptr_t base = 0x7f00'0000'0000, table = slab_map::leaf_span, most = slab_map::most_span;

/// A page, near the ends of the map's tables and of the addresses that these reach more often than elsewhere.
std::uintptr_t page_from(fuzz::input& in) {
  unsigned const form = in.byte() % 4;
  std::uintptr_t const near = std::uintptr_t{in.byte()} * slab::page_bytes;
  if (form == 0) return base + near;
  if (form == 1) return base + table - 64 * slab::page_bytes + near;
  if (form == 2) return base + most - 128 * slab::page_bytes + near;
  return base - most + in.take<std::uint64_t>() % (3 * most) / slab::page_bytes * slab::page_bytes;
}

class subject {
 public:
  subject() = default;
  subject(subject const&) = delete;
  subject& operator=(subject const&) = delete;
  ~subject() {
    for (slab* const s : slabs_) slab::drop(s);
  }

  void add(std::uintptr_t begin, unsigned size_class, std::uint32_t slots) {
    std::size_t const bytes = slots * slot_class::size(size_class) * unit_bytes;
    for (std::uintptr_t page = begin; page < begin + bytes; page += slab::page_bytes)
      if (pages_.count(page) != 0) return;  // slabs share none
    slab* const s = slab::make(begin, size_class, slots);
    if (s == nullptr) fuzz::fail("make: there is host memory");
    bool const added = map_.add(s);
    std::uintptr_t const first = std::min(first_, begin / table), last = std::max(last_, (begin + bytes - 1) / table);
    require(added == (last - first < most / table), "add: what lies near enough to all others");
    if (!added) return slab::drop(s);
    first_ = first, last_ = last;
    slabs_.push_back(s);
    for (std::uintptr_t page = begin; page < begin + bytes; page += slab::page_bytes) pages_[page] = s;
    check(begin, bytes);
  }
  void remove(std::size_t which) {
    if (slabs_.empty()) return;
    auto const at = slabs_.begin() + static_cast<std::ptrdiff_t>(which % slabs_.size());
    slab* const gone = *at;
    map_.remove(*gone);
    std::uintptr_t const begin = gone->begin();
    std::size_t const bytes = gone->bytes();
    std::erase_if(pages_, [&](auto const& page) { return page.second == gone; });
    slabs_.erase(at);
    slab::drop(gone);
    check(begin, bytes);
  }
  void look_up(std::uintptr_t address) const {
    auto const at = pages_.find(address / slab::page_bytes * slab::page_bytes);
    require(map_.find(address).in() == (at == pages_.end() ? nullptr : at->second), "find: the slab of that page");
  }
  void check_all() const {
    for (slab const* const s : slabs_) check(s->begin(), s->bytes());
    require(slabs_.empty() || map_.host_bytes() != 0, "host_bytes: tables that are in use");
  }

 private:
  /// The pages of a slab, the first and the last byte of each, and those beside them.
  void check(std::uintptr_t begin, std::size_t bytes) const {
    std::uintptr_t const behind = begin + (bytes + slab::page_bytes - 1) / slab::page_bytes * slab::page_bytes;
    look_up(begin - 1);
    look_up(behind);
    for (std::uintptr_t page = begin; page < behind; page += slab::page_bytes) {
      look_up(page);
      look_up(page + slab::page_bytes - 1);
    }
  }

  slab_map map_;
  std::uintptr_t first_ = ~std::uintptr_t{0}, last_ = 0;  // tables that slabs were in
  std::vector<slab*> slabs_;
  std::map<std::uintptr_t, slab*> pages_;
};

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  fuzz::input in(data, size);
  subject s;
  while (!in.empty()) {
    unsigned const what = in.byte();
    switch (what % 4) {
      case 0:
      case 1: {
        unsigned const size_class = in.byte() % (slot_class::of(slab::most_slot_units) + 1);
        std::size_t const most_slots = slab::most_bytes / (slot_class::size(size_class) * unit_bytes);
        auto const slots = static_cast<std::uint32_t>(1 + in.byte() * most_slots / 256);
        s.add(page_from(in), size_class, slots);
        break;
      }
      case 2:
        s.remove(what / 4);
        break;
      default:
        s.look_up(page_from(in) + in.take<std::uint16_t>());
        s.look_up(in.take<std::uint64_t>());
    }
  }
  s.check_all();
  return 0;
}
