#pragma once
// Numbers of free lists and frees, as tests write them.

#include <weir/pool/heap/sequence.hpp>

#include <cstdint>

namespace weir::test {

constexpr detail::list_id operator""_list(unsigned long long n) {
  return detail::list_id{static_cast<std::uint16_t>(n)};
}
constexpr detail::sequence_number operator""_seq(unsigned long long n) { return detail::sequence_number{n}; }
/// The numbers themselves, to compute with.
constexpr std::size_t number(detail::list_id list) { return static_cast<std::size_t>(list); }
constexpr std::uint64_t number(detail::sequence_number s) { return static_cast<std::uint64_t>(s); }

}  // namespace weir::test
