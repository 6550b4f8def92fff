// Slots of a slab that are taken, given, given away and taken back, against a list of what each slot is.
#include "target.hpp"

#include <weir/pool/heap/slab.hpp>

#include <memory>
#include <vector>

using namespace weir::detail;
using fuzz::require;

namespace {

constexpr std::uintptr_t begin = 0x7f00'0000'0000;

class subject {
 public:
  subject(unsigned size_class, std::uint32_t slots)
      : slab_(slab::make(begin, size_class, slots)), size_(slot_class::size(size_class)), slots_(slots) {
    if (slab_ == nullptr) fuzz::fail("make: there is host memory");
    require(slab_->slot_bytes() == size_ * unit_bytes && slab_->size_class() == size_class, "make: the class's slots");
    require(slab_->bytes() == slots * slab_->slot_bytes() && slab_->begin() == begin, "make: the block");
  }

  void take(std::size_t bytes, unsigned alignment_log) {
    bool const any = count(slab::state::free) != 0;
    require(slab_->has_free() == any, "has_free: whether a slot is free");
    if (!any) return;
    std::uintptr_t const offset = slab_->take(slab::record_of(size_, bytes, alignment_log)) - begin;
    require(offset % slab_->slot_bytes() == 0 && offset / slab_->slot_bytes() < slots_.size(), "take: a slot");
    std::size_t const taken = offset / slab_->slot_bytes();
    require(slots_[taken].is == slab::state::free, "take: one that was free");
    require(taken <= used_, "take: slots are used from the first on");
    used_ += taken == used_;
    slots_[taken] = {slab::state::live, bytes, alignment_log};
  }
  void set_record(std::size_t which, std::size_t bytes, unsigned alignment_log) {
    slab::slot const s = live(which);
    if (s == slab::none) return;
    slab_->set_record(s, slab::record_of(size_, bytes, alignment_log));
    slots_[s] = {slab::state::live, bytes, alignment_log};
  }
  void give(std::size_t which, bool away) {
    slab::slot const s = live(which);
    if (s == slab::none) return;
    away ? slab_->give_away(s) : slab_->give(s);
    slots_[s].is = away ? slab::state::away : slab::state::free;
  }
  void take_back() {
    slab_->take_back();
    for (slot& each : slots_)
      if (each.is == slab::state::away) each.is = slab::state::free;
  }

  /// Only the first byte of a slot that was ever used is found.
  void look_up(std::uintptr_t address) const {
    std::uintptr_t const offset = address - begin, bytes = slab_->slot_bytes();
    bool const is_one = offset % bytes == 0 && offset / bytes < used_;
    require(slab_->at(address) == (is_one ? offset / bytes : slab::none), "at: the slot that begins there");
  }
  void check_all() const {
    require(slab_->live() == count(slab::state::live), "live");
    require(slab_->away() == count(slab::state::away), "away");
    require(slab_->free() == count(slab::state::free), "free");
    for (std::uint32_t s = 0; s < used_; ++s) {
      require(slab_->at(begin + s * slab_->slot_bytes()) == s, "at: every slot that was used");
      check_record(s);
    }
    check_runs();
  }

 private:
  struct slot {
    slab::state is = slab::state::free;
    std::size_t bytes = 0;
    unsigned alignment_log = 0;
  };
  struct dropped {
    void operator()(slab* s) const { slab::drop(s); }
  };

  std::size_t count(slab::state state) const {
    std::size_t n = 0;
    for (slot const& each : slots_) n += each.is == state;
    return n;
  }
  slab::slot live(std::size_t which) const {
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (std::size_t const s = (which + i) % slots_.size(); slots_[s].is == slab::state::live)
        return static_cast<slab::slot>(s);
    return slab::none;
  }
  void check_record(std::uint32_t s) const {
    slot const& known = slots_[s];
    bool const is_live = known.is == slab::state::live;
    require(slab_->is_live(s) == is_live, "is_live");
    if (!is_live) {
      for (unsigned log : {0u, 8u, slab::not_asked})
        require(slab_->record(s) != slab::record_of(size_, known.bytes, log), "record: of no live slot");
      return;
    }
    require(slab_->requested(s) == known.bytes, "requested");
    require(slab_->alignment_log(s) == known.alignment_log, "alignment_log");
    require(slab_->record(s) == slab::record_of(size_, known.bytes, known.alignment_log), "record");
  }
  void check_runs() const {
    auto const check = [&](slab::run const& run) {
      for (std::uint32_t s = run.first; s < run.first + run.count; ++s)
        require(slots_[s].is == run.state, "a run is of one state");
      require(run.state != slab::state::live || run.count == 1, "a live slot is a run by itself");
    };
    auto const begins_anew = [&](std::uint32_t s) {
      return slots_[s].is == slab::state::live || slots_[s].is != slots_[s - 1].is;
    };
    auto const slots = static_cast<std::uint32_t>(slots_.size());
    for (std::uint32_t at = 0; at < slots;) {
      slab::run const run = slab_->run_from(at);
      check(run);
      at += run.count;
      require(run.first + run.count == at && (at == slots || begins_anew(at)), "run_from: as long as can be");
    }
    for (std::uint32_t end = slots; end != 0;) {
      slab::run const run = slab_->run_before(end);
      check(run);
      require(run.first + run.count == end && (run.first == 0 || begins_anew(run.first)), "run_before: the same");
      end = run.first;
    }
  }

  std::unique_ptr<slab, dropped> slab_;
  units size_;
  std::vector<slot> slots_;
  std::size_t used_ = 0;
};

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  fuzz::input in(data, size);
  unsigned const size_class = in.byte() % (slot_class::of(slab::most_slot_units) + 1);
  std::size_t const slot_bytes = slot_class::size(size_class) * unit_bytes;
  std::size_t const most = slab::most_bytes / slot_bytes;
  unsigned const wanted = in.byte();
  // Mostly few, since all are checked after each operation.
  subject s(size_class, static_cast<std::uint32_t>(wanted == 255 ? most : 1 + wanted % (most < 40 ? most : 40)));
  while (!in.empty()) {
    unsigned const what = in.byte();
    auto const bytes = [&] { return 1 + in.take<std::uint32_t>() % slot_bytes; };
    auto const alignment_log = [&] { return what / 8 % 10 == 9 ? slab::not_asked : what / 8 % 10; };
    switch (what % 8) {
      case 0:
      case 1:
        s.take(bytes(), alignment_log());
        break;
      case 2:  // many at once
        for (unsigned i = 0; i < what / 8; ++i) s.take(slot_bytes, 8);
        break;
      case 3:
        s.give(in.byte(), false);
        break;
      case 4:
        s.give(in.byte(), true);
        break;
      case 5:
        s.set_record(in.byte(), bytes(), alignment_log());
        break;
      case 6:
        s.take_back();
        break;
      default:
        s.look_up(begin + in.take<std::uint32_t>() - (what / 8 % 2 != 0 ? slab::most_bytes : 0));
        s.look_up(begin + in.byte() * slot_bytes);
        s.look_up(in.take<std::uint64_t>());
        continue;
    }
    s.check_all();
  }
  return 0;
}
