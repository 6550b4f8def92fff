#include <weir/pool/heap/block_request.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>

using namespace weir::detail;

namespace {

constexpr units splits_all = ~units{0};
constexpr units mib = (1 << 20) / unit_bytes;

block_request of_units(units size, std::size_t alignment = unit_bytes, units max_split = splits_all) {
  return block_request::of(size * unit_bytes, size * unit_bytes, alignment, max_split);
}

}  // namespace

TEST_CASE("a request is rounded up to whole units, and remembers what was asked for") {
  for (std::size_t bytes = 1; bytes <= 3 * unit_bytes; ++bytes) {
    block_request const r = block_request::of(bytes, bytes, 16, splits_all);
    CHECK(r.size * unit_bytes >= bytes);
    CHECK((r.size - 1) * unit_bytes < bytes);
    CHECK(r.requested == bytes);
  }
  block_request const in_more = block_request::of(1, 5 * unit_bytes, 16, splits_all);
  CHECK(in_more.size == 5);
  CHECK(in_more.requested == 1);
}

TEST_CASE("blocks begin at whole units, but the alignment that was asked for is known") {
  for (unsigned log = 0; log <= 20; ++log) {
    std::size_t const alignment = std::size_t{1} << log;
    block_request const r = of_units(3, alignment);
    CHECK(r.alignment == (alignment < unit_bytes ? unit_bytes : alignment));
    CHECK(r.alignment_log == log);
  }
}

TEST_CASE("in a block of its span a request fits at an aligned address, wherever the block begins; in less not") {
  for (std::size_t const alignment : {unit_bytes, 2 * unit_bytes, 16 * unit_bytes}) {
    block_request const r = of_units(3, alignment);
    bool is_any_too_short = false;
    for (std::uintptr_t begin = alignment; begin <= 2 * alignment; begin += unit_bytes) {
      units front = 0;  // counted unit by unit
      while ((begin + front * unit_bytes) % alignment != 0) ++front;
      CHECK(r.front_of(begin) == front);
      CHECK(front + r.size <= r.span());
      is_any_too_short = is_any_too_short || front + r.size > r.span() - 1;
    }
    CHECK(is_any_too_short);
  }
}

TEST_CASE("a block below the size from which they are kept whole serves any request") {
  for (units const size : {1u, 99u, 100u, 500u}) CHECK(of_units(size, unit_bytes, 100).may_have(99));
}

TEST_CASE("a block that is kept whole serves requests as large, which waste no more than 20 MiB of it") {
  units const whole = 100 * mib;
  CHECK_FALSE(of_units(whole - 1, unit_bytes, whole).may_have(whole));
  CHECK(of_units(whole, unit_bytes, whole).may_have(whole));
  CHECK(of_units(whole, unit_bytes, whole).may_have(whole + 20 * mib));
  CHECK_FALSE(of_units(whole, unit_bytes, whole).may_have(whole + 20 * mib + 1));
}

TEST_CASE("a request is as large as what is kept whole if its span is") {
  units const whole = 100 * mib;
  std::size_t const alignment = 4 * unit_bytes;
  CHECK(of_units(whole - 3, alignment, whole).may_have(whole));
  CHECK_FALSE(of_units(whole - 4, alignment, whole).may_have(whole));
}
