#include <weir/pool/heap/slab.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

using namespace weir::detail;

namespace {

constexpr std::uintptr_t base = 0x7f00'0000'0000u;
constexpr std::uint32_t any_record = slab::record_of(1, 256, 8);

struct drop {
  void operator()(slab* gone) const { slab::drop(gone); }
};
using owned = std::unique_ptr<slab, drop>;

owned make(units size, std::uint32_t slots) { return owned(slab::make(base, slot_class::of(size), slots)); }

/// All slots taken.
owned full(units size, std::uint32_t slots) {
  owned s = make(size, slots);
  while (s->has_free()) s->take(any_record);
  return s;
}

void check_counts(slab const& s, std::uint32_t live, std::uint32_t free, std::uint32_t away) {
  CHECK(s.live() == live);
  CHECK(s.free() == free);
  CHECK(s.away() == away);
}

}  // namespace

TEST_CASE("each slot is handed out once, in its place, until none is free") {
  owned const s = make(3, 10);
  CHECK(s->begin() == base);
  CHECK(s->bytes() == 30 * unit_bytes);
  for (std::uint32_t i = 0; i < 10; ++i) {
    CHECK(s->has_free());
    CHECK(s->take(any_record) == base + i * 3 * unit_bytes);
  }
  CHECK_FALSE(s->has_free());
  check_counts(*s, 10, 0, 0);
}

TEST_CASE("an address is a slot's where one begins, whatever the class") {
  for (unsigned c = 0; c <= slot_class::of(slab::most_slot_units); ++c) {
    units const size = slot_class::size(c);
    auto const slots = static_cast<std::uint32_t>(slab::most_bytes / unit_bytes / size);
    owned const s = full(size, slots);
    CAPTURE(size);
    for (units unit = 0; unit < (slots + 1) * size; ++unit) {
      bool const begins = unit % size == 0 && unit / size < slots;
      REQUIRE(s->at(base + std::uintptr_t{unit} * unit_bytes) == (begins ? unit / size : slab::none));
    }
  }
}

TEST_CASE("what is inside of a slot, behind the last, or was never handed out is no slot's address") {
  owned const s = make(2, 4);
  s->take(any_record);
  CHECK(s->at(base) == 0);
  CHECK(s->at(base + 1) == slab::none);
  CHECK(s->at(base + unit_bytes) == slab::none);
  CHECK(s->at(base + 2 * unit_bytes) == slab::none);
  s->take(any_record);
  CHECK(s->at(base + 2 * unit_bytes) == 1);
  CHECK(s->at(base + s->bytes()) == slab::none);
  CHECK(s->at(base + (std::size_t{1} << 16)) == slab::none);
}

TEST_CASE("a live slot remembers what was asked for, a free one does not say that it is live") {
  owned const s = make(2, 4);
  for (auto const& [bytes, log] : {std::pair{std::size_t{1}, 0u}, {std::size_t{257}, 8u}, {std::size_t{512}, 4u}}) {
    slab::slot const slot = s->at(s->take(slab::record_of(2, bytes, log)));
    CHECK(s->is_live(slot));
    CHECK(s->requested(slot) == bytes);
    CHECK(s->alignment_log(slot) == log);
    CHECK(s->record(slot) == slab::record_of(2, bytes, log));
    s->give(slot);
    CHECK_FALSE(s->is_live(slot));
    CHECK(s->record(slot) != slab::record_of(2, bytes, log));
  }
}

TEST_CASE("other sizes and alignments have other records, and so have the slots of other classes") {
  std::uint32_t const record = slab::record_of(256, 60'000, 3);
  CHECK(slab::record_of(256, 60'001, 3) != record);
  CHECK(slab::record_of(256, 60'000, 4) != record);
  CHECK(slab::record_of(240, 60'000, 3) != record);
  CHECK(slab::record_of(1, 257, 0) != slab::record_of(1, 256, 0));
}

TEST_CASE("the slot that was freed last is the next to be taken") {
  owned const s = full(1, 8);
  for (slab::slot const slot : {5u, 2u, 7u}) s->give(slot);
  check_counts(*s, 5, 3, 0);
  for (slab::slot const slot : {7u, 2u, 5u}) CHECK(s->at(s->take(any_record)) == slot);
  CHECK_FALSE(s->has_free());
}

TEST_CASE("a slot that is away is nobody's until all that is away is taken back") {
  owned const s = full(1, 4);
  s->give_away(1);
  s->give_away(3);
  check_counts(*s, 2, 0, 2);
  CHECK_FALSE(s->has_free());
  CHECK_FALSE(s->is_live(1));
  CHECK(s->record(1) != any_record);
  s->take_back();
  check_counts(*s, 2, 2, 0);
  std::uintptr_t const first = s->take(any_record), second = s->take(any_record);
  CHECK(first != second);
  for (std::uintptr_t const p : {first, second}) CHECK((p == base + unit_bytes || p == base + 3 * unit_bytes));
  CHECK_FALSE(s->has_free());
}

TEST_CASE("from both ends the same runs are seen, and a live slot is one alone") {
  using enum slab::state;
  owned const s = make(1, 10);
  for (int i = 0; i < 8; ++i) s->take(any_record);
  for (slab::slot const slot : {0u, 1u, 7u}) s->give(slot);
  for (slab::slot const slot : {5u, 4u}) s->give_away(slot);
  struct seen {
    slab::slot first, count;
    slab::state state;
  };
  std::vector<seen> const expected{{0, 2, free}, {2, 1, live}, {3, 1, live}, {4, 2, away}, {6, 1, live}, {7, 3, free}};
  slab::slot at = 0;
  for (seen const& e : expected) {
    slab::run const forth = s->run_from(at), back = s->run_before(at + e.count);
    for (slab::run const& run : {forth, back}) {
      CHECK(run.first == e.first);
      CHECK(run.count == e.count);
      CHECK(run.state == e.state);
    }
    at += e.count;
  }
  CHECK(at == s->slot_count());
}

TEST_CASE("a slot can be noted as nobody asks for one, and as it was asked for again") {
  owned const s = make(4, 4);
  s->take(slab::record_of(4, 1000, 8));
  s->set_record(0, slab::record_of(4, 1024 - 5, slab::not_asked));
  CHECK(s->is_live(0));
  CHECK(s->requested(0) == 1024 - 5);
  CHECK(s->alignment_log(0) == slab::not_asked);
  for (unsigned log = 0; log <= 8; ++log) CHECK(s->record(0) != slab::record_of(4, 1024 - 5, log));
  s->set_record(0, slab::record_of(4, 1000, 8));
  CHECK(s->requested(0) == 1000);
  CHECK(s->alignment_log(0) == 8);
}
