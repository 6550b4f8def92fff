#include <weir/pool/heap/sequence.hpp>

#include <doctest/doctest.h>

#include <type_traits>

#include "numbers.hpp"

using namespace weir::detail;
using namespace weir::test;

TEST_CASE("every free comes after none and before the next") {
  CHECK(sequence_number::none < next(sequence_number::none));
  CHECK(next(sequence_number::none) == 1_seq);
  CHECK(next(41_seq) == 42_seq);
}

TEST_CASE("lists, frees and plain numbers are not taken for one another") {
  CHECK(shared == 0_list);
  CHECK_FALSE(std::is_convertible_v<int, list_id>);
  CHECK_FALSE(std::is_convertible_v<list_id, int>);
  CHECK_FALSE(std::is_convertible_v<sequence_number, list_id>);
  CHECK_FALSE(std::is_convertible_v<int, sequence_number>);
}
